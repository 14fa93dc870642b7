// SPDX-License-Identifier: Apache-2.0
//
// The table "admin/1": inspect, and walk with read, repair and purge, while stores use the folders.
#include "store/posix/admin.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "base/hex.h"
#include "posix/children.h"
#include "posix/posix_store.h"
#include "store/posix/names.h"
#include "support/temp_dir.h"

namespace ucmstore::test {
namespace {

namespace stdfs = std::filesystem;
constexpr Geometry kSmall{.shard_size = 8192, .shards_per_block = 4};

struct Seen {
  AdminKind kind;
  AdminVerdict verdict;
  AdminAction action;
  std::string path;
  std::string text;
};

class PosixAdminTest : public ::testing::Test {
 protected:
  PosixConfig Config(const char* label = "test-0123456789abcdef", std::uint8_t fingerprint = 7) {
    PosixConfig config;
    config.roots = {dir_.string()};
    config.label = label;
    config.fingerprint = fingerprint;
    return config;
  }
  [[nodiscard]] stdfs::path Folder(const std::string& label = PosixConfig().label) const {
    return dir_.path() / label;
  }
  [[nodiscard]] stdfs::path PathOf(const BlockId& id) const {
    return Folder() / BlockName(id, 3).c_str();
  }
  std::vector<Seen> Walk(std::uint32_t flags, const char* label = nullptr) {
    struct Context {
      std::vector<Seen> seen;
      std::uint64_t total = 0;
    } context;
    const Status status = PosixAdmin().walk(
        dir_.string().c_str(), label, flags, &context,
        [](void* ctx, std::uint64_t files) { static_cast<Context*>(ctx)->total = files; },
        [](void* ctx, const AdminEntryV1* entry) {
          static_cast<Context*>(ctx)->seen.push_back(
              {entry->kind, entry->verdict, entry->action, entry->path, entry->text});
          return true;
        });
    EXPECT_TRUE(status.ok()) << status.message;
    total_ = context.total;
    return context.seen;
  }
  static std::size_t Count(const std::vector<Seen>& seen, AdminKind kind, AdminVerdict verdict) {
    std::size_t count = 0;
    for (const Seen& each : seen) count += each.kind == kind && each.verdict == verdict ? 1U : 0U;
    return count;
  }
  static std::size_t Count(const std::vector<Seen>& seen, AdminAction action) {
    std::size_t count = 0;
    for (const Seen& each : seen) count += each.action == action ? 1U : 0U;
    return count;
  }
  static std::multimap<std::string, std::string> Inspect(const stdfs::path& path) {
    std::multimap<std::string, std::string> facts;
    const Status status = PosixAdmin().inspect(
        path.c_str(), &facts, [](void* ctx, const char* name, const char* value) {
          static_cast<std::multimap<std::string, std::string>*>(ctx)->emplace(name, value);
        });
    EXPECT_TRUE(status.ok()) << status.message;
    return facts;
  }
  static std::string Fact(const std::multimap<std::string, std::string>& facts, const char* name) {
    const auto found = facts.find(name);
    return found == facts.end() ? "(missing)" : found->second;
  }
  void Damage(const BlockId& id, std::streamoff at) {
    std::fstream file(PathOf(id), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file.put('\x7f');
  }
  // Leaves two half-written blocks of a process that is gone.
  void LeaveDeadWriter() {
    Children children;
    children.Start([&]() -> std::string {
      auto store = PosixStore::Open(Config());
      for (std::uint64_t i = 100; i < 102; ++i) {
        if (!DumpShard(*store, kSmall, MakeId(1, i), 0, 1).ok()) return "dump";
      }
      ::_exit(0);
    });
    ASSERT_EQ(children.Finish(), std::vector<int>{0});
  }

  TempDir dir_;
  std::atomic<std::uint64_t> total_ = 0;
};

TEST_F(PosixAdminTest, InspectSaysEveryFact) {
  auto store = PosixStore::Open(Config());
  const BlockId id = MakeId(1, 1);
  ASSERT_TRUE(DumpBlock(*store, kSmall, id, 1).ok());
  auto facts = Inspect(PathOf(id));
  EXPECT_EQ(Fact(facts, "kind"), "block");
  EXPECT_EQ(Fact(facts, "block_id"), ToHex(id));
  EXPECT_EQ(Fact(facts, "shard_size"), "8192");
  EXPECT_EQ(Fact(facts, "size_bytes"), std::to_string(4 * 8192 + 4096));
  EXPECT_EQ(Fact(facts, "verdict"), "good");
  EXPECT_NE(Fact(facts, "shard 3").find("offset 24576, 8192 bytes"), std::string::npos);
  Damage(id, 9000);
  facts = Inspect(PathOf(id));
  EXPECT_EQ(Fact(facts, "verdict"), "the checksum of shard 1 differs");
  for (const stdfs::path& path : {Folder(), Folder() / "UCMSTORE"}) {
    facts = Inspect(path);
    EXPECT_EQ(Fact(facts, "kind"), "namespace");
    EXPECT_EQ(Fact(facts, "shards_per_block"), "4");
    EXPECT_EQ(Fact(facts, "namespace"), "model: test\n");
  }
  facts = Inspect(dir_.path());
  EXPECT_EQ(Fact(facts, "kind"), "root");
  EXPECT_EQ(Fact(facts, "namespace"), PosixConfig().label);
  const auto refused = [](const char* path) {
    return PosixAdmin().inspect(path, nullptr, [](void*, const char*, const char*) {});
  };
  EXPECT_EQ(refused("/nonexistent/x").code, Code::kNotFound);
  EXPECT_FALSE(refused("/dev/null").ok());
  EXPECT_FALSE(refused(nullptr).ok());
  std::ofstream(dir_.path() / "text") << "not a block";
  EXPECT_EQ(refused((dir_.path() / "text").c_str()).code, Code::kCorruption);
}

TEST_F(PosixAdminTest, WalkFindsEverythingAndChangesNothing) {
  auto store = PosixStore::Open(Config());
  for (std::uint64_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, i), 1).ok());
  }
  ASSERT_TRUE(DumpShard(*store, kSmall, MakeId(1, 50), 0, 1).ok());
  LeaveDeadWriter();
  Damage(MakeId(1, 1), 100);
  Damage(MakeId(1, 2), 4 * 8192 + 50);
  stdfs::resize_file(PathOf(MakeId(1, 3)), 5);
  std::ofstream(Folder() / "notes.txt") << "foreign";
  std::ofstream(PathOf(MakeId(1, 4)).parent_path() / "x") << "foreign";
  stdfs::rename(PathOf(MakeId(1, 5)), Folder() / SetAsideName(MakeId(1, 5), 3).c_str());
  const std::set<std::string> before = [&] {
    const auto files = FilesBelow(dir_.path());
    return std::set<std::string>(files.begin(), files.end());
  }();

  std::vector<Seen> seen = Walk(0);
  EXPECT_EQ(Count(seen, AdminKind::kNamespace, AdminVerdict::kGood), 1U);
  EXPECT_EQ(Count(seen, AdminKind::kBlock, AdminVerdict::kGood), 8U) << "nothing was read";
  EXPECT_EQ(Count(seen, AdminKind::kBlock, AdminVerdict::kTorn), 1U);
  EXPECT_EQ(Count(seen, AdminKind::kActivated, AdminVerdict::kInUse), 1U);
  EXPECT_EQ(Count(seen, AdminKind::kActivated, AdminVerdict::kLeftover), 2U);
  EXPECT_EQ(Count(seen, AdminKind::kWriter, AdminVerdict::kInUse), 1U);
  EXPECT_EQ(Count(seen, AdminKind::kWriter, AdminVerdict::kLeftover), 1U);
  EXPECT_EQ(Count(seen, AdminKind::kForeign, AdminVerdict::kUnknown), 2U);
  EXPECT_EQ(Count(seen, AdminKind::kSetAside, AdminVerdict::kUnknown), 1U);
  EXPECT_EQ(total_, seen.size() - 1) << "all but the namespace itself";
  EXPECT_EQ(Count(seen, AdminAction::kNone), seen.size());

  seen = Walk(kAdminRead);
  EXPECT_EQ(Count(seen, AdminKind::kBlock, AdminVerdict::kGood), 6U);
  EXPECT_EQ(Count(seen, AdminKind::kBlock, AdminVerdict::kCorrupt), 2U);
  const auto files = FilesBelow(dir_.path());
  EXPECT_EQ(std::set<std::string>(files.begin(), files.end()), before);

  seen = Walk(kAdminRead | kAdminRepair);
  EXPECT_EQ(Count(seen, AdminAction::kSetAside), 3U);
  EXPECT_EQ(Count(seen, AdminAction::kRemoved), 3U) << "two leftovers and their writer's mark";
  EXPECT_EQ(Count(seen, AdminKind::kActivated, AdminVerdict::kInUse), 1U);
  for (const std::uint64_t i : {1U, 2U, 3U}) {
    EXPECT_FALSE(IsPresent(*store, MakeId(1, i)));
    EXPECT_TRUE(DumpBlock(*store, kSmall, MakeId(1, i), 2).ok());
  }
  seen = Walk(kAdminRead | kAdminRepair);
  EXPECT_EQ(Count(seen, AdminKind::kBlock, AdminVerdict::kGood), 9U);
  EXPECT_EQ(Count(seen, AdminAction::kNone), seen.size());
  EXPECT_TRUE(stdfs::exists(Folder() / "notes.txt"));
  // The live writer's block can still be completed.
  DumpBatch rest(kSmall);
  rest.Add(MakeId(1, 50), 1, 1).Add(MakeId(1, 50), 2, 1).Add(MakeId(1, 50), 3, 1);
  EXPECT_TRUE(Finish(*store, rest).ok());
  EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, 50), 1), "");
}

TEST_F(PosixAdminTest, G02_PurgeTakesOnlyWhatWasChosen) {
  for (const char* label : {"one-1", "two-2"}) {
    auto store = PosixStore::Open(Config(label, label[0] == 'o' ? 1 : 2));
    for (std::uint64_t i = 0; i < 10; ++i) {
      ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, i), 1).ok());
    }
  }
  stdfs::create_directory(dir_.path() / "not-a-namespace");
  std::ofstream(dir_.path() / "not-a-namespace" / "x") << "foreign";
  std::vector<Seen> seen = Walk(kAdminPurge, "one-1");
  EXPECT_EQ(Count(seen, AdminAction::kRemoved), 11U) << "ten blocks and the namespace";
  EXPECT_FALSE(stdfs::exists(Folder("one-1")));
  EXPECT_TRUE(stdfs::exists(dir_.path() / "not-a-namespace" / "x"));
  auto two = PosixStore::Open(Config("two-2", 2));
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(BlockProblem(*two, kSmall, MakeId(1, i), 1), "");
  }
  const auto refused = [this](const char* label) {
    return PosixAdmin().walk(dir_.string().c_str(), label, kAdminPurge, nullptr, nullptr,
                             [](void*, const AdminEntryV1*) { return true; });
  };
  EXPECT_EQ(refused("three-3").code, Code::kNotFound);
  EXPECT_EQ(refused("..").code, Code::kInvalidArgument);
  EXPECT_EQ(refused("../x").code, Code::kInvalidArgument);
  EXPECT_EQ(refused("not-a-namespace").code, Code::kNotFound);
}

TEST_F(PosixAdminTest, G02_PurgeTakesAFolderThatWasGivenAnOddName) {
  {
    auto store = PosixStore::Open(Config());
    ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 1), 1).ok());
  }
  const std::string odd = "a copy\x1b[31m";
  stdfs::copy(Folder(), Folder(odd), stdfs::copy_options::recursive);
  EXPECT_EQ(Count(Walk(kAdminRead, odd.c_str()), AdminKind::kBlock, AdminVerdict::kGood), 1U);
  EXPECT_EQ(Count(Walk(kAdminPurge, odd.c_str()), AdminAction::kRemoved), 2U);
  EXPECT_FALSE(stdfs::exists(Folder(odd)));
  EXPECT_TRUE(stdfs::exists(Folder()));
}

TEST_F(PosixAdminTest, PurgeUnderAnOpenStoreKeepsItUsable) {
  auto store = PosixStore::Open(Config());
  for (std::uint64_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, i), 1).ok());
  }
  ASSERT_TRUE(DumpShard(*store, kSmall, MakeId(1, 50), 0, 1).ok());
  std::vector<Seen> seen = Walk(kAdminPurge);
  EXPECT_EQ(Count(seen, AdminAction::kRemoved), 10U);
  EXPECT_EQ(Count(seen, AdminKind::kNamespace, AdminVerdict::kInUse), 1U);
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(AbsenceProblem(*store, kSmall, MakeId(1, i)), "");
  }
  DumpBatch rest(kSmall);
  rest.Add(MakeId(1, 50), 1, 1).Add(MakeId(1, 50), 2, 1).Add(MakeId(1, 50), 3, 1);
  EXPECT_TRUE(Finish(*store, rest).ok());
  EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, 50), 1), "");
  EXPECT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 1), 2).ok());
  store.reset();
  seen = Walk(kAdminPurge);
  EXPECT_FALSE(stdfs::exists(Folder())) << "nobody has it open any more";
}

// Links are never followed below the root: what they point to is not ours.
TEST_F(PosixAdminTest, Q02_PurgeNeverLeavesTheRoot) {
  auto store = PosixStore::Open(Config());
  ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 1), 1).ok());
  store.reset();
  TempDir elsewhere;
  const std::string id = "abc00000000000000000000000000000";
  std::ofstream(elsewhere.path() / id) << "precious";
  stdfs::create_directory_symlink(elsewhere.path(), Folder() / "abc");
  stdfs::create_symlink(elsewhere.path() / id, PathOf(MakeId(1, 1)).parent_path() / "x");
  stdfs::create_directory(dir_.path() / "target");
  stdfs::create_directory_symlink(Folder(), dir_.path() / "link-to-it");
  const std::vector<Seen> seen = Walk(kAdminPurge);
  EXPECT_TRUE(stdfs::exists(elsewhere.path() / id));
  EXPECT_TRUE(stdfs::is_symlink(Folder() / "abc"));
  EXPECT_TRUE(stdfs::exists(Folder())) << "it still holds what is foreign";
  EXPECT_EQ(Count(seen, AdminAction::kRemoved), 1U);
  // And with a link in it, it still opens and works.
  store = PosixStore::Open(Config());
  EXPECT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 1), 1).ok());
}

TEST_F(PosixAdminTest, ADamagedRootFileIsReportedAndNothingBelowIsTouched) {
  auto store = PosixStore::Open(Config());
  ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 1), 1).ok());
  store.reset();
  std::ofstream(Folder() / "UCMSTORE") << "nonsense";
  const std::vector<Seen> seen = Walk(kAdminRead | kAdminRepair | kAdminPurge);
  EXPECT_EQ(Count(seen, AdminKind::kNamespace, AdminVerdict::kCorrupt), 1U);
  EXPECT_EQ(Count(seen, AdminAction::kRemoved), 0U);
  EXPECT_TRUE(stdfs::exists(PathOf(MakeId(1, 1))));
  std::ofstream(Folder() / "UCMSTORE") << "ucmstore 99\n";  // a release to come: not damaged
  EXPECT_EQ(Count(Walk(kAdminRead), AdminKind::kNamespace, AdminVerdict::kUnreadable), 1U);
}

TEST_F(PosixAdminTest, AWalkCanBeStopped) {
  auto store = PosixStore::Open(Config());
  for (std::uint64_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, i), 1).ok());
  }
  int entries = 0;
  EXPECT_TRUE(
      PosixAdmin()
          .walk(dir_.string().c_str(), nullptr, kAdminRead, &entries, nullptr,
                [](void* ctx, const AdminEntryV1*) { return ++*static_cast<int*>(ctx) < 3; })
          .ok());
  EXPECT_EQ(entries, 3);
  EXPECT_EQ(PosixAdmin()
                .walk("/nonexistent", nullptr, 0, nullptr, nullptr,
                      [](void*, const AdminEntryV1*) { return true; })
                .code,
            Code::kNotFound);
  EXPECT_FALSE(PosixAdmin()
                   .walk(dir_.string().c_str(), nullptr, 1U << 30, nullptr, nullptr,
                         [](void*, const AdminEntryV1*) { return true; })
                   .ok());
}

// Verify with repair, purge, dumps and loads, all at once: no wrong byte, no failed dump.
TEST_F(PosixAdminTest, WalksAndStoresDoNotHurtEachOther) {
  auto store = PosixStore::Open(Config());
  std::atomic<bool> stop{false};
  std::thread verify([&] {
    while (!stop) {
      for (const Seen& each : Walk(kAdminRead | kAdminRepair)) {
        EXPECT_NE(each.verdict, AdminVerdict::kCorrupt) << each.path << ": " << each.text;
        EXPECT_NE(each.action, AdminAction::kSetAside) << each.path << ": " << each.text;
      }
    }
  });
  std::thread purge([&] {
    while (!stop) (void)Walk(kAdminPurge);
  });
  for (std::uint64_t round = 0; round < 150; ++round) {
    const BlockId id = MakeId(1, round % 7);
    const Status status = DumpBlock(*store, kSmall, id, round + 1);
    EXPECT_TRUE(status.ok()) << status.message;
    LoadBatch load(kSmall);
    load.AddBlock(id);
    (void)Finish(*store, load);
    for (std::size_t i = 0; i < load.size(); ++i) {
      EXPECT_TRUE(load.result(i).code == Code::kNotFound || load.Problem(i).empty())
          << load.Problem(i);
    }
  }
  stop = true;
  verify.join();
  purge.join();
}

}  // namespace
}  // namespace ucmstore::test
