// SPDX-License-Identifier: Apache-2.0
//
// A worker of the kill suite: dumps, abandons, loads and deletes blocks of one Posix root at full
// rate until it is told to stop or is killed, and judges every byte it loads. Blocks are deleted
// behind the store's back (rows C01, C02), so that there is always something to write.
//
// Every now and then it dumps one that nobody deletes, and says so in the arena once that is
// confirmed: it must never be lost.
//
// With a Cache it also reads and fills blocks in the ring itself, by leases, from another store of
// the same ring.
//
//   kill_worker ARENA SPEC ROOT RING NUMBER SEED
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "base/hex.h"
#include "kill/arena.h"
#include "kill/workload.h"
#include "support/batch.h"
#include "support/lease_client.h"
#include "support/random.h"
#include "support/test_store.h"

namespace ucmstore::test {
namespace {

class Worker {
 public:
  // `leases`: null without a Cache.
  Worker(Arena& arena, TestStore& store, const LeaseClient* leases, std::string root,
         std::size_t number, std::uint64_t seed)
      : arena_(arena),
        store_(store),
        leases_(leases),
        root_(std::move(root)),
        number_(number),
        random_(seed) {}

  void Run() {
    while (arena_.stop.load() == 0) {
      const BlockId block = MakeId(kFamily, random_.Between(0, kBlocks - 1));
      const std::uint64_t what = random_.Between(0, leases_ != nullptr ? 17 : 13);
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
      } else if (what < 14) {
        Delete(block);
      } else if (what < 16) {
        ReadInPlace(block);
      } else {
        FillInPlace(block, random_.Between(0, kGeometry.shards_per_block));
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

  // What is leased stays as it is, while others evict and die.
  void ReadInPlace(const BlockId& block) {
    const auto got = leases_->Acquire({block});
    Expect(got.status, "acquire");
    if (got.leases[0].lease == 0) return;
    arena_.writing[number_].store(1);
    for (std::uint32_t i = 0; i < kGeometry.shards_per_block; ++i) {
      const Verdict verdict =
          Inspect(leases_->Memory(got.leases[0], i).subspan(0, got.lengths[i]), block, i);
      if (verdict.good() && got.lengths[i] == kGeometry.shard_size) continue;
      arena_.wrong.fetch_add(1);
      std::cerr << "worker " << number_ << ", in place: " << verdict.why << "\n";
    }
    arena_.writing[number_].store(0);
    Expect(leases_->Release(got.leases[0]), "release");
  }

  // Commits the first so many shards; the others are given up.
  void FillInPlace(const BlockId& block, std::uint64_t shards) {
    arena_.writing[number_].store(1);
    const auto got = leases_->Reserve({block});
    Expect(got.status, "reserve");
    if (got.leases[0].lease != 0) {
      const std::uint64_t nonce = NextNonce();
      for (std::uint32_t i = 0; i < kGeometry.shards_per_block; ++i) {
        Fill(leases_->Memory(got.leases[0], i), block, i, nonce);
        if (i >= shards) continue;
        Expect(leases_->Commit(got.leases[0], i, kGeometry.shard_size), "commit");
      }
      Expect(leases_->Release(got.leases[0]), "release");
    }
    arena_.writing[number_].store(0);
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
  const LeaseClient* const leases_;
  const std::string root_;
  const std::size_t number_;
  Random random_;
};

int Main(const std::vector<std::string>& arguments) {
  const ArenaFile arena(arguments.at(1));
  const std::string& root = arguments.at(3);
  const std::size_t number = std::stoul(arguments.at(5));
  const StackConfig config = KillConfig(arguments.at(2), root, arguments.at(4));
  const auto store = OpenPipeline(config);
  const bool is_cache = config.spec.starts_with("Cache");
  const auto lender = is_cache ? OpenRaw(config) : nullptr;
  if (store == nullptr || (is_cache && lender == nullptr)) {
    arena->failed.fetch_add(1);
    std::cerr << "worker " << number << ": the store could not be opened\n";
    return 1;
  }
  std::optional<LeaseClient> leases;
  if (is_cache) leases.emplace(*lender, kGeometry);
  Worker(*arena.operator->(), *store, is_cache ? &*leases : nullptr, root, number,
         std::stoull(arguments.at(6)))
      .Run();
  leases.reset();
  const bool lender_closed = lender == nullptr || lender->Close(20'000);
  return store->Close(20'000) && lender_closed ? 0 : 1;
}

}  // namespace
}  // namespace ucmstore::test

int main(int argc, char** argv) {
  return ucmstore::test::Main(std::vector<std::string>(argv, argv + argc));
}
