// SPDX-License-Identifier: Apache-2.0
//
// The figures of a Cache stage: its own, its process's, and those of the ring that all share.
#include "store/cache/cache_stage.h"

namespace ucmstore {

void CacheStage::VisitMetrics(void* ctx,
                              void (*metric)(void* ctx, const MetricV1* metric)) noexcept {
  if (!attachment_) return;
  const auto one = [&](const char* name, MetricKind kind, double value) {
    const MetricV1 figure{.name = name, .kind = kind, .reserved = 0, .value = value};
    metric(ctx, &figure);
  };
  const auto count = [&](const char* name, const Counter& counter) { Visit(name, counter, one); };
  try {
    figures_.Visit(one);
    count("load_hit_shards", load_hit_shards_);
    count("load_filled_shards", load_filled_shards_);
    count("load_joined_shards", load_joined_shards_);
    count("load_past_shards", load_past_shards_);
    count("dump_past_shards", dump_past_shards_);
    count("dump_waits_for_room", dump_waits_for_room_);
    count("aborted_blocks", unfinished_->given_up());
    one("incomplete_blocks", MetricKind::kGauge, static_cast<double>(unfinished_->Incomplete()));
    write_back_->VisitMetrics(one);
    one("tasks_in_flight", MetricKind::kGauge, static_cast<double>(table_->size()));
    one("waiting_shards", MetricKind::kGauge, static_cast<double>(watch_->size()));
    {
      const MutexLock lock(mutex_);
      one("turns_in_flight", MetricKind::kGauge, turns_);
    }
    const RingShared& shared = *ring().memory().shared;
    one("ring_slots", MetricKind::kGauge, ring().slot_count());
    one("ring_prefaulted_bytes", MetricKind::kGauge, static_cast<double>(prefault_->bytes()));
    one("ring_evictions", MetricKind::kCounter,
        static_cast<double>(shared.evictions.load(std::memory_order_relaxed)));
    one("ring_reaped_processes", MetricKind::kCounter,
        static_cast<double>(shared.reaped_processes.load(std::memory_order_relaxed)));
    one("ring_leases", MetricKind::kGauge, static_cast<double>(attachment_->processes().Leases()));
    one("max_leases", MetricKind::kGauge, static_cast<double>(max_leases_));
    one("ring_is_private", MetricKind::kGauge, attachment_->segment().is_private() ? 1 : 0);
  } catch (...) {  // the ABI's edge; out of memory for a name
  }
}

}  // namespace ucmstore
