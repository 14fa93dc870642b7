// SPDX-License-Identifier: Apache-2.0
//
// Counters and histograms: exact under threads, and each latency in its bucket.
#include "base/metrics.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace ucmstore {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

std::size_t BucketOf(nanoseconds latency) {
  Histogram histogram;
  histogram.Record(latency);
  for (std::size_t i = 0; i < Histogram::kBuckets; ++i) {
    if (histogram.Bucket(i) == 1) return i;
  }
  return Histogram::kBuckets;
}

TEST(Metrics, CounterCountsWhatHappened) {
  Counter counter;
  EXPECT_EQ(counter.Get(), 0U);
  counter.Add();
  counter.Add(41);
  EXPECT_EQ(counter.Get(), 42U);
}

TEST(Metrics, BucketHoldsWhatIsBelowItsPowerOfTwo) {
  EXPECT_EQ(BucketOf(nanoseconds(0)), 0U);
  EXPECT_EQ(BucketOf(nanoseconds(999)), 0U);
  for (std::size_t i = 1; i + 1 < Histogram::kBuckets; ++i) {
    const auto power = std::int64_t{1} << i;
    EXPECT_EQ(BucketOf(microseconds(power) - nanoseconds(1)), i) << i;
    EXPECT_EQ(BucketOf(microseconds(power)), i + 1) << i;
  }
}

TEST(Metrics, ExtremesAreCountedToo) {
  EXPECT_EQ(BucketOf(nanoseconds(-5)), 0U);
  EXPECT_EQ(BucketOf(nanoseconds::max()), Histogram::kBuckets - 1);
  EXPECT_EQ(BucketOf(std::chrono::hours(1)), Histogram::kBuckets - 1);
}

TEST(Metrics, ThreadsLoseNothing) {
  Counter counter;
  Histogram histogram;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) {
        counter.Add(3);
        histogram.Record(microseconds(5));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.Get(), 120'000U);
  EXPECT_EQ(histogram.Bucket(3), 40'000U);
  EXPECT_EQ(histogram.SumNs(), 40'000U * 5'000U);
}

}  // namespace
}  // namespace ucmstore
