// SPDX-License-Identifier: Apache-2.0
//
// What driver and workers of the kill suite agree on: the stacks, the blocks, and how a block is
// judged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "support/batch.h"
#include "support/content.h"
#include "support/test_store.h"

namespace ucmstore::test {

inline constexpr std::uint64_t kFamily = 0x6B696C6C;
inline constexpr std::uint64_t kBlocks = 200;
inline constexpr std::size_t kPrefixDigits = 3;  // the default of Posix
inline constexpr Geometry kGeometry{.shard_size = 4096 * 2 + 512, .shards_per_block = 4};

// Of the blocks that a worker never deletes: the n-th of worker w.
[[nodiscard]] inline BlockId KeptId(std::uint64_t w, std::uint64_t n) {
  return MakeId(kFamily + 1 + w, n);
}

// `ring`: the folder of the ring, for a stack with Cache; it has room for few blocks, so that there
// is always something to evict.
[[nodiscard]] inline StackConfig KillConfig(const std::string& spec, const std::string& root,
                                            const std::string& ring) {
  StackConfig config{
      .spec = spec, .geometry = kGeometry, .options = {{"posix.roots", root}}, .workers = 4};
  if (spec.starts_with("Cache")) {
    config.options["cache.path"] = ring;
    config.options["cache.capacity"] = "1MiB";
  }
  return config;
}

// Loads every shard of a block that may be absent into `bytes`. "" if it is absent, or right; else
// what is wrong.
[[nodiscard]] inline std::string LoadAndJudge(TestStore& store, const BlockId& block,
                                              std::span<std::byte> bytes) {
  std::vector<Segment> segments(kGeometry.shards_per_block);
  std::vector<Shard> shards(kGeometry.shards_per_block);
  std::vector<ShardResult> results(kGeometry.shards_per_block);
  for (std::uint32_t i = 0; i < shards.size(); ++i) {
    segments[i] = {.data = bytes.data() + i * kGeometry.shard_size, .size = kGeometry.shard_size};
    shards[i] = {.block = block, .segments = &segments[i], .segment_count = 1, .index = i};
  }
  TaskDesc desc;
  desc.shards = shards.data();
  desc.shard_count = static_cast<std::uint32_t>(shards.size());
  desc.results = results.data();
  TaskId task = 0;
  Status status = store.Load(desc, &task);
  if (status.ok()) status = store.Wait(task, kPatienceMs);
  if (status.code == Code::kNotFound) return "";
  if (!status.ok()) return status.message;
  for (std::uint32_t i = 0; i < shards.size(); ++i) {
    const Verdict verdict =
        Inspect(bytes.subspan(i * kGeometry.shard_size, results[i].bytes), block, i);
    if (results[i].bytes != kGeometry.shard_size) return "a shard has lost its length";
    if (!verdict.good()) return verdict.why;
  }
  return "";
}

}  // namespace ucmstore::test
