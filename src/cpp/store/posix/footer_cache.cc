// SPDX-License-Identifier: Apache-2.0
//
// A list in order of use and an index into it.
#include "store/posix/footer_cache.h"

#include <utility>

namespace ucmstore {

FooterCache::Key FooterCache::KeyOf(const FileStat& stat) noexcept {
  return {stat.device, stat.inode, stat.mtime_ns, stat.size};
}

std::size_t FooterCache::KeyHash::operator()(const Key& key) const noexcept {
  std::uint64_t hash = key.inode * 0x9E3779B97F4A7C15U;
  hash ^= static_cast<std::uint64_t>(key.mtime_ns) + (hash >> 29);
  hash *= 0xBF58476D1CE4E5B9U;
  return static_cast<std::size_t>(hash ^ (hash >> 32) ^ key.device ^ key.size);
}

std::size_t FooterCache::BytesOf(const Footer& footer) noexcept {
  constexpr std::size_t kAround = 256;  // list node, index node, control block, the footer itself
  return kAround + footer.shards.size() * sizeof(StoredShard);
}

std::shared_ptr<const Footer> FooterCache::Find(const FileStat& stat) {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(KeyOf(stat));
  if (found == entries_.end()) return nullptr;
  by_use_.splice(by_use_.begin(), by_use_, found->second);
  return found->second->footer;
}

void FooterCache::Insert(const FileStat& stat, std::shared_ptr<const Footer> footer) {
  const std::size_t bytes = BytesOf(*footer);
  if (max_entries_ == 0 || bytes > kMaxBytes) return;
  const MutexLock lock(mutex_);
  const Key key = KeyOf(stat);
  const auto found = entries_.find(key);
  if (found != entries_.end()) {
    bytes_ += bytes;
    bytes_ -= BytesOf(*found->second->footer);
    found->second->footer = std::move(footer);
    by_use_.splice(by_use_.begin(), by_use_, found->second);
  } else {
    by_use_.push_front({key, std::move(footer)});
    entries_.emplace(key, by_use_.begin());
    bytes_ += bytes;
  }
  // Ends: each round removes an entry, and one alone is within both bounds.
  while (by_use_.size() > max_entries_ || bytes_ > kMaxBytes) {
    bytes_ -= BytesOf(*by_use_.back().footer);
    entries_.erase(by_use_.back().key);
    by_use_.pop_back();
  }
}

std::size_t FooterCache::size() const {
  const MutexLock lock(mutex_);
  return by_use_.size();
}

}  // namespace ucmstore
