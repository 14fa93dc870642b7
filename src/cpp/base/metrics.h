// SPDX-License-Identifier: Apache-2.0
//
// Counters and latency histograms of one stage. Counting is one relaxed atomic add; reading takes
// no lock and touches no disk. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>

namespace ucmstore {

class Counter {
 public:
  void Add(std::uint64_t by = 1) noexcept { value_.fetch_add(by, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t Get() const noexcept {
    return value_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// Latencies in buckets of powers of two of a microsecond: bucket i counts those below 2^i us, the
// last one all others (2^26 us = 67 s).
class Histogram {
 public:
  static constexpr std::size_t kBuckets = 28;

  void Record(std::chrono::nanoseconds latency) noexcept {
    const auto us = static_cast<std::uint64_t>(latency.count() < 0 ? 0 : latency.count() / 1000);
    const auto bucket = static_cast<std::size_t>(std::bit_width(us));
    buckets_[bucket < kBuckets ? bucket : kBuckets - 1].Add();
    sum_ns_.Add(static_cast<std::uint64_t>(latency.count() < 0 ? 0 : latency.count()));
  }
  [[nodiscard]] std::uint64_t Bucket(std::size_t i) const noexcept { return buckets_[i].Get(); }
  [[nodiscard]] std::uint64_t SumNs() const noexcept { return sum_ns_.Get(); }

 private:
  std::array<Counter, kBuckets> buckets_;
  Counter sum_ns_;
};

}  // namespace ucmstore
