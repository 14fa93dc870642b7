// SPDX-License-Identifier: Apache-2.0
//
// Cutting each block's pieces of memory where its shards meet. See transfer_plan.h.
#include "python/transfer_plan.h"

#include <algorithm>
#include <limits>
#include <string>

namespace ucmstore::python {

namespace {

// Python's integers may have been signed on their way: what is above was negative.
constexpr std::uint64_t kMostSigned = std::numeric_limits<std::int64_t>::max();

Status CheckShard(std::optional<std::uint32_t> shard, std::uint32_t shards_per_block) {
  if (!shard || *shard < shards_per_block) return Status::Ok();
  return Status::Error(Code::kInvalidArgument,
                       "shard " + std::to_string(*shard) + " is out of range; a block has " +
                           std::to_string(shards_per_block) + ", counted from 0");
}

Status CheckShardCount(std::size_t blocks, std::uint32_t shards_of_each) {
  if (blocks <= std::numeric_limits<std::uint32_t>::max() / shards_of_each) return Status::Ok();
  return Status::Error(Code::kInvalidArgument, std::to_string(blocks) + " blocks of " +
                                                   std::to_string(shards_of_each) +
                                                   " shards are more than one task takes");
}

// Of the pieces of one block.
Result<std::uint64_t> Sum(std::span<const std::uint64_t> sizes) {
  std::uint64_t sum = 0;
  for (const std::uint64_t size : sizes) {
    if (size > kMostSigned - sum) {
      return Failure(Code::kInvalidArgument, "sizes: negative, or too large in all");
    }
    sum += size;
  }
  return sum;
}

}  // namespace

Result<TransferPlan> TransferPlan::Make(const TransferColumns& columns, std::uint64_t shard_size,
                                        std::uint32_t shards_per_block) {
  const std::uint32_t shards_of_each = columns.shard ? 1 : shards_per_block;
  if (const Status status = CheckShard(columns.shard, shards_per_block); !status.ok()) {
    return std::unexpected(status);
  }
  if (const Status status = CheckShardCount(columns.ids.size(), shards_of_each); !status.ok()) {
    return std::unexpected(status);
  }
  const std::size_t rows = columns.ids.size();
  if (rows == 0 && columns.addresses.empty()) return TransferPlan();
  const std::size_t pieces = rows == 0 ? 0 : columns.addresses.size() / rows;
  const bool shared_sizes = columns.sizes.size() == pieces;
  if (columns.addresses.size() != rows * pieces ||
      (!shared_sizes && columns.sizes.size() != columns.addresses.size())) {
    return Failure(Code::kInvalidArgument,
                   std::to_string(rows) + " ids, " + std::to_string(columns.addresses.size()) +
                       " addresses and " + std::to_string(columns.sizes.size()) +
                       " sizes do not fit together; give addresses [ids, pieces] and sizes "
                       "[pieces]");
  }
  TransferPlan plan;
  plan.segments_.reserve(rows * (pieces + shards_of_each));
  plan.shards_.reserve(rows * shards_of_each);
  std::vector<Segment> row(pieces);
  for (std::size_t i = 0; i < rows; ++i) {
    const auto sizes = shared_sizes ? columns.sizes : columns.sizes.subspan(i * pieces, pieces);
    const auto sum = Sum(sizes);
    if (!sum) return std::unexpected(sum.error());
    for (std::size_t j = 0; j < pieces; ++j) {
      if (columns.addresses[i * pieces + j] > kMostSigned) {
        return Failure(Code::kInvalidArgument, "row " + std::to_string(i) + ": piece " +
                                                   std::to_string(j) +
                                                   " has no address; negative, or no user memory");
      }
      // The address is the caller's word for memory of his own.
      row[j] = {reinterpret_cast<void*>(columns.addresses[i * pieces + j]), sizes[j]};
    }
    if (columns.shard) {
      const auto* first = plan.segments_.data() + plan.segments_.size();
      plan.segments_.insert(plan.segments_.end(), row.begin(), row.end());
      plan.shards_.push_back(
          {columns.ids[i], first, static_cast<std::uint32_t>(pieces), *columns.shard});
      continue;
    }
    if (*sum != shard_size * shards_per_block) {
      return Failure(Code::kInvalidArgument,
                     "row " + std::to_string(i) + ": " + std::to_string(*sum) +
                         " bytes given; a block has " + std::to_string(shards_per_block) +
                         " shards of " + std::to_string(shard_size) + " = " +
                         std::to_string(shard_size * shards_per_block));
    }
    plan.Cut(columns.ids[i], row, shard_size, shards_per_block);
  }
  return plan;
}

void TransferPlan::Cut(const BlockId& id, std::span<const Segment> pieces, std::uint64_t shard_size,
                       std::uint32_t shards_per_block) {
  std::size_t piece = 0;
  std::uint64_t taken = 0;  // of the piece
  for (std::uint32_t index = 0; index < shards_per_block; ++index) {
    const Segment* first = segments_.data() + segments_.size();
    std::uint32_t count = 0;
    for (std::uint64_t left = shard_size; left > 0;) {
      const Segment& from = pieces[piece];
      const std::uint64_t size = std::min(left, from.size - taken);
      if (size > 0) {
        auto* data = static_cast<std::byte*>(from.data);
        segments_.push_back({data == nullptr ? nullptr : data + taken, size});
        ++count;
      }
      left -= size;
      taken += size;
      if (taken == from.size) {
        ++piece;
        taken = 0;
      }
    }
    shards_.push_back({id, first, count, index});
  }
}

Result<TransferPlan> TransferPlan::MakePrefetch(std::span<const BlockId> ids,
                                                std::optional<std::uint32_t> shard,
                                                std::uint32_t shards_per_block) {
  const std::uint32_t shards_of_each = shard ? 1 : shards_per_block;
  if (const Status status = CheckShard(shard, shards_per_block); !status.ok()) {
    return std::unexpected(status);
  }
  if (const Status status = CheckShardCount(ids.size(), shards_of_each); !status.ok()) {
    return std::unexpected(status);
  }
  TransferPlan plan;
  plan.shards_.reserve(ids.size() * shards_of_each);
  for (const BlockId& id : ids) {
    for (std::uint32_t i = 0; i < shards_of_each; ++i) {
      plan.shards_.push_back({id, nullptr, 0, shard ? *shard : i});
    }
  }
  return plan;
}

}  // namespace ucmstore::python
