// SPDX-License-Identifier: Apache-2.0
//
// HeldShards: the shards that leases of this process have begun and neither landed nor abandoned.
// Whoever finds that this process is bringing a shard learns here whether a copy is under way,
// which ends by itself, or a caller has it, who may take as long as he likes. Thread-safe.
#pragma once

#include <cstdint>
#include <unordered_set>

#include "base/mutex.h"
#include "shm/ring.h"

namespace ucmstore {

class HeldShards {
 public:
  // Ring::BeginShard, for a lease. May throw for want of memory; then nothing was begun.
  [[nodiscard]] bool Begin(Ring& ring, const Pin& pin, std::uint32_t shard) {
    const MutexLock lock(mutex_);
    const auto [held, is_new] = held_.insert(KeyOf(pin, shard));
    if (!is_new) return false;
    if (ring.BeginShard(pin, shard)) return true;
    held_.erase(held);
    return false;
  }
  // To be called before the shard is landed or abandoned: then it may be begun anew.
  void End(const Pin& pin, std::uint32_t shard) noexcept {
    const MutexLock lock(mutex_);
    held_.erase(KeyOf(pin, shard));
  }
  [[nodiscard]] bool Has(const Pin& pin, std::uint32_t shard) const {
    const MutexLock lock(mutex_);
    return held_.contains(KeyOf(pin, shard));
  }

 private:
  static std::uint64_t KeyOf(const Pin& pin, std::uint32_t shard) noexcept {
    return std::uint64_t{pin.slot()} << 32 | shard;
  }

  mutable Mutex mutex_;
  std::unordered_set<std::uint64_t> held_ UCMSTORE_GUARDED_BY(mutex_);
};

}  // namespace ucmstore
