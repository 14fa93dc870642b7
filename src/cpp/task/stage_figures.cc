// SPDX-License-Identifier: Apache-2.0
//
// The names of a stage's figures, and how they are counted.
#include "task/stage_figures.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <string>

namespace ucmstore {

void TransferFigures::CountShard(const Status& status, std::uint32_t bytes) noexcept {
  shards_.Add();
  if (status.ok()) {
    bytes_.Add(bytes);
  } else if (status.code == Code::kNotFound) {
    not_found_.Add();
  } else {
    errors_.Add();
  }
}

void TransferFigures::Visit(const char* prefix, const MetricVisitor& metric) const {
  const auto count = [&](const char* name, const Counter& counter) {
    ucmstore::Visit(fmt::format("{}_{}", prefix, name).c_str(), counter, metric);
  };
  count("tasks", tasks_);
  count("shards", shards_);
  count("bytes", bytes_);
  count("errors", errors_);
  count("not_found", not_found_);
  metric(fmt::format("{}_latency_seconds_sum", prefix).c_str(), MetricKind::kCounter,
         static_cast<double>(latency_.SumNs()) * 1e-9);
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < Histogram::kBuckets; ++i) {
    below += latency_.Bucket(i);
    metric(fmt::format("{}_latency_us_below_{}", prefix, 1ULL << i).c_str(), MetricKind::kCounter,
           static_cast<double>(below));
  }
}

void LookupFigures::CountAndCut(const LookupDesc& desc, std::uint8_t* found) noexcept {
  std::uint8_t* asked_end = found + desc.count;
  if ((desc.flags & kStopAtMiss) != 0) {
    std::uint8_t* const miss = std::find(found, asked_end, kAbsent);
    if (miss != asked_end) {
      std::fill(miss, asked_end, kAbsent);
      asked_end = miss + 1;
    }
  }
  const auto asked = static_cast<std::uint64_t>(asked_end - found);
  const auto memory = static_cast<std::uint64_t>(std::count(found, asked_end, kInMemory));
  const auto misses = static_cast<std::uint64_t>(std::count(found, asked_end, kAbsent));
  calls_.Add();
  blocks_.Add(asked);
  hits_memory_.Add(memory);
  hits_below_.Add(asked - memory - misses);
  misses_.Add(misses);
}

void LookupFigures::Visit(const MetricVisitor& metric) const {
  ucmstore::Visit("lookup_calls", calls_, metric);
  ucmstore::Visit("lookup_blocks", blocks_, metric);
  ucmstore::Visit("lookup_hits_memory", hits_memory_, metric);
  ucmstore::Visit("lookup_hits_below", hits_below_, metric);
  ucmstore::Visit("lookup_misses", misses_, metric);
  ucmstore::Visit("lookup_errors", errors_, metric);
}

void StageFigures::Visit(const MetricVisitor& metric) const {
  lookups.Visit(metric);
  loads.Visit("load", metric);
  dumps.Visit("dump", metric);
}

}  // namespace ucmstore
