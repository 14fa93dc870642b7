// SPDX-License-Identifier: Apache-2.0
//
// A worker of the kill suite: dumps, abandons, loads and deletes blocks of one Posix root at full
// rate until it is told to stop or is killed, and judges every byte it loads. Blocks are deleted
// behind the store's back (rows C01, C02), so that there is always something to write.
//
// Every now and then it dumps one that nobody deletes, and says so in the arena once that is
// confirmed: it must never be lost.
//
//   kill_worker ARENA SPEC ROOT RING NUMBER SEED
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>
#include <vector>

#include "base/hex.h"
#include "kill/arena.h"
#include "kill/workload.h"
#include "support/batch.h"
#include "support/random.h"
#include "support/test_store.h"

namespace ucmstore::test {
namespace {

class Worker {
 public:
  Worker(Arena& arena, TestStore& store, std::string root, std::size_t number, std::uint64_t seed)
      : arena_(arena), store_(store), root_(std::move(root)), number_(number), random_(seed) {}

  void Run() {
    while (arena_.stop.load() == 0) {
      const BlockId block = MakeId(kFamily, random_.Between(0, kBlocks - 1));
      const std::uint64_t what = random_.Between(0, 13);
      if (what < 4) {
        DumpWhole(block);
      } else if (what < 6) {
        DumpShardByShard(block, kGeometry.shards_per_block);
      } else if (what < 7) {
        DumpShardByShard(block, kGeometry.shards_per_block - 1);  // and never the rest
      } else if (what < 10) {
        LoadWhole(block);
      } else if (what < 11) {
        Keep();
      } else {
        Delete(block);
      }
      arena_.operations[number_].fetch_add(1);
    }
  }

 private:
  void Expect(const Status& status, const char* doing) {
    // Busy: a ring full of half-dumped blocks of stopped processes.
    if (status.ok() || status.code == Code::kAborted || status.code == Code::kNotFound ||
        status.code == Code::kBusy) {
      return;
    }
    arena_.failed.fetch_add(1);
    std::cerr << "worker " << number_ << ": " << doing << ": " << status.message << "\n";
  }

  void DumpWhole(const BlockId& block) {
    DumpBatch batch(kGeometry);
    batch.AddBlock(block, NextNonce());
    Begin(batch, "dump");
  }

  void Keep() {
    const std::uint64_t n = arena_.kept[number_].load();
    DumpBatch batch(kGeometry);
    batch.AddBlock(KeptId(number_, n), NextNonce());
    if (Begin(batch, "dump to keep")) arena_.kept[number_].store(n + 1);
  }

  void DumpShardByShard(const BlockId& block, std::uint32_t shards) {
    for (std::uint32_t i = 0; i < shards; ++i) {
      DumpBatch batch(kGeometry);
      batch.Add(block, i, NextNonce());  // a block may be made of shards of different dumps
      Begin(batch, "dump of a shard");
    }
  }

  bool Begin(DumpBatch& batch, const char* doing) {
    TaskId task = 0;
    const TaskDesc desc = batch.desc();
    arena_.writing[number_].store(1);
    Status status = store_.Dump(desc, &task);
    if (status.ok()) status = store_.Wait(task, kPatienceMs);
    Expect(status, doing);
    arena_.writing[number_].store(0);
    return status.ok();
  }

  void LoadWhole(const BlockId& block) {
    std::vector<std::byte> bytes(kGeometry.shard_size * kGeometry.shards_per_block);
    if (const std::string why = LoadAndJudge(store_, block, bytes); !why.empty()) {
      arena_.wrong.fetch_add(1);
      std::cerr << "worker " << number_ << ": " << why << "\n";
    }
  }

  void Delete(const BlockId& block) {
    const std::string name = ToHex(block);
    for (const auto& folder : std::filesystem::directory_iterator(root_)) {
      if (!folder.is_directory()) continue;
      std::error_code gone_already;
      std::filesystem::remove(folder.path() / name.substr(0, kPrefixDigits) / name, gone_already);
    }
  }

  Arena& arena_;
  TestStore& store_;
  const std::string root_;
  const std::size_t number_;
  Random random_;
};

int Main(const std::vector<std::string>& arguments) {
  const ArenaFile arena(arguments.at(1));
  const std::string& root = arguments.at(3);
  const std::size_t number = std::stoul(arguments.at(5));
  const auto store = OpenPipeline(KillConfig(arguments.at(2), root, arguments.at(4)));
  if (store == nullptr) {
    arena->failed.fetch_add(1);
    std::cerr << "worker " << number << ": the store could not be opened\n";
    return 1;
  }
  Worker(*arena.operator->(), *store, root, number, std::stoull(arguments.at(6))).Run();
  return store->Close(20'000) ? 0 : 1;
}

}  // namespace
}  // namespace ucmstore::test

int main(int argc, char** argv) {
  return ucmstore::test::Main(std::vector<std::string>(argv, argv + argc));
}
