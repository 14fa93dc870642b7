// SPDX-License-Identifier: Apache-2.0
//
// Building tasks, and judging what they delivered.
#include "support/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/hex.h"

namespace ucmstore::test {
namespace {

constexpr std::size_t kGuardBytes = 64;
constexpr ShardResult kUnwritten{static_cast<Code>(-77), -77, 0xDEAD};

bool AllAre(std::span<const std::byte> bytes, std::byte value) {
  return std::ranges::all_of(bytes, [value](std::byte b) { return b == value; });
}

TaskDesc DescOf(std::vector<Shard>& shards, std::vector<ShardResult>& results) {
  TaskDesc desc;
  desc.shards = shards.data();
  desc.shard_count = static_cast<std::uint32_t>(shards.size());
  results.assign(shards.size(), kUnwritten);
  desc.results = results.data();
  return desc;
}

template <typename Items>
TaskDesc Rebuild(Items& items, std::vector<Shard>& shards, std::vector<ShardResult>& results) {
  shards.clear();
  for (auto& item : items) {
    shards.push_back({item.block, item.segments.empty() ? nullptr : item.segments.data(),
                      static_cast<std::uint32_t>(item.segments.size()), item.index});
  }
  return DescOf(shards, results);
}

template <typename Items>
void Garble(Items& items, std::vector<Shard>& shards) {
  for (auto& item : items) {
    for (Segment& segment : item.segments) segment = {nullptr, ~0ULL};
  }
  for (Shard& shard : shards) shard = {MakeId(666, 666), nullptr, 77, 77};
}

}  // namespace

std::vector<Piece> CutAtRandom(std::uint64_t bytes, std::size_t max_pieces, Random& random) {
  std::vector<std::uint64_t> cuts(random.Between(0, max_pieces - 1));
  for (std::uint64_t& cut : cuts) cut = random.Between(0, bytes);
  cuts.push_back(bytes);
  std::ranges::sort(cuts);
  std::vector<Piece> pieces;
  std::uint64_t at = 0;
  for (const std::uint64_t cut : cuts) {
    pieces.push_back({cut - at});
    at = cut;
  }
  return pieces;
}

DumpBatch& DumpBatch::Add(const BlockId& block, std::uint32_t index, std::uint64_t nonce) {
  return Add(block, index, nonce, geometry_.shard_size);
}

DumpBatch& DumpBatch::Add(const BlockId& block, std::uint32_t index, std::uint64_t nonce,
                          std::uint64_t bytes, std::vector<Piece> pieces) {
  Item& item = items_.emplace_back(Item{block, index, std::vector<std::byte>(bytes), {}});
  Fill(item.bytes, block, index, nonce);
  if (pieces.empty()) pieces.push_back({bytes});
  std::uint64_t at = 0;
  for (const Piece& piece : pieces) {
    item.segments.push_back({item.bytes.data() + at, piece.size});
    at += piece.size;
  }
  return *this;
}

DumpBatch& DumpBatch::AddBlock(const BlockId& block, std::uint64_t nonce) {
  for (std::uint32_t i = 0; i < geometry_.shards_per_block; ++i) Add(block, i, nonce);
  return *this;
}

TaskDesc DumpBatch::desc() { return Rebuild(items_, shards_, results_); }

void DumpBatch::Scramble() {
  for (Item& item : items_) std::ranges::fill(item.bytes, kScrambled);
}

void DumpBatch::ScrambleArrays() { Garble(items_, shards_); }

LoadBatch& LoadBatch::Add(const BlockId& block, std::uint32_t index) {
  return Add(block, index, {{geometry_.shard_size}});
}

LoadBatch& LoadBatch::Add(const BlockId& block, std::uint32_t index, std::vector<Piece> pieces) {
  Item& item = items_.emplace_back(Item{block, index, std::move(pieces), {}, {}});
  std::size_t total = kGuardBytes;
  for (const Piece& piece : item.pieces) total += piece.size + kGuardBytes;
  item.memory.assign(total, kSentinel);
  std::size_t at = kGuardBytes;
  for (const Piece& piece : item.pieces) {
    item.segments.push_back({piece.skip ? nullptr : item.memory.data() + at, piece.size});
    at += piece.size + kGuardBytes;
  }
  return *this;
}

LoadBatch& LoadBatch::AddBlock(const BlockId& block) {
  for (std::uint32_t i = 0; i < geometry_.shards_per_block; ++i) Add(block, i);
  return *this;
}

LoadBatch& LoadBatch::AddPrefetch(const BlockId& block, std::uint32_t index) {
  items_.emplace_back(Item{block, index, {}, {}, {}, true});
  return *this;
}

TaskDesc LoadBatch::desc() { return Rebuild(items_, shards_, results_); }

void LoadBatch::ScrambleArrays() { Garble(items_, shards_); }

std::span<const std::byte> LoadBatch::Bytes(const Item& item, std::size_t piece) {
  std::size_t at = kGuardBytes;
  for (std::size_t i = 0; i < piece; ++i) at += item.pieces[i].size + kGuardBytes;
  return std::span(item.memory).subspan(at, item.pieces[piece].size);
}

bool LoadBatch::GuardsIntact(std::size_t i) const {
  const Item& item = items_.at(i);
  std::size_t at = 0;
  for (std::size_t piece = 0; piece <= item.pieces.size(); ++piece) {
    if (item.memory.empty()) return true;
    if (!AllAre(std::span(item.memory).subspan(at, kGuardBytes), kSentinel)) return false;
    if (piece < item.pieces.size()) at += kGuardBytes + item.pieces[piece].size;
  }
  return true;
}

bool LoadBatch::Untouched(std::size_t i) const { return AllAre(items_.at(i).memory, kSentinel); }

std::string LoadBatch::ProblemOfPieces(const Item& item, std::uint64_t stored,
                                       std::span<const std::byte> want) const {
  std::uint64_t at = 0;
  std::size_t place = kGuardBytes;
  for (std::size_t p = 0; p < item.pieces.size(); ++p) {
    const std::uint64_t size = item.pieces[p].size;
    const auto got = std::span<const std::byte>(item.memory).subspan(place, size);
    place += size + kGuardBytes;
    const std::uint64_t filled =
        item.pieces[p].skip || at >= stored ? 0 : std::min(size, stored - at);
    if (filled > 0 && std::memcmp(got.data(), want.data() + at, filled) != 0) {
      return "piece " + std::to_string(p) + " at byte " + std::to_string(at) + " differs";
    }
    if (!AllAre(got.subspan(filled), kSentinel)) {
      return "piece " + std::to_string(p) + ": bytes that were to be left alone are changed";
    }
    at += size;
  }
  return {};
}

std::string LoadBatch::Problem(std::size_t i, std::optional<std::uint64_t> nonce,
                               std::optional<std::uint64_t> bytes) const {
  const Item& item = items_.at(i);
  const ShardResult& result = results_.at(i);
  const std::string where = "load[" + std::to_string(i) + "] block " + ToHex(item.block) +
                            " shard " + std::to_string(item.index) + ": ";
  if (result.code != Code::kOk) return where + CodeName(result.code);
  const std::uint64_t want_bytes = bytes.value_or(geometry_.shard_size);
  if (result.bytes != want_bytes) {
    return where + "length " + std::to_string(result.bytes) + ", not " + std::to_string(want_bytes);
  }
  if (item.prefetch) return {};
  if (!GuardsIntact(i)) return where + "bytes outside of the destination are changed";
  std::vector<std::byte> want(want_bytes);
  Fill(want, item.block, item.index, nonce.value_or(NonceOf(i)));
  if (const std::string why = ProblemOfPieces(item, want_bytes, want); !why.empty()) {
    const Verdict verdict =
        Inspect(Bytes(item, 0).first(std::min<std::uint64_t>(item.pieces[0].size, want_bytes)),
                item.block, item.index, nonce);
    return where + why + (verdict.good() ? "" : "; " + verdict.why);
  }
  return {};
}

std::uint64_t LoadBatch::NonceOf(std::size_t i) const {
  const Item& item = items_.at(i);
  std::uint64_t nonce = 0;
  std::size_t got = 0;
  for (std::size_t p = 0; p < item.pieces.size() && got < sizeof(nonce); ++p) {
    const std::size_t size = std::min(sizeof(nonce) - got, Bytes(item, p).size());
    std::memcpy(reinterpret_cast<std::byte*>(&nonce) + got, Bytes(item, p).data(), size);
    got += size;
  }
  return nonce;
}

namespace {

template <typename Batch, typename Method>
TaskId SubmitTo(TestStore& store, Batch& batch, Method method, Status* status) {
  TaskId task = 77;
  const TaskDesc desc = batch.desc();
  *status = (store.*method)(desc, &task);
  if (!status->ok()) {
    EXPECT_EQ(task, 0U) << "a refused submission left a task id";
  } else {
    EXPECT_NE(task, 0U) << "0 is never a task";
  }
  return task;
}

template <typename Batch, typename Method>
Status RunIn(TestStore& store, Batch& batch, Method method) {
  Status status;
  const TaskId task = SubmitTo(store, batch, method, &status);
  return status.ok() ? store.Wait(task, kPatienceMs) : status;
}

}  // namespace

Status Finish(TestStore& store, DumpBatch& batch) { return RunIn(store, batch, &TestStore::Dump); }
Status Finish(TestStore& store, LoadBatch& batch) { return RunIn(store, batch, &TestStore::Load); }

TaskId Submit(TestStore& store, DumpBatch& batch) {
  Status status;
  const TaskId task = SubmitTo(store, batch, &TestStore::Dump, &status);
  EXPECT_TRUE(status.ok()) << status.message;
  return task;
}

TaskId Submit(TestStore& store, LoadBatch& batch) {
  Status status;
  const TaskId task = SubmitTo(store, batch, &TestStore::Load, &status);
  EXPECT_TRUE(status.ok()) << status.message;
  return task;
}

bool IsDone(TestStore& store, TaskId task) {
  bool done = false;
  const Status status = store.Check(task, &done);
  EXPECT_TRUE(status.ok()) << status.message;
  return done;
}

Status DumpBlock(TestStore& store, const Geometry& geometry, const BlockId& block,
                 std::uint64_t nonce) {
  DumpBatch dump(geometry);
  dump.AddBlock(block, nonce);
  const Status status = Finish(store, dump);
  dump.Scramble();
  return status;
}

Status DumpShard(TestStore& store, const Geometry& geometry, const BlockId& block,
                 std::uint32_t index, std::uint64_t nonce) {
  DumpBatch dump(geometry);
  dump.Add(block, index, nonce);
  const Status status = Finish(store, dump);
  dump.Scramble();
  return status;
}

std::string BlockProblem(TestStore& store, const Geometry& geometry, const BlockId& block,
                         std::optional<std::uint64_t> nonce) {
  LoadBatch load(geometry);
  load.AddBlock(block);
  const Status status = Finish(store, load);
  if (!status.ok()) return "load: " + std::string(status.message);
  for (std::size_t i = 0; i < load.size(); ++i) {
    if (std::string why = load.Problem(i, nonce); !why.empty()) return why;
  }
  return {};
}

std::string AbsenceProblem(TestStore& store, const Geometry& geometry, const BlockId& block) {
  LoadBatch load(geometry);
  load.AddBlock(block);
  const Status status = Finish(store, load);
  if (status.code != Code::kNotFound) {
    return std::string("load of an absent block ended ") + CodeName(status.code) + ": " +
           status.message;
  }
  for (std::size_t i = 0; i < load.size(); ++i) {
    if (load.result(i).code != Code::kNotFound) {
      return "shard " + std::to_string(i) + " ended " + CodeName(load.result(i).code);
    }
    if (!load.Untouched(i)) return "shard " + std::to_string(i) + ": destination touched";
  }
  return {};
}

std::string Presence(TestStore& store, std::span<const BlockId> blocks, std::uint32_t flags) {
  std::vector<std::uint8_t> found(blocks.size() + 1, 0xEE);
  LookupDesc desc;
  desc.blocks = blocks.data();
  desc.count = static_cast<std::uint32_t>(blocks.size());
  desc.flags = flags;
  const Status status = store.Lookup(desc, found.data());
  EXPECT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(found.back(), 0xEE) << "Lookup wrote past its answers";
  std::string text;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_LE(found[i], kBelow) << "answer " << i << " is no answer";
    text += found[i] == kAbsent ? '0' : '1';
  }
  return text;
}

bool IsPresent(TestStore& store, const BlockId& block) {
  return Presence(store, std::span(&block, 1)) == "1";
}

}  // namespace ucmstore::test
