// SPDX-License-Identifier: Apache-2.0
//
// Assembler: a block is committed exactly once, when its last shard has landed, whatever the order,
// the tasks, the failures and the races; every position of every dump is ended exactly once.
#include "task/assembly.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "support/batch.h"
#include "support/random.h"

namespace ucmstore::test {
namespace {

const BlockId kA = MakeId(1, 1);
const std::atomic<bool> kCalm{false};  // nobody closes

// A medium that only keeps books.
class Books {
 public:
  class Writer final : public BlockWriter {
   public:
    Writer(Books& books, const BlockId& id) : books_(books), id_(id) { ++books_.alive; }
    ~Writer() override { --books_.alive; }
    void Write(std::span<ShardIo> shards, bool last) override {
      if (last) ++books_.lasts;
      if (books_.on_write) books_.on_write(id_);
      for (ShardIo& shard : shards) {
        if (books_.fails && books_.fails(shard.index())) {
          shard.Fail(Status::Error(Code::kIoError, "bad sector", 5));
          continue;
        }
        {
          const MutexLock lock(mutex_);
          EXPECT_TRUE(written_.insert(shard.index()).second) << "a shard was written twice";
        }
        shard.Succeed(static_cast<std::uint32_t>(shard.bytes()));
      }
    }
    Status Commit() override {
      if (books_.on_commit) {
        if (const Status status = books_.on_commit(); !status.ok()) return status;
      }
      const MutexLock lock(books_.mutex);
      EXPECT_EQ(written_.size(), books_.shards_per_block) << "committed while incomplete";
      books_.visible.insert(id_);
      ++books_.commits[id_];
      return Status::Ok();
    }

   private:
    Books& books_;
    const BlockId id_;
    Mutex mutex_;
    std::set<std::uint32_t> written_;
  };

  explicit Books(std::uint32_t shards) : shards_per_block(shards) {}
  AssemblyMedium medium() {
    return {.visible = [this](const BlockId& id) -> Result<bool> {
              const MutexLock lock(mutex);
              return visible.contains(id);
            },
            .create = [this](const BlockId& id) -> Result<std::unique_ptr<BlockWriter>> {
              return std::make_unique<Writer>(*this, id);
            }};
  }

  const std::uint32_t shards_per_block;
  std::function<void(const BlockId&)> on_write;
  std::function<bool(std::uint32_t)> fails;
  std::function<Status()> on_commit;
  std::atomic<int> alive{0};
  std::atomic<int> lasts{0};
  Mutex mutex;
  std::set<BlockId> visible;
  std::map<BlockId, int> commits;
};

// The ends of one dump.
struct Ends {
  std::vector<Status> status;
  std::vector<int> count;
  Code first_error = Code::kOk;  // in time
  [[nodiscard]] Code code() const { return first_error; }
};

Ends DumpNow(Assembler& assembler, const BlockId& id, const std::vector<std::uint32_t>& indexes) {
  static std::byte memory[16] = {};
  static const Segment segment{memory, sizeof(memory)};
  std::vector<ShardIo> shards;
  for (const std::uint32_t index : indexes) shards.emplace_back(index, std::span(&segment, 1));
  Ends ends{std::vector<Status>(indexes.size()), std::vector<int>(indexes.size()), Code::kOk};
  assembler.Dump(id, shards, [&ends](std::size_t i, const Status& status, std::uint32_t) {
    if (ends.first_error == Code::kOk) ends.first_error = status.code;
    ends.status[i] = status;
    ++ends.count[i];
  });
  return ends;
}

void ExpectOnceEach(const Ends& ends) {
  EXPECT_TRUE(std::ranges::all_of(ends.count, [](int n) { return n == 1; }));
}

AssemblyLimits Limits(std::uint32_t shards, std::uint32_t blocks = 16) {
  return {.shards_per_block = shards,
          .max_blocks = blocks,
          .max_followers = 4,
          .max_age = milliseconds(1000)};
}

TEST(Assembler, CommitsOnceWhenTheLastHasLanded) {
  const Clock clock;
  Books books(3);
  Assembler assembler(Limits(3), books.medium(), clock);
  EXPECT_EQ(DumpNow(assembler, kA, {2}).code(), Code::kOk);
  EXPECT_EQ(DumpNow(assembler, kA, {0}).code(), Code::kOk);
  EXPECT_EQ(assembler.Incomplete(), 1U);
  EXPECT_EQ(books.commits[kA], 0);
  EXPECT_EQ(DumpNow(assembler, kA, {1}).code(), Code::kOk);
  EXPECT_EQ(books.commits[kA], 1);
  EXPECT_EQ(books.lasts, 1);
  EXPECT_EQ(assembler.Incomplete(), 0U);
  EXPECT_EQ(books.alive, 0);
  const Ends again = DumpNow(assembler, kA, {0, 1, 2});
  ExpectOnceEach(again);
  EXPECT_EQ(again.code(), Code::kOk);
  EXPECT_EQ(books.commits[kA], 1) << "a visible block was written again";
}

TEST(Assembler, RepeatedShardsInOneDump) {
  const Clock clock;
  Books books(2);
  Assembler assembler(Limits(2), books.medium(), clock);
  const Ends ends = DumpNow(assembler, kA, {0, 0, 1, 0, 1});
  ExpectOnceEach(ends);
  EXPECT_EQ(ends.code(), Code::kOk);
  EXPECT_EQ(books.commits[kA], 1);
}

TEST(Assembler, AFailedShardAbortsItsBlockAndRemovesIt) {
  const Clock clock;
  Books books(3);
  Assembler assembler(Limits(3), books.medium(), clock);
  EXPECT_EQ(DumpNow(assembler, kA, {0}).code(), Code::kOk);
  books.fails = [](std::uint32_t index) { return index == 1; };
  const Ends failed = DumpNow(assembler, kA, {1});
  EXPECT_EQ(failed.code(), Code::kIoError);
  EXPECT_EQ(failed.status[0].sys_errno, 5);
  EXPECT_EQ(books.alive, 0) << "it must be removed before anybody hears of the failure";
  EXPECT_EQ(assembler.Aborted(), 1U);
  books.fails = nullptr;
  // Shard 2 was never heard of: it is late. Then all is forgotten.
  EXPECT_EQ(DumpNow(assembler, kA, {2}).code(), Code::kAborted);
  EXPECT_EQ(assembler.Tombstones(), 0U);
  EXPECT_EQ(DumpNow(assembler, kA, {0, 1, 2}).code(), Code::kOk);
  EXPECT_EQ(books.commits[kA], 1);
}

TEST(Assembler, AShardHeardOfBeginsAnew) {
  const Clock clock;
  Books books(3);
  Assembler assembler(Limits(3), books.medium(), clock);
  books.fails = [](std::uint32_t index) { return index == 1; };
  EXPECT_EQ(DumpNow(assembler, kA, {0, 1}).code(), Code::kIoError);
  books.fails = nullptr;
  EXPECT_EQ(DumpNow(assembler, kA, {0}).code(), Code::kOk) << "the caller began anew";
  EXPECT_EQ(DumpNow(assembler, kA, {2}).code(), Code::kOk);
  EXPECT_EQ(DumpNow(assembler, kA, {1}).code(), Code::kOk);
  EXPECT_EQ(books.commits[kA], 1);
}

TEST(Assembler, AFailedCommitFailsTheDumpAndIsForgotten) {
  const Clock clock;
  Books books(2);
  Assembler assembler(Limits(2), books.medium(), clock);
  books.on_commit = [] { return Status::Error(Code::kNoSpace, "full", 28); };
  EXPECT_EQ(DumpNow(assembler, kA, {0}).code(), Code::kOk);
  EXPECT_EQ(DumpNow(assembler, kA, {1}).code(), Code::kNoSpace);
  EXPECT_EQ(books.alive, 0);
  EXPECT_EQ(assembler.Incomplete(), 0U);
  books.on_commit = nullptr;
  EXPECT_EQ(DumpNow(assembler, kA, {0, 1}).code(), Code::kOk);
  EXPECT_EQ(books.commits[kA], 1);
}

TEST(Assembler, S10_NumbersAreBounded) {
  const Clock clock;
  Books books(4);
  Assembler assembler(Limits(4, 8), books.medium(), clock);
  for (std::uint64_t b = 0; b < 10'000; ++b) {
    const Ends ends = DumpNow(assembler, MakeId(2, b), {0, 1, 2});
    ExpectOnceEach(ends);
    ASSERT_EQ(ends.code(), Code::kOk);
    ASSERT_LE(assembler.Incomplete(), 8U);
    ASSERT_LE(assembler.Tombstones(), 8U);
    ASSERT_LE(books.alive, 8);
  }
  EXPECT_EQ(assembler.Aborted(), 10'000U - 8U);
  EXPECT_EQ(DumpNow(assembler, MakeId(2, 9999), {3}).code(), Code::kOk) << "the youngest is alive";
  EXPECT_EQ(DumpNow(assembler, MakeId(2, 9990), {3}).code(), Code::kAborted);
}

TEST(Assembler, S10_AgeIsBounded) {
  ManualClock clock;
  Books books(2);
  Assembler assembler(Limits(2), books.medium(), clock);
  EXPECT_EQ(DumpNow(assembler, MakeId(3, 0), {0}).code(), Code::kOk);
  clock.Advance(milliseconds(600));
  EXPECT_EQ(DumpNow(assembler, MakeId(3, 1), {0}).code(), Code::kOk);
  clock.Advance(milliseconds(401));
  EXPECT_TRUE(assembler.Expire(kCalm));
  EXPECT_EQ(assembler.Incomplete(), 1U);
  EXPECT_EQ(assembler.Tombstones(), 1U);
  EXPECT_EQ(DumpNow(assembler, MakeId(3, 0), {1}).code(), Code::kAborted);
  EXPECT_EQ(DumpNow(assembler, MakeId(3, 1), {1}).code(), Code::kOk);
  EXPECT_EQ(books.commits[MakeId(3, 1)], 1);
  EXPECT_EQ(DumpNow(assembler, MakeId(3, 2), {0}).code(), Code::kOk);
  clock.Advance(milliseconds(1001));
  EXPECT_TRUE(assembler.Expire(kCalm));
  EXPECT_EQ(assembler.Incomplete(), 0U);
  clock.Advance(milliseconds(1001));
  EXPECT_FALSE(assembler.Expire(kCalm)) << "tombstones age too";
  EXPECT_EQ(assembler.Tombstones(), 0U);
  EXPECT_EQ(books.alive, 0);
}

TEST(Assembler, ClearForgetsEverything) {
  const Clock clock;
  Books books(2);
  Assembler assembler(Limits(2, 2), books.medium(), clock);
  for (std::uint64_t b = 0; b < 5; ++b) (void)DumpNow(assembler, MakeId(4, b), {0});
  (void)assembler.Clear();
  EXPECT_EQ(assembler.Incomplete(), 0U);
  EXPECT_EQ(assembler.Tombstones(), 0U);
  EXPECT_EQ(books.alive, 0);
}

// Threads that dump the same few blocks, shard by shard and in batches, with failures and aborts by
// number and age: every position is ended exactly once, nothing hangs, nothing is left.
TEST(Assembler, EveryPositionEndsOnceWhateverRaces) {
  Random random;
  constexpr std::uint32_t kShards = 5;
  ManualClock clock;
  Books books(kShards);
  std::atomic<std::uint64_t> writes{0};
  books.fails = [&](std::uint32_t) { return writes.fetch_add(1) % 97 == 96; };
  books.on_commit = [&] {
    return writes.load() % 13 == 12 ? Status::Error(Code::kIoError, "no commit") : Status::Ok();
  };
  books.on_write = [&](const BlockId&) { std::this_thread::yield(); };
  Assembler assembler(Limits(kShards, 6), books.medium(), clock);
  constexpr std::size_t kDumps = 1500;
  std::atomic<std::uint64_t> begun{0};
  std::atomic<std::uint64_t> ended{0};
  std::atomic<std::uint64_t> twice{0};
  static std::byte memory[16] = {};
  static const Segment segment{memory, sizeof(memory)};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, mine = random.Fork()]() mutable {
        for (std::size_t n = 0; n < kDumps; ++n) {
          const BlockId id = MakeId(5, mine.Between(0, 11));
          std::vector<ShardIo> shards;
          const std::uint64_t count = mine.Between(1, kShards + 1);
          for (std::uint64_t k = 0; k < count; ++k) {
            shards.emplace_back(static_cast<std::uint32_t>(mine.Between(0, kShards - 1)),
                                std::span(&segment, 1));
          }
          begun += count;
          const auto counts = std::make_shared<std::vector<std::atomic<int>>>(count);
          assembler.Dump(id, shards, [&, counts](std::size_t i, const Status&, std::uint32_t) {
            ++ended;
            if (++(*counts)[i] > 1) ++twice;
          });
          if (mine.OneIn(50)) {  // evicted, so that it is written anew
            const MutexLock lock(books.mutex);
            books.visible.erase(id);
          }
          if (mine.OneIn(40)) {
            clock.Advance(milliseconds(500));
            (void)assembler.Expire(kCalm);
          }
        }
      });
    }
  }
  EXPECT_EQ(ended, begun) << "somebody waits for ever";
  EXPECT_EQ(twice, 0U);
  EXPECT_LE(assembler.Incomplete(), 6U + 4U);
  (void)assembler.Clear();
  EXPECT_EQ(books.alive, 0);
}

}  // namespace
}  // namespace ucmstore::test
