// SPDX-License-Identifier: Apache-2.0
//
// Lease: slots of a stage's memory that Pipeline::Acquire or Reserve lent, to be read or filled in
// place. It may outlive its pipeline: the memory stays until the lease is released or destroyed.
// After that its addresses must not be used; they still are mapped as long as the object lives, but
// hold whatever comes next. In a forked child it is of no use, and does nothing.
// Thread-safe, but for its destruction.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "ucmstore/plugin_v1.h"

namespace ucmstore {

// A book of "leases/1", open.
class LeaseBookHandle {
 public:
  LeaseBookHandle(const LeasesTableV1& table, LeaseBook* book) noexcept
      : table_(table), book_(book) {}
  LeaseBookHandle(const LeaseBookHandle&) = delete;
  LeaseBookHandle& operator=(const LeaseBookHandle&) = delete;
  ~LeaseBookHandle() { table_.close(book_); }
  [[nodiscard]] const LeasesTableV1& table() const noexcept { return table_; }
  [[nodiscard]] LeaseBook* get() const noexcept { return book_; }

 private:
  const LeasesTableV1& table_;
  LeaseBook* const book_;
};

class UCMSTORE_EXPORT Lease {
 public:
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease();  // releases

  // For each id that was given, in order; codes as in plugin_v1.h.
  [[nodiscard]] std::span<const LeaseV1> blocks() const noexcept { return blocks_; }
  // Of an acquired lease: of each shard, shards_per_block for each block. Else empty.
  [[nodiscard]] std::span<const std::uint32_t> lengths() const noexcept { return lengths_; }
  // Of a reserved one.
  [[nodiscard]] std::uint32_t first_shard() const noexcept { return first_shard_; }
  [[nodiscard]] std::uint32_t shard_count() const noexcept { return shard_count_; }
  // Null if there is no lease of block i.
  [[nodiscard]] void* DataOf(std::size_t i, std::uint32_t shard) const noexcept;
  [[nodiscard]] std::uint64_t shard_stride() const noexcept { return shard_stride_; }
  // Why the first of the blocks was refused, in words; ok: none was.
  [[nodiscard]] const Status& refusal() const noexcept { return refusal_; }

  // The shard of block i is there and will not change any more. See LeasesTableV1::commit.
  [[nodiscard]] Status Commit(std::size_t i, std::uint32_t shard, std::uint32_t bytes) noexcept;
  void Release() noexcept;  // again is harmless

 private:
  friend class Pipeline;
  Lease(std::shared_ptr<LeaseBookHandle> book, std::size_t blocks);

  const std::shared_ptr<LeaseBookHandle> book_;
  std::vector<LeaseV1> blocks_;
  std::vector<LeaseId> ids_;
  std::vector<std::uint32_t> lengths_;
  std::uint32_t first_shard_ = 0;
  std::uint32_t shard_count_ = 0;
  std::uint64_t shard_stride_ = 0;
  Status refusal_;
};

}  // namespace ucmstore
