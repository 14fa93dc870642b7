// SPDX-License-Identifier: Apache-2.0
//
// FooterCache: footers read lately, so that layer-wise loads of one block read its footer once. The
// key is what stat says of the file: device, inode, time and size. A key that fits another file by
// chance does no harm: the id is compared and every shard's checksum, and a mismatch is read
// again without the cache. Bounded in entries and in bytes; the least recently used goes.
// Thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>

#include "base/mutex.h"
#include "io/file_system.h"
#include "store/posix/footer.h"

namespace ucmstore {

class FooterCache {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{8} << 20;

  explicit FooterCache(std::size_t max_entries) noexcept : max_entries_(max_entries) {}

  [[nodiscard]] std::shared_ptr<const Footer> Find(const FileStat& stat);
  void Insert(const FileStat& stat, std::shared_ptr<const Footer> footer);
  [[nodiscard]] std::size_t size() const;

 private:
  struct Key {
    std::uint64_t device;
    std::uint64_t inode;
    std::int64_t mtime_ns;
    std::uint64_t size;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept;
  };
  struct Entry {
    Key key;
    std::shared_ptr<const Footer> footer;
  };

  static Key KeyOf(const FileStat& stat) noexcept;
  static std::size_t BytesOf(const Footer& footer) noexcept;

  const std::size_t max_entries_;
  mutable Mutex mutex_;
  std::list<Entry> by_use_ UCMSTORE_GUARDED_BY(mutex_);  // the latest first
  std::unordered_map<Key, std::list<Entry>::iterator, KeyHash> entries_ UCMSTORE_GUARDED_BY(mutex_);
  std::size_t bytes_ UCMSTORE_GUARDED_BY(mutex_) = 0;
};

}  // namespace ucmstore
