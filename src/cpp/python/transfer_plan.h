// SPDX-License-Identifier: Apache-2.0
//
// TransferPlan: columns of ids, addresses and sizes, as Python gives them, as the shards and
// segments that a task wants. n blocks, each with m pieces of memory; the pieces are one shard of
// each block, or all shards of it one after the other, and are then cut where the shards meet.
// Plain data; needs no GIL.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "ucmstore/types.h"

namespace ucmstore::python {

struct TransferColumns {
  std::span<const BlockId> ids;              // n
  std::span<const std::uint64_t> addresses;  // n * m, by block; 0 in a load: skip
  std::span<const std::uint64_t> sizes;      // m, the same for every block, or n * m
  std::optional<std::uint32_t> shard;        // nothing: whole blocks
};

class TransferPlan {
 public:
  [[nodiscard]] static Result<TransferPlan> Make(const TransferColumns& columns,
                                                 std::uint64_t shard_size,
                                                 std::uint32_t shards_per_block);
  // Whole blocks or one shard of each, without memory.
  [[nodiscard]] static Result<TransferPlan> MakePrefetch(std::span<const BlockId> ids,
                                                         std::optional<std::uint32_t> shard,
                                                         std::uint32_t shards_per_block);

  TransferPlan(TransferPlan&&) = default;
  TransferPlan& operator=(TransferPlan&&) = default;
  [[nodiscard]] std::span<const Shard> shards() const noexcept { return shards_; }

 private:
  TransferPlan() = default;
  // The pieces of one block, as whole shards. The segments' room was reserved.
  void Cut(const BlockId& id, std::span<const Segment> pieces, std::uint64_t shard_size,
           std::uint32_t shards_per_block);

  std::vector<Segment> segments_;  // never grows past its reserve: shards point into it
  std::vector<Shard> shards_;
};

}  // namespace ucmstore::python
