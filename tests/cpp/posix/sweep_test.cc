// SPDX-License-Identifier: Apache-2.0
//
// Sweeps: every call to the file system of an open, a dump and a load fails once, in every way, and
// the process dies at every call of a dump. Whatever happens: an error in words or success, never a
// wrong byte, nothing left behind, and all is well afterwards.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "base/result.h"
#include "io/hooked_fs.h"
#include "posix/children.h"
#include "posix/posix_store.h"
#include "store/posix/names.h"
#include "support/temp_dir.h"

namespace ucmstore::test {
namespace {

namespace stdfs = std::filesystem;
constexpr Geometry kGeometry{.shard_size = 5000, .shards_per_block = 3};
constexpr int kErrors[] = {-EIO, -ENOSPC, -EMFILE, -EINTR, -EINVAL, HookedFs::kShort};
constexpr std::uint64_t kMostCalls = 200;  // far more than any of these operations makes

class Sweep : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { stdfs::create_directory(root_); }
  void TearDown() override { stdfs::remove_all(root_); }

  PosixConfig Config(FileSystem* fs) {
    PosixConfig config;
    config.roots = {(root_ / "root").string()};
    config.geometry = kGeometry;
    config.fs = fs;
    config.workers = 1;
    return config;
  }
  void Fresh() { stdfs::remove_all(root_ / "root"); }
  [[nodiscard]] std::vector<std::string> Leftovers() const {
    std::vector<std::string> left = FilesBelow(root_, ".activated");
    for (const char* ending : {".tmp", ".moved"}) {
      for (std::string& file : FilesBelow(root_, ending)) left.push_back(std::move(file));
    }
    return left;
  }
  // A failure must say where, and what the kernel said.
  void ExpectWords(const Status& status, int error) {
    EXPECT_NE(status.text().find(root_.filename().string()), std::string_view::npos)
        << status.message;
    if (error >= 0) return;
    EXPECT_NE(status.text().find("errno"), std::string_view::npos) << status.message;
  }

  const stdfs::path root_ =
      stdfs::path(GetParam()) / ("ucmstore-sweep-" + std::to_string(::getpid()));
  HookedFs fs_;
};

// Answers `error` to the nth call, or, if `for_good`, to it and all that follow.
HookedFs::Hook FailAt(std::uint64_t nth, int error, bool for_good, std::atomic<bool>* reached) {
  return [=](const Call& call) {
    if (call.nth < nth || (!for_good && call.nth > nth)) return HookedFs::kGoOn;
    reached->store(true);
    return error;
  };
}

TEST_P(Sweep, AnOpenThatFailsSaysWhyAndCanBeRepeated) {
  for (const int error : kErrors) {
    for (std::uint64_t nth = 0; nth < kMostCalls; ++nth) {
      Fresh();
      std::atomic<bool> reached{false};
      fs_.Set(FailAt(nth, error, /*for_good=*/false, &reached));
      Status status;
      auto store = PosixStore::Try(Config(&fs_), &status);
      fs_.Clear();
      if (!reached) break;
      SCOPED_TRACE("call " + std::to_string(nth) + ", error " + std::to_string(error));
      if (!status.ok()) ExpectWords(status, error);
      store.reset();
      store = PosixStore::Try(Config(&fs_), &status);
      ASSERT_TRUE(status.ok()) << status.message;
      ASSERT_TRUE(DumpBlock(*store, kGeometry, MakeId(1, nth), 1).ok());
      ASSERT_EQ(BlockProblem(*store, kGeometry, MakeId(1, nth), 1), "");
      store.reset();
      EXPECT_EQ(Leftovers(), std::vector<std::string>{});
    }
  }
}

TEST_P(Sweep, ADumpThatFailsLeavesNothingAndCanBeRepeated) {
  for (const char* durability : {"none", "data"}) {
    for (const int error : kErrors) {
      for (std::uint64_t nth = 0; nth < kMostCalls; ++nth) {
        Fresh();
        PosixConfig config = Config(&fs_);
        config.options["durability"] = std::string(durability);
        auto store = PosixStore::Open(config);
        const BlockId id = MakeId(1, nth);
        std::atomic<bool> reached{false};
        fs_.Set(FailAt(nth, error, /*for_good=*/false, &reached));
        const Status status = DumpBlock(*store, kGeometry, id, 1);
        fs_.Clear();
        if (!reached) break;
        SCOPED_TRACE("call " + std::to_string(nth) + ", error " + std::to_string(error));
        if (status.ok()) {
          EXPECT_EQ(BlockProblem(*store, kGeometry, id, 1), "");
        } else {
          ExpectWords(status, error);
          // After the commit only a sync can fail: then it is there, but perhaps not for good.
          EXPECT_TRUE(!IsPresent(*store, id) || std::string_view(durability) == "data");
        }
        EXPECT_EQ(Leftovers(), std::vector<std::string>{});
        ASSERT_TRUE(DumpBlock(*store, kGeometry, id, 1).ok());
        EXPECT_EQ(BlockProblem(*store, kGeometry, id, 1), "");
      }
    }
  }
}

// A disk that dies and comes back.
TEST_P(Sweep, ADiskThatDiesInADumpIsReapedAfterwards) {
  for (std::uint64_t nth = 0; nth < kMostCalls; ++nth) {
    Fresh();
    auto store = PosixStore::Open(Config(&fs_));
    const BlockId id = MakeId(1, nth);
    std::atomic<bool> reached{false};
    fs_.Set(FailAt(nth, -EIO, /*for_good=*/true, &reached));
    const Status status = DumpBlock(*store, kGeometry, id, 1);
    if (!reached) break;
    SCOPED_TRACE("call " + std::to_string(nth));
    store.reset();  // still dead
    fs_.Clear();
    store = PosixStore::Open(Config(&fs_));
    if (status.ok()) {
      EXPECT_EQ(BlockProblem(*store, kGeometry, id, 1), "");
    } else {
      EXPECT_EQ(AbsenceProblem(*store, kGeometry, id), "");
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!Leftovers().empty() && std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
    }
    EXPECT_EQ(Leftovers(), std::vector<std::string>{});
  }
}

TEST_P(Sweep, ALoadThatFailsHarmsNothing) {
  auto store = PosixStore::Open(Config(&fs_));
  const BlockId whole = MakeId(1, 1);
  const BlockId brief = MakeId(1, 2);
  ASSERT_TRUE(DumpBlock(*store, kGeometry, whole, 1).ok());
  DumpBatch dump(kGeometry);
  for (std::uint32_t i = 0; i < 3; ++i) dump.Add(brief, i, 2, 1000 + i);
  ASSERT_TRUE(Finish(*store, dump).ok());
  for (const BlockId& id : {whole, brief}) {
    for (const int error : kErrors) {
      for (std::uint64_t nth = 0; nth < kMostCalls; ++nth) {
        store = PosixStore::Open(Config(&fs_));  // with no footer in memory
        std::atomic<bool> reached{false};
        fs_.Set(FailAt(nth, error, /*for_good=*/false, &reached));
        LoadBatch load(kGeometry);
        load.AddBlock(id);
        const Status status = Finish(*store, load);
        fs_.Clear();
        if (!reached) break;
        SCOPED_TRACE("call " + std::to_string(nth) + ", error " + std::to_string(error));
        const auto length = [&](std::size_t i) { return id == whole ? 5000 : 1000 + i; };
        for (std::size_t i = 0; i < load.size(); ++i) {
          if (load.result(i).code == Code::kOk) {
            EXPECT_EQ(load.Problem(i, std::nullopt, length(i)), "");
          } else {
            EXPECT_FALSE(status.ok());
            EXPECT_TRUE(load.GuardsIntact(i));
          }
        }
        if (!status.ok()) ExpectWords(status, error);
        EXPECT_EQ(store->Stat("set_aside_blocks"), 0);
        LoadBatch again(kGeometry);
        again.AddBlock(id);
        ASSERT_TRUE(Finish(*store, again).ok());
        for (std::size_t i = 0; i < again.size(); ++i) {
          EXPECT_EQ(again.Problem(i, std::nullopt, length(i)), "");
        }
      }
    }
  }
}

// Every flipped bit on the way in, one at a time, is caught and read again.
TEST_P(Sweep, AFlippedBitInAnyReadIsCaught) {
  auto store = PosixStore::Open(Config(&fs_));
  const BlockId id = MakeId(1, 1);
  ASSERT_TRUE(DumpBlock(*store, kGeometry, id, 1).ok());
  for (std::size_t at = 0; at < 3 * 8192 + 4096; at += 97) {
    std::atomic<bool> once{true};
    fs_.SetAfterRead([&](const iovec* pieces, int count, std::uint64_t offset) {
      if (at < offset || !once.exchange(false)) return;
      std::size_t place = at - offset;
      for (int i = 0; i < count; ++i) {
        if (place < pieces[i].iov_len) static_cast<char*>(pieces[i].iov_base)[place] ^= 16;
        if (place < pieces[i].iov_len) return;
        place -= pieces[i].iov_len;
      }
    });
    ASSERT_EQ(BlockProblem(*store, kGeometry, id, 1), "") << "byte " << at;
  }
  EXPECT_EQ(store->Stat("set_aside_blocks"), 0);
}

// Death at every call, from the opening of a fresh root to the close.
TEST_P(Sweep, G_DeathAtAnyCallLeavesTheBlockAbsentOrWhole) {
  bool ended = false;
  for (std::uint64_t nth = 0; nth < kMostCalls && !ended; ++nth) {
    Fresh();
    SCOPED_TRACE("call " + std::to_string(nth));
    const BlockId id = MakeId(1, nth);
    Children children;
    children.Start([&]() -> std::string {
      HookedFs fs;
      fs.Set([nth](const Call& call) {
        if (call.nth == nth) ::_exit(42);
        return HookedFs::kGoOn;
      });
      auto store = PosixStore::Open(Config(&fs));
      // In two halves, so that a file is left between two calls as well.
      DumpBatch half(kGeometry);
      half.Add(id, 0, 1).Add(id, 1, 1);
      if (const Status status = Finish(*store, half); !status.ok()) return status.message;
      const Status status = DumpShard(*store, kGeometry, id, 2, 1);
      store.reset();
      return status.message;
    });
    const std::vector<int> codes = children.Finish();
    ASSERT_TRUE(codes[0] == 0 || codes[0] == 42) << codes[0];
    ended = codes[0] == 0;
    auto store = PosixStore::Open(Config(&fs_));
    if (IsPresent(*store, id)) {
      EXPECT_EQ(BlockProblem(*store, kGeometry, id, 1), "");
    } else {
      EXPECT_FALSE(ended);
      EXPECT_EQ(AbsenceProblem(*store, kGeometry, id), "");
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while ((!Leftovers().empty() ||
            !FilesBelow(root_ / "root" / PosixConfig().label / "writers").empty()) &&
           std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
    }
    EXPECT_EQ(Leftovers(), std::vector<std::string>{});
    ASSERT_TRUE(DumpBlock(*store, kGeometry, id, 2).ok());
    EXPECT_EQ(BlockProblem(*store, kGeometry, id), "");
  }
  EXPECT_TRUE(ended) << "more calls than expected";
}

INSTANTIATE_TEST_SUITE_P(Places, Sweep, ::testing::Values("/tmp", "/dev/shm"),
                         [](const auto& place) {
                           return place.param == "/tmp" ? "Disk" : "Memory";
                         });

}  // namespace
}  // namespace ucmstore::test
