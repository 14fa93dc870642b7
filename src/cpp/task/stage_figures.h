// SPDX-License-Identifier: Apache-2.0
//
// StageFigures: what every stage counts of its lookups, loads and dumps, under the same names.
// Counting is thread-safe and takes no lock.
#pragma once

#include <cstdint>
#include <functional>

#include "base/metrics.h"
#include "task/task.h"
#include "ucmstore/plugin_v1.h"
#include "ucmstore/store_v1.h"

namespace ucmstore {

using MetricVisitor = std::function<void(const char* name, MetricKind kind, double value)>;

class TransferFigures {
 public:
  void CountTask() noexcept { tasks_.Add(); }
  // Count a shard before its task can be seen to end: whoever has waited finds the figures right.
  void CountShard(const Status& status, std::uint32_t bytes) noexcept;
  void CountLatency(std::chrono::nanoseconds latency) noexcept { latency_.Record(latency); }
  // May throw for want of memory.
  void Visit(const char* prefix, const MetricVisitor& metric) const;

 private:
  Counter tasks_, shards_, bytes_, errors_, not_found_;
  Histogram latency_;
};

class LookupFigures {
 public:
  // Counts an answered lookup. If it was to stop at the first miss, what lies behind it was not
  // asked: those answers become absent.
  void CountAndCut(const LookupDesc& desc, std::uint8_t* found) noexcept;
  void CountError() noexcept { errors_.Add(); }
  void Visit(const MetricVisitor& metric) const;

 private:
  Counter calls_, blocks_, hits_memory_, hits_below_, misses_, errors_;
};

struct StageFigures {
  LookupFigures lookups;
  TransferFigures loads, dumps;

  [[nodiscard]] TransferFigures& Of(TaskKind kind) noexcept {
    return kind == TaskKind::kLoad ? loads : dumps;
  }
  void Visit(const MetricVisitor& metric) const;
};

// For what has been counted.
inline void Visit(const char* name, const Counter& counter, const MetricVisitor& metric) {
  metric(name, MetricKind::kCounter, static_cast<double>(counter.Get()));
}

}  // namespace ucmstore
