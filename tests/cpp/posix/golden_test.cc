// SPDX-License-Identifier: Apache-2.0
//
// Golden files: a root that format 1 wrote once (tests/data/make_posix_golden.py, from
// docs/format.md alone). Every later version must read it, and format 1 must still write it bit by
// bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/hex.h"
#include "block_id/namespace.h"
#include "posix/posix_store.h"
#include "store/posix/admin.h"
#include "store/posix/names.h"
#include "store/posix/root_file.h"
#include "support/temp_dir.h"

namespace ucmstore::test {
namespace {

namespace stdfs = std::filesystem;

constexpr Geometry kGeometry{.shard_size = 5000, .shards_per_block = 3};

struct GoldenBlock {
  const char* id;
  std::array<std::uint32_t, 3> lengths;
};
constexpr GoldenBlock kBlocks[] = {{"00112233445566778899aabbccddeeff", {5000, 5000, 5000}},
                                   {"ffeeddccbbaa99887766554433221100", {1, 4097, 5000}}};

std::string ReadFile(const stdfs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The rule of make_posix_golden.py.
std::vector<std::byte> ShardBytes(const BlockId& id, std::size_t index, std::size_t length) {
  std::vector<std::byte> bytes(length);
  const auto first = std::to_integer<std::size_t>(id.bytes[0]);
  for (std::size_t j = 0; j < length; ++j) {
    bytes[j] = static_cast<std::byte>(first + 31 * index + 7 * j + j / 256);
  }
  return bytes;
}

class Golden : public ::testing::Test {
 protected:
  Golden() {
    const auto made = Namespace::FromFields({{"model", "golden"}, {"dtype", "bfloat16"}});
    config_.roots = {dir_.string()};
    config_.geometry = kGeometry;
    config_.namespace_text = made->text();
    config_.label = made->label();
    config_.own_fingerprint.assign(made->fingerprint().begin(), made->fingerprint().end());
  }
  [[nodiscard]] stdfs::path Committed() const {
    return stdfs::path(UCMSTORE_TEST_DATA_DIR) / "posix_v1" / config_.label;
  }
  [[nodiscard]] stdfs::path Folder() const { return dir_.path() / config_.label; }

  // Moves one block's three shards, with the lengths given.
  static Status Move(PosixStore& store, const BlockId& id, bool dump,
                     std::array<std::vector<std::byte>, 3>& memory, ShardResult* results) {
    std::array<Segment, 3> segments;
    std::array<Shard, 3> shards;
    for (std::uint32_t i = 0; i < 3; ++i) {
      segments[i] = {.data = memory[i].data(), .size = memory[i].size()};
      shards[i] = {.block = id, .segments = &segments[i], .segment_count = 1, .index = i};
    }
    TaskDesc desc;
    desc.shards = shards.data();
    desc.shard_count = 3;
    desc.results = results;
    TaskId task = 0;
    const Status status = dump ? store.Dump(desc, &task) : store.Load(desc, &task);
    return status.ok() ? store.Wait(task, kPatienceMs) : status;
  }

  TempDir dir_;
  PosixConfig config_;
};

TEST_F(Golden, FormatOneIsStillRead) {
  ASSERT_TRUE(stdfs::exists(Committed())) << Committed();
  stdfs::copy(Committed(), Folder(), stdfs::copy_options::recursive);
  auto store = PosixStore::Open(config_);
  for (const GoldenBlock& block : kBlocks) {
    const BlockId id = *ParseHex(block.id);
    EXPECT_TRUE(IsPresent(*store, id));
    std::array<std::vector<std::byte>, 3> memory;
    memory.fill(std::vector<std::byte>(5000, std::byte{0xEE}));
    std::array<ShardResult, 3> results{};
    const Status status = Move(*store, id, /*dump=*/false, memory, results.data());
    ASSERT_TRUE(status.ok()) << status.message;
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(results[i].bytes, block.lengths[i]);
      std::vector<std::byte> expected = ShardBytes(id, i, block.lengths[i]);
      expected.resize(5000, std::byte{0xEE});
      EXPECT_EQ(memory[i], expected) << block.id << " shard " << i;
    }
  }
}

TEST_F(Golden, FormatOneIsStillWrittenBitByBit) {
  auto store = PosixStore::Open(config_);
  for (const GoldenBlock& block : kBlocks) {
    const BlockId id = *ParseHex(block.id);
    std::array<std::vector<std::byte>, 3> memory;
    for (std::size_t i = 0; i < 3; ++i) memory[i] = ShardBytes(id, i, block.lengths[i]);
    ASSERT_TRUE(Move(*store, id, /*dump=*/true, memory, nullptr).ok());
    const Name name = BlockName(id, 3);
    EXPECT_EQ(ReadFile(Folder() / name.c_str()), ReadFile(Committed() / name.c_str())) << block.id;
  }
  Result<RootFile> made = ParseRootFile(ReadFile(Folder() / "UCMSTORE"));
  const std::string committed = ReadFile(Committed() / "UCMSTORE");
  const Result<RootFile> golden = ParseRootFile(committed);
  ASSERT_TRUE(made && golden);
  EXPECT_NE(made->root_id, golden->root_id) << "random";
  made->root_id = golden->root_id;
  EXPECT_EQ(PrintRootFile(*made), committed);
}

TEST_F(Golden, TheAdminTableFindsItGood) {
  const std::string root = Committed().parent_path().string();
  std::vector<std::string> bad;
  std::size_t blocks = 0;
  struct Context {
    std::vector<std::string>& bad;
    std::size_t& blocks;
  } context{bad, blocks};
  const Status status = PosixAdmin().walk(root.c_str(), nullptr, kAdminRead, &context, nullptr,
                                          [](void* ctx, const AdminEntryV1* entry) {
                                            auto& seen = *static_cast<Context*>(ctx);
                                            if (entry->verdict != AdminVerdict::kGood)
                                              seen.bad.emplace_back(entry->path);
                                            seen.blocks += entry->kind == AdminKind::kBlock ? 1 : 0;
                                            return true;
                                          });
  EXPECT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(blocks, 2U);
  EXPECT_EQ(bad, std::vector<std::string>{});
}

// The choice among roots is a promise, too: another one would hide what is stored.
TEST_F(Golden, TheScoresOfRootsStayAsTheyWere) {
  std::array<std::uint8_t, 16> root_id{};
  BlockId id{};
  for (std::size_t k = 0; k < 16; ++k) {
    root_id[k] = static_cast<std::uint8_t>(0x10 + k);
    id.bytes[k] = static_cast<std::byte>(k * 0x11);
  }
  EXPECT_EQ(RootSeed(root_id), 0xEE7B30761B0DF790U);
  EXPECT_EQ(RootScore(id, RootSeed(root_id)), 0xD14E38E642B05630U);
  EXPECT_EQ(RootScore(BlockId{}, 0), 0x33FE8BD4F9C57863U);
}

}  // namespace
}  // namespace ucmstore::test
