// SPDX-License-Identifier: Apache-2.0
//
// DumpBatch and LoadBatch: one task under construction with its memory and results. A dump's shards
// are filled with test content; a load's destination is pre-filled with a sentinel, has guard bytes
// around, and is judged byte by byte. Plus the short forms that most tests use. Not synchronised.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "support/content.h"
#include "support/random.h"
#include "support/test_store.h"

namespace ucmstore::test {

inline constexpr std::uint32_t kPatienceMs = 20'000;  // no task of these tests takes that long
inline constexpr std::byte kSentinel{0xA5};
inline constexpr std::byte kScrambled{0x5C};

// A piece of a shard on its way to or from memory.
struct Piece {
  std::uint64_t size;
  bool skip = false;  // loads only
};

// Cuts `bytes` into up to `max_pieces` pieces at random places, some of them empty.
[[nodiscard]] std::vector<Piece> CutAtRandom(std::uint64_t bytes, std::size_t max_pieces,
                                             Random& random);

class DumpBatch {
 public:
  explicit DumpBatch(const Geometry& geometry) : geometry_(geometry) {}

  DumpBatch& Add(const BlockId& block, std::uint32_t index, std::uint64_t nonce);
  DumpBatch& Add(const BlockId& block, std::uint32_t index, std::uint64_t nonce,
                 std::uint64_t bytes, std::vector<Piece> pieces = {});
  DumpBatch& AddBlock(const BlockId& block, std::uint64_t nonce);  // every shard, whole

  // The task. Points into the batch; valid until the next Add.
  [[nodiscard]] TaskDesc desc();
  [[nodiscard]] std::size_t size() const { return items_.size(); }
  [[nodiscard]] const ShardResult& result(std::size_t i) const { return results_.at(i); }
  // Overwrites all source memory, as a caller may once the task has been retired.
  void Scramble();
  // Overwrites the arrays of shards and segments, as a caller may once Dump has returned.
  void ScrambleArrays();

 private:
  struct Item {
    BlockId block;
    std::uint32_t index;
    std::vector<std::byte> bytes;
    std::vector<Segment> segments;
  };
  Geometry geometry_;
  std::deque<Item> items_;
  std::vector<Shard> shards_;
  std::vector<ShardResult> results_;
};

class LoadBatch {
 public:
  explicit LoadBatch(const Geometry& geometry) : geometry_(geometry) {}

  LoadBatch& Add(const BlockId& block, std::uint32_t index);  // room for a whole shard, one piece
  LoadBatch& Add(const BlockId& block, std::uint32_t index, std::vector<Piece> pieces);
  LoadBatch& AddBlock(const BlockId& block);
  LoadBatch& AddPrefetch(const BlockId& block, std::uint32_t index);

  [[nodiscard]] TaskDesc desc();
  [[nodiscard]] std::size_t size() const { return items_.size(); }
  [[nodiscard]] const ShardResult& result(std::size_t i) const { return results_.at(i); }
  void ScrambleArrays();

  // What is wrong with shard i of the batch, given that it must have been loaded: code, length,
  // every byte of a single dump (the one with `nonce`, if given), skipped bytes, the bytes beyond
  // the length and the guards left alone. Empty: nothing. With skipped pieces a nonce is needed.
  [[nodiscard]] std::string Problem(std::size_t i,
                                    std::optional<std::uint64_t> nonce = std::nullopt,
                                    std::optional<std::uint64_t> bytes = std::nullopt) const;
  // The nonce of the dump that wrote what shard i got.
  [[nodiscard]] std::uint64_t NonceOf(std::size_t i) const;
  // Whether the guards around the destination of shard i are as they were.
  [[nodiscard]] bool GuardsIntact(std::size_t i) const;
  // Whether the whole destination of shard i is as it was before the load.
  [[nodiscard]] bool Untouched(std::size_t i) const;

 private:
  struct Item {
    BlockId block;
    std::uint32_t index;
    std::vector<Piece> pieces;
    std::vector<std::byte> memory;  // guard, the pieces with a guard between each, guard
    std::vector<Segment> segments;
    bool prefetch = false;
  };
  [[nodiscard]] static std::span<const std::byte> Bytes(const Item& item, std::size_t piece);
  [[nodiscard]] std::string ProblemOfPieces(const Item& item, std::uint64_t stored,
                                            std::span<const std::byte> want) const;

  Geometry geometry_;
  std::deque<Item> items_;
  std::vector<Shard> shards_;
  std::vector<ShardResult> results_;
};

// Submits and waits. The status of the submission if that failed, else of the task. kPending after
// kPatienceMs, which no test expects.
[[nodiscard]] Status Finish(TestStore& store, DumpBatch& batch);
[[nodiscard]] Status Finish(TestStore& store, LoadBatch& batch);
// Submits; the test fails if that is refused.
[[nodiscard]] TaskId Submit(TestStore& store, DumpBatch& batch);
[[nodiscard]] TaskId Submit(TestStore& store, LoadBatch& batch);
[[nodiscard]] bool IsDone(TestStore& store, TaskId task);

[[nodiscard]] Status DumpBlock(TestStore& store, const Geometry& geometry, const BlockId& block,
                               std::uint64_t nonce);
[[nodiscard]] Status DumpShard(TestStore& store, const Geometry& geometry, const BlockId& block,
                               std::uint32_t index, std::uint64_t nonce);
// Loads the whole block; the first thing wrong with it, or empty. `absent`: kNotFound for every
// shard and not a byte touched is what is right.
[[nodiscard]] std::string BlockProblem(TestStore& store, const Geometry& geometry,
                                       const BlockId& block,
                                       std::optional<std::uint64_t> nonce = std::nullopt);
[[nodiscard]] std::string AbsenceProblem(TestStore& store, const Geometry& geometry,
                                         const BlockId& block);
// Lookup's answers as a string of '0', '1': present or not.
[[nodiscard]] std::string Presence(TestStore& store, std::span<const BlockId> blocks,
                                   std::uint32_t flags = 0);
[[nodiscard]] bool IsPresent(TestStore& store, const BlockId& block);

}  // namespace ucmstore::test
