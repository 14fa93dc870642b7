// SPDX-License-Identifier: Apache-2.0
//
// The figures of a Cache stage: its own, its process's, and those of the ring that all share.
#include <spdlog/fmt/fmt.h>

#include "store/cache/cache_stage.h"

namespace ucmstore {

void CacheStage::VisitMetrics(void* ctx,
                              void (*metric)(void* ctx, const MetricV1* metric)) noexcept {
  if (!attachment_) return;
  const auto one = [&](const char* name, MetricKind kind, double value) {
    const MetricV1 figure{.name = name, .kind = kind, .reserved = 0, .value = value};
    metric(ctx, &figure);
  };
  const auto count = [&](const char* name, const Counter& counter) {
    one(name, MetricKind::kCounter, static_cast<double>(counter.Get()));
  };
  const auto figures = [&](const std::string& prefix, const Figures& of) {
    count((prefix + "_tasks").c_str(), of.tasks);
    count((prefix + "_shards").c_str(), of.shards);
    count((prefix + "_bytes").c_str(), of.bytes);
    count((prefix + "_errors").c_str(), of.errors);
    count((prefix + "_not_found").c_str(), of.not_found);
    one((prefix + "_latency_seconds_sum").c_str(), MetricKind::kCounter,
        static_cast<double>(of.latency.SumNs()) * 1e-9);
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < Histogram::kBuckets; ++i) {
      below += of.latency.Bucket(i);
      one(fmt::format("{}_latency_us_below_{}", prefix, 1ULL << i).c_str(), MetricKind::kCounter,
          static_cast<double>(below));
    }
  };
  try {
    count("lookup_calls", lookup_calls_);
    count("lookup_blocks", lookup_blocks_);
    count("lookup_hits_memory", lookup_hits_memory_);
    count("lookup_hits_below", lookup_hits_below_);
    count("lookup_misses", lookup_misses_);
    count("lookup_errors", lookup_errors_);
    figures("load", loads_);
    figures("dump", dumps_);
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
    one("ring_evictions", MetricKind::kCounter,
        static_cast<double>(shared.evictions.load(std::memory_order_relaxed)));
    one("ring_reaped_processes", MetricKind::kCounter,
        static_cast<double>(shared.reaped_processes.load(std::memory_order_relaxed)));
    one("ring_is_private", MetricKind::kGauge, attachment_->segment().is_private() ? 1 : 0);
  } catch (...) {  // the ABI's edge; out of memory for a name
  }
}

}  // namespace ucmstore
