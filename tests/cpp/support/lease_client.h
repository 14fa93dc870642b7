// SPDX-License-Identifier: Apache-2.0
//
// LeaseClient: a book of leases of an open Cache, through the frozen table alone. It may outlive
// its store. Thread-safe as the book is.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "support/test_store.h"

namespace ucmstore::test {

// The topmost stage of a store of OpenRaw.
[[nodiscard]] StoreV1& TopOf(TestStore& store);

class LeaseClient {
 public:
  LeaseClient(TestStore& store, const Geometry& geometry)
      : geometry_(geometry),
        table_(
            *static_cast<const LeasesTableV1*>(PluginOf("Cache").query(&TopOf(store), "leases/1"))),
        book_(table_.open(&TopOf(store))) {
    EXPECT_NE(book_, nullptr);
    table_.memory(book_, &memory_);
  }
  LeaseClient(const LeaseClient&) = delete;
  LeaseClient& operator=(const LeaseClient&) = delete;
  ~LeaseClient() { table_.close(book_); }

  struct Answer {
    Status status;
    std::vector<LeaseV1> leases;
    std::vector<std::uint32_t> lengths;
  };
  [[nodiscard]] Answer Acquire(const std::vector<BlockId>& blocks) const {
    Answer answer{{}, std::vector<LeaseV1>(blocks.size()), {}};
    answer.lengths.resize(blocks.size() * geometry_.shards_per_block, 77);
    answer.status = table_.acquire(book_, blocks.data(), Count(blocks), answer.leases.data(),
                                   answer.lengths.data());
    return answer;
  }
  [[nodiscard]] Answer Reserve(const std::vector<BlockId>& blocks) const {
    return Reserve(blocks, 0, geometry_.shards_per_block);
  }
  [[nodiscard]] Answer Reserve(const std::vector<BlockId>& blocks, std::uint32_t first,
                               std::uint32_t count) const {
    Answer answer{{}, std::vector<LeaseV1>(blocks.size()), {}};
    answer.status =
        table_.reserve(book_, blocks.data(), Count(blocks), first, count, answer.leases.data());
    return answer;
  }
  Status Commit(const LeaseV1& lease, std::uint32_t shard, std::uint64_t bytes) const {
    return table_.commit(book_, lease.lease, shard, static_cast<std::uint32_t>(bytes));
  }
  Status Release(const LeaseV1& lease) const { return table_.release(book_, &lease.lease, 1); }
  // The memory of a leased shard.
  [[nodiscard]] std::span<std::byte> Memory(const LeaseV1& lease, std::uint32_t shard) const {
    return {static_cast<std::byte*>(lease.base) + shard * memory_.shard_stride,
            geometry_.shard_size};
  }
  [[nodiscard]] const LeaseMemoryV1& memory() const { return memory_; }
  [[nodiscard]] const LeasesTableV1& table() const { return table_; }
  [[nodiscard]] LeaseBook* book() const { return book_; }

 private:
  static std::uint32_t Count(const std::vector<BlockId>& blocks) {
    return static_cast<std::uint32_t>(blocks.size());
  }
  const Geometry geometry_;
  const LeasesTableV1& table_;
  LeaseBook* const book_;
  LeaseMemoryV1 memory_;
};

}  // namespace ucmstore::test
