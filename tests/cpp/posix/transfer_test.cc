// SPDX-License-Identifier: Apache-2.0
//
// Bytes on their way: every mix of geometry, length, alignment and segments gives back what was
// dumped, directly, bounced or buffered, and the figures tell which it was.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/aligned_buffer.h"
#include "io/hooked_fs.h"
#include "posix/posix_store.h"
#include "store/posix/footer_cache.h"
#include "store/posix/names.h"
#include "support/random.h"
#include "support/temp_dir.h"

namespace ucmstore::test {
namespace {

namespace stdfs = std::filesystem;

class PosixTransfer : public ::testing::Test {
 protected:
  PosixConfig Config(const Geometry& geometry, const char* io = "auto") {
    PosixConfig config;
    config.roots = {dir_.string()};
    config.geometry = geometry;
    config.fs = &fs_;
    config.options["io"] = std::string(io);
    config.label = "g" + std::to_string(geometry.shard_size) + "x" +
                   std::to_string(geometry.shards_per_block) + io;
    return config;
  }

  TempDir dir_;
  HookedFs fs_;
};

TEST_F(PosixTransfer, EveryMixOfLengthsAndSegmentsComesBack) {
  Random random;
  const Geometry geometries[] = {{1, 1},         {100, 3},          {4096, 2},    {8192, 5},
                                 {12800, 4},     {4096 * 3 + 1, 7}, {70'000, 30}, {512, 128},
                                 {2'500'000, 2}, {1 << 20, 3},      {4096, 300}};
  for (const Geometry& geometry : geometries) {
    for (const char* io : {"auto", "buffered"}) {
      auto store = PosixStore::Open(Config(geometry, io));
      for (std::uint64_t block = 0; block < 6; ++block) {
        const BlockId id = MakeId(geometry.shard_size, block);
        const std::uint64_t nonce = NextNonce();
        DumpBatch dump(geometry);
        std::vector<std::uint64_t> lengths;
        for (std::uint32_t i = 0; i < geometry.shards_per_block; ++i) {
          const bool full = block % 3 == 0 || random.OneIn(3);
          lengths.push_back(full ? geometry.shard_size : random.Between(1, geometry.shard_size));
          dump.Add(id, i, nonce, lengths.back(), CutAtRandom(lengths.back(), 5, random));
        }
        const Status dumped = Finish(*store, dump);
        ASSERT_TRUE(dumped.ok()) << dumped.message;
        LoadBatch load(geometry);
        for (std::uint32_t i = 0; i < geometry.shards_per_block; ++i) {
          load.Add(id, i, CutAtRandom(geometry.shard_size, 4, random));
        }
        const Status loaded = Finish(*store, load);
        ASSERT_TRUE(loaded.ok()) << loaded.message;
        for (std::size_t i = 0; i < load.size(); ++i) {
          ASSERT_EQ(load.Problem(i, nonce, lengths[i]), "")
              << geometry.shard_size << " x " << geometry.shards_per_block << ", " << io;
        }
      }
    }
  }
}

// Aligned memory of a whole block, filled and judged here.
class AlignedBlock {
 public:
  AlignedBlock(const Geometry& geometry, const BlockId& id)
      : geometry_(geometry),
        id_(id),
        stride_(WholePages(geometry.shard_size)),
        memory_(buffer_.Reserve(stride_ * geometry.shards_per_block)) {}

  void Fill(std::uint64_t nonce) {
    for (std::uint32_t i = 0; i < geometry_.shards_per_block; ++i)
      test::Fill(Shard(i), id_, i, nonce);
  }
  void Wipe() { std::memset(memory_.data(), 0xEE, memory_.size()); }
  [[nodiscard]] std::string Problem(std::uint64_t nonce) const {
    for (std::uint32_t i = 0; i < geometry_.shards_per_block; ++i) {
      const Verdict verdict = Inspect(Shard(i), id_, i, nonce);
      if (!verdict.good()) return verdict.why;
      for (std::uint64_t at = geometry_.shard_size; at < stride_; ++at) {
        if (memory_[i * stride_ + at] != std::byte{0xEE}) return "bytes beyond the shard changed";
      }
    }
    return "";
  }
  Status Run(PosixStore& store, bool dump) {
    std::vector<Segment> segments(geometry_.shards_per_block);
    std::vector<ucmstore::Shard> shards(geometry_.shards_per_block);
    for (std::uint32_t i = 0; i < geometry_.shards_per_block; ++i) {
      segments[i] = {.data = Shard(i).data(), .size = geometry_.shard_size};
      shards[i] = {.block = id_, .segments = &segments[i], .segment_count = 1, .index = i};
    }
    TaskDesc desc;
    desc.shards = shards.data();
    desc.shard_count = geometry_.shards_per_block;
    TaskId task = 0;
    Status status = dump ? store.Dump(desc, &task) : store.Load(desc, &task);
    return status.ok() ? store.Wait(task, kPatienceMs) : status;
  }

 private:
  [[nodiscard]] std::span<std::byte> Shard(std::uint32_t i) const {
    return memory_.subspan(i * stride_, geometry_.shard_size);
  }
  const Geometry geometry_;
  const BlockId id_;
  const std::uint64_t stride_;
  AlignedBuffer buffer_;
  const std::span<std::byte> memory_;
};

// The number of pages of a file that lie in the page cache.
std::size_t CachedPages(const stdfs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const std::size_t size = stdfs::file_size(path);
  void* map = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  std::vector<unsigned char> pages((size + 4095) / 4096);
  EXPECT_EQ(::mincore(map, size, pages.data()), 0);
  ::munmap(map, size);
  ::close(fd);
  std::size_t cached = 0;
  for (const unsigned char page : pages) cached += page & 1U;
  return cached;
}

bool IsDirectHere(PosixStore& store) {
  return !store.log().Has(LogLevel::kWarning, "no direct I/O");
}

TEST_F(PosixTransfer, I06_AlignedBlocksGoPastThePageCacheInOneCall) {
  const Geometry geometry{.shard_size = 20480, .shards_per_block = 3};  // no multiple of 16 KiB
  auto store = PosixStore::Open(Config(geometry));
  if (!IsDirectHere(*store)) GTEST_SKIP() << "no direct I/O in " << dir_.string();
  const BlockId id = MakeId(1, 1);
  AlignedBlock block(geometry, id);
  block.Fill(7);
  std::atomic<int> transfers{0};
  std::atomic<int> opens{0};
  std::atomic<int> direct_opens{0};
  ASSERT_TRUE(DumpShard(*store, geometry, MakeId(1, 2), 0, 1).ok());  // makes the writer's mark
  fs_.Set([&](const Call& call) {
    transfers += call.op == Op::kRead || call.op == Op::kWrite ? 1 : 0;
    if (call.op == Op::kOpen && (call.flags & O_DIRECTORY) == 0) {
      ++opens;
      direct_opens += (call.flags & O_DIRECT) != 0 ? 1 : 0;
    }
    return HookedFs::kGoOn;
  });
  const double before = store->Stat("direct_bytes");
  ASSERT_TRUE(block.Run(*store, /*dump=*/true).ok());
  EXPECT_EQ(transfers.load(), 1) << "shards and footer in one pwritev";
  block.Wipe();
  ASSERT_TRUE(block.Run(*store, /*dump=*/false).ok());
  EXPECT_EQ(transfers.load(), 2) << "and in one preadv";
  EXPECT_EQ(direct_opens.load(), opens.load());
  EXPECT_EQ(block.Problem(7), "");
  EXPECT_EQ(store->Stat("direct_bytes") - before, 2.0 * 3 * 4096 * 5);
  EXPECT_EQ(store->Stat("direct_fallbacks"), 0);
  const stdfs::path path = dir_.path() / Config(geometry).label / BlockName(id, 3).c_str();
  EXPECT_EQ(CachedPages(path), 0U);
}

TEST_F(PosixTransfer, I07_ShardsThatAreNoWholePagesGoDirectlyToo) {
  const Geometry geometry{.shard_size = 4096 * 3 + 512, .shards_per_block = 4};
  auto store = PosixStore::Open(Config(geometry));
  if (!IsDirectHere(*store)) GTEST_SKIP() << "no direct I/O in " << dir_.string();
  const BlockId id = MakeId(1, 1);
  AlignedBlock block(geometry, id);
  block.Fill(7);
  ASSERT_TRUE(block.Run(*store, /*dump=*/true).ok());
  block.Wipe();
  ASSERT_TRUE(block.Run(*store, /*dump=*/false).ok());
  EXPECT_EQ(block.Problem(7), "");
  EXPECT_EQ(store->Stat("buffered_bytes"), 0);
  EXPECT_GT(store->Stat("direct_bytes"), 2.0 * 4 * 4096 * 2);
  const stdfs::path path = dir_.path() / Config(geometry).label / BlockName(id, 3).c_str();
  EXPECT_EQ(stdfs::file_size(path), 4 * 16384U + 4096);
}

TEST_F(PosixTransfer, MisalignedMemoryIsBouncedAndCounted) {
  const Geometry geometry{.shard_size = 300'000, .shards_per_block = 2};
  auto store = PosixStore::Open(Config(geometry));
  if (!IsDirectHere(*store)) GTEST_SKIP() << "no direct I/O in " << dir_.string();
  const BlockId id = MakeId(1, 1);
  std::vector<std::byte> memory(600'003);
  std::span<std::byte> one(memory.data() + 1, 300'000);
  Fill(one, id, 0, 9);
  Segment segment{.data = one.data(), .size = one.size()};
  Shard shard{.block = id, .segments = &segment, .segment_count = 1, .index = 0};
  TaskDesc desc;
  desc.shards = &shard;
  desc.shard_count = 1;
  TaskId task = 0;
  ASSERT_TRUE(store->Dump(desc, &task).ok());
  ASSERT_TRUE(store->Wait(task, kPatienceMs).ok());
  EXPECT_EQ(store->Stat("bounced_bytes"), 300'000);
  EXPECT_EQ(store->Stat("direct_bytes"), 0);
}

// Direct I/O that worked at open and is refused later: the data is exact and the figure says so.
TEST_F(PosixTransfer, I_ARefusalAtRunTimeIsReplacedAndCounted) {
  const Geometry geometry{.shard_size = 8192, .shards_per_block = 2};
  auto store = PosixStore::Open(Config(geometry));
  if (!IsDirectHere(*store)) GTEST_SKIP() << "no direct I/O in " << dir_.string();
  std::atomic<bool> refuse{true};
  fs_.Set([&refuse](const Call& call) {
    const bool transfer = call.op == Op::kRead || call.op == Op::kWrite;
    return transfer && refuse.exchange(false) ? -EINVAL : HookedFs::kGoOn;
  });
  ASSERT_TRUE(DumpShard(*store, geometry, MakeId(1, 9), 0, 1).ok());  // the mark takes one refusal
  refuse = true;
  ASSERT_TRUE(DumpBlock(*store, geometry, MakeId(1, 1), 1).ok());
  refuse = true;
  EXPECT_EQ(BlockProblem(*store, geometry, MakeId(1, 1), 1), "");
  EXPECT_GE(store->Stat("direct_fallbacks"), 2);
  EXPECT_GT(store->Stat("buffered_bytes"), 0);
  EXPECT_TRUE(store->log().Has(LogLevel::kWarning, "direct I/O was refused"));
  // Refused at every opening, from now on.
  fs_.Set([](const Call& call) {
    return call.op == Op::kOpen && (call.flags & O_DIRECT) != 0 ? -EINVAL : HookedFs::kGoOn;
  });
  const double direct = store->Stat("direct_bytes") + store->Stat("bounced_bytes");
  ASSERT_TRUE(DumpBlock(*store, geometry, MakeId(1, 2), 2).ok());
  EXPECT_EQ(BlockProblem(*store, geometry, MakeId(1, 2), 2), "");
  EXPECT_EQ(store->Stat("direct_bytes") + store->Stat("bounced_bytes"), direct);
}

// A short shard costs the disk only the pages it fills; the rest of its place is a hole.
TEST_F(PosixTransfer, ShortShardsLeaveHoles) {
  const Geometry geometry{.shard_size = 65536, .shards_per_block = 8};
  auto store = PosixStore::Open(Config(geometry));
  DumpBatch dump(geometry);
  for (std::uint32_t i = 0; i < 8; ++i) dump.Add(MakeId(1, 1), i, 3, 5000);
  ASSERT_TRUE(Finish(*store, dump).ok());
  FileStat stat;
  const stdfs::path path =
      dir_.path() / Config(geometry).label / BlockName(MakeId(1, 1), 3).c_str();
  ASSERT_EQ(fs_.StatAt(AT_FDCWD, path.c_str(), &stat), 0);
  EXPECT_EQ(stat.size, 8 * 65536U + 4096 + 4096);
  EXPECT_LE(stat.disk_bytes, 8 * 8192U + 4096 + 4096);
  LoadBatch load(geometry);
  load.AddBlock(MakeId(1, 1));
  ASSERT_TRUE(Finish(*store, load).ok());
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(load.Problem(i, 3, 5000), "");
}

// Layer-wise loads read the footer once; a re-dumped file is never judged by an old one.
TEST_F(PosixTransfer, TheFooterCacheServesLayersAndNeverLies) {
  const Geometry geometry{.shard_size = 4096, .shards_per_block = 16};
  auto store = PosixStore::Open(Config(geometry));
  const BlockId id = MakeId(1, 1);
  const stdfs::path path = dir_.path() / Config(geometry).label / BlockName(id, 3).c_str();
  for (std::uint64_t nonce = 1; nonce <= 20; ++nonce) {
    ASSERT_TRUE(DumpBlock(*store, geometry, id, nonce).ok());
    for (std::uint32_t i = 0; i < 16; ++i) {
      LoadBatch load(geometry);
      load.Add(id, i);
      ASSERT_TRUE(Finish(*store, load).ok());
      ASSERT_EQ(load.Problem(0, nonce), "");
    }
    stdfs::remove(path);  // the inode is free for the next
  }
  EXPECT_GE(store->Stat("footer_cache_hits"), 20 * 15);
  EXPECT_EQ(store->Stat("set_aside_blocks"), 0);
}

TEST(FooterCacheTest, IsBoundedInEntriesAndBytes) {
  FooterCache cache(10);
  const auto footer = [](std::uint32_t shards) {
    Footer made;
    made.layout = {1, shards};
    made.shards.resize(shards);
    return std::make_shared<const Footer>(std::move(made));
  };
  const auto stat = [](std::uint64_t inode) {
    FileStat made;
    made.inode = inode;
    return made;
  };
  for (std::uint64_t i = 0; i < 100; ++i) {
    cache.Insert(stat(i), footer(4));
    EXPECT_NE(cache.Find(stat(i >= 3 ? i - 3 : i)), nullptr);
  }
  EXPECT_EQ(cache.size(), 10U);
  EXPECT_EQ(cache.Find(stat(3)), nullptr);
  FooterCache large(1'000'000);
  for (std::uint64_t i = 0; i < 100; ++i) large.Insert(stat(i), footer(65536));
  EXPECT_LE(large.size() * 65536 * sizeof(StoredShard), FooterCache::kMaxBytes);
  FooterCache off(0);
  off.Insert(stat(1), footer(1));
  EXPECT_EQ(off.size(), 0U);
}

// Many blocks at once, present and absent: found by the caller and its helpers alike.
TEST_F(PosixTransfer, LargeLookupsAgreeWithSmallOnes) {
  const Geometry geometry{.shard_size = 64, .shards_per_block = 1};
  auto store = PosixStore::Open(Config(geometry, "buffered"));
  Random random;
  std::vector<BlockId> ids;
  std::string expected;
  DumpBatch dump(geometry);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    ids.push_back(MakeId(1, i));
    expected += random.OneIn(2) ? '1' : '0';
    if (expected.back() == '1') dump.AddBlock(ids.back(), 1);
  }
  ASSERT_TRUE(Finish(*store, dump).ok());
  for (int round = 0; round < 20; ++round) EXPECT_EQ(Presence(*store, ids), expected);
  for (int round = 0; round < 200; ++round) {
    // A prefix of hits, then a miss: answers behind it stay 0.
    const std::size_t hits = random.Between(0, 300);
    std::vector<BlockId> prefix;
    for (std::size_t i = 0; prefix.size() < hits; i = (i + 1) % ids.size()) {
      if (expected[i] == '1') prefix.push_back(ids[i]);
    }
    prefix.push_back(MakeId(2, 1));
    for (std::size_t i = 0; i < 200; ++i) prefix.push_back(ids[i]);
    const std::string found = Presence(*store, prefix, kStopAtMiss);
    ASSERT_EQ(found, std::string(hits, '1') + std::string(prefix.size() - hits, '0'));
  }
}

TEST_F(PosixTransfer, ALookupThatLearnsNothingIsAnErrorAndOneThatLearnsSomethingIsNot) {
  const Geometry geometry{.shard_size = 64, .shards_per_block = 1};
  auto store = PosixStore::Open(Config(geometry));
  std::vector<BlockId> ids(200);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = MakeId(1, i);
  std::vector<std::uint8_t> found(ids.size());
  LookupDesc desc;
  desc.blocks = ids.data();
  desc.count = static_cast<std::uint32_t>(ids.size());
  fs_.Set([](const Call& call) { return call.op == Op::kStatAt ? -EIO : HookedFs::kGoOn; });
  const Status status = store->Lookup(desc, found.data());
  EXPECT_EQ(status.code, Code::kIoError) << status.message;
  std::atomic<int> calls{0};
  fs_.Set([&calls](const Call& call) {
    return call.op == Op::kStatAt && calls++ % 2 == 0 ? -EIO : HookedFs::kGoOn;
  });
  EXPECT_TRUE(store->Lookup(desc, found.data()).ok());
  EXPECT_TRUE(store->log().Has(LogLevel::kWarning, "could not be looked up"));
}

}  // namespace
}  // namespace ucmstore::test
