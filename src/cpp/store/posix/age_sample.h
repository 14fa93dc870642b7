// SPDX-License-Identifier: Apache-2.0
//
// AgeSample: how many bytes of a root are how old, from the blocks of some of its prefix folders,
// and the cut that follows: the age below which the wanted bytes lie. Bounded: when it is full
// every second entry goes, at random, and the others count double. Not synchronised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace ucmstore {

// What is older goes; what is as old goes as long as `tie_bytes` last, so that blocks of one and
// the same time do not go all at once.
struct Cut {
  std::int64_t mtime_ns = INT64_MIN;
  std::uint64_t tie_bytes = 0;
};

class AgeSample {
 public:
  explicit AgeSample(std::uint64_t seed, std::size_t max_entries = 65536)
      : random_(seed), max_entries_(max_entries) {}

  // Entries from here on belong to a new group, which stands for so many times what is in it.
  void BeginGroup() { scales_.push_back(1.0); }
  void ScaleGroup(double by) noexcept { scales_.back() = by; }
  void Add(std::int64_t mtime_ns, std::uint64_t bytes);

  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  // All that the sample stands for.
  [[nodiscard]] std::uint64_t Bytes() const noexcept;
  // So that about `bytes` lie below it; everything, if there is less.
  [[nodiscard]] Cut CutFor(std::uint64_t bytes) const;

 private:
  struct Entry {
    std::int64_t mtime_ns;
    double bytes;
    std::uint32_t group;
  };

  std::mt19937_64 random_;
  const std::size_t max_entries_;
  std::uint32_t halvings_ = 0;
  std::vector<double> scales_;  // by group
  std::vector<Entry> entries_;
};

}  // namespace ucmstore
