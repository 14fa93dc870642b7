// SPDX-License-Identifier: Apache-2.0
//
// The table of what was told, and the telling.
#include "store/cache/uses.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/block_id_hash.h"
#include "ucmstore/store_v1.h"

namespace ucmstore {
namespace {

constexpr std::uint64_t kMaxPlaces = std::uint64_t{1} << 20;  // 4 MiB

std::uint32_t Seconds(TimePoint at) noexcept {
  // From 1 on: 0 is an empty place. 32 bits of them are 136 years.
  const auto since = std::chrono::duration_cast<std::chrono::seconds>(at.time_since_epoch());
  return static_cast<std::uint32_t>(since.count()) + 1;
}

}  // namespace

Uses::Uses(ThreadPool& pool, const Clock& clock, std::uint32_t slots, Tell tell)
    : pool_(pool),
      clock_(clock),
      tell_(std::move(tell)),
      mask_(std::min(std::bit_ceil(2 * std::uint64_t{slots}), kMaxPlaces) - 1),
      told_(std::make_unique<std::atomic<std::uint32_t>[]>(mask_ + 1)) {}

bool Uses::IsDue(const BlockId& block, std::uint32_t now_s) noexcept {
  constexpr auto kEvery = static_cast<std::uint32_t>(kTellEvery.count() / 1000);
  std::atomic<std::uint32_t>& place = told_[BlockIdHash{}(block)&mask_];
  const std::uint32_t told = place.load(std::memory_order_relaxed);
  if (told != 0 && now_s - told < kEvery) return false;
  place.store(now_s, std::memory_order_relaxed);
  // What is seen for the first time has just come, from below or from a dump.
  return told != 0;
}

void Uses::Used(std::span<const BlockId> blocks, const std::uint8_t* found) noexcept {
  const TimePoint now = clock_.Now();
  const std::uint32_t now_s = Seconds(now);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (found[i] != kInMemory || !IsDue(blocks[i], now_s)) continue;
    const MutexLock lock(mutex_);
    if (closing_ || waiting_.size() >= kMaxWaiting) return;
    try {
      waiting_.push_back(blocks[i]);
    } catch (...) {  // out of memory: with its next use, then
      return;
    }
    if (running_ || now < not_before_) continue;
    Job* const job = this;
    running_ = pool_.Push({&job, 1}, Lane::kBackground);
  }
}

void Uses::Run() noexcept {
  std::vector<BlockId> batch;
  {
    const MutexLock lock(mutex_);
    if (!closing_) batch.swap(waiting_);
  }
  if (!batch.empty()) tell_(batch);
  const MutexLock lock(mutex_);
  not_before_ = clock_.Now() + kPause;
  running_ = false;
  ended_.NotifyAll();
}

bool Uses::End(TimePoint until) {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
    waiting_.clear();
  }
  const bool never_runs = pool_.Remove(*this);
  const MutexLock lock(mutex_);
  if (never_runs) running_ = false;
  while (running_) {
    if (!ended_.WaitUntil(mutex_, until) && running_) return false;
  }
  return true;
}

}  // namespace ucmstore
