// SPDX-License-Identifier: Apache-2.0
//
// Thinning, and the cut.
#include "store/posix/age_sample.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ucmstore {

void AgeSample::Add(std::int64_t mtime_ns, std::uint64_t bytes) {
  // Of those that come now as many are taken as were kept of those before.
  const std::uint64_t mask = (std::uint64_t{1} << halvings_) - 1;
  if ((random_() & mask) != 0) return;
  if (entries_.size() == max_entries_) {
    std::size_t kept = 0;
    for (const Entry& entry : entries_) {
      if ((random_() & 1) != 0) continue;
      entries_[kept] = entry;
      entries_[kept++].bytes *= 2;
    }
    entries_.resize(kept);
    ++halvings_;
    if ((random_() & 1) != 0) return;
  }
  entries_.push_back({.mtime_ns = mtime_ns,
                      .bytes = std::ldexp(static_cast<double>(bytes), static_cast<int>(halvings_)),
                      .group = static_cast<std::uint32_t>(scales_.size() - 1)});
}

std::uint64_t AgeSample::Bytes() const noexcept {
  double sum = 0;
  for (const Entry& entry : entries_) sum += entry.bytes * scales_[entry.group];
  return static_cast<std::uint64_t>(sum);
}

Cut AgeSample::CutFor(std::uint64_t bytes) const {
  std::vector<std::pair<std::int64_t, double>> by_age;
  by_age.reserve(entries_.size());
  for (const Entry& entry : entries_) {
    by_age.emplace_back(entry.mtime_ns, entry.bytes * scales_[entry.group]);
  }
  std::ranges::sort(by_age);
  const auto wanted = static_cast<double>(bytes);
  double sum = 0;
  double below = 0;  // bytes that are older than the entry looked at
  for (std::size_t i = 0; i < by_age.size(); ++i) {
    if (i > 0 && by_age[i].first != by_age[i - 1].first) below = sum;
    sum += by_age[i].second;
    if (sum >= wanted) {
      return {.mtime_ns = by_age[i].first, .tie_bytes = static_cast<std::uint64_t>(wanted - below)};
    }
  }
  return {.mtime_ns = INT64_MAX, .tie_bytes = UINT64_MAX};
}

}  // namespace ucmstore
