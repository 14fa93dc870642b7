// SPDX-License-Identifier: Apache-2.0
//
// Real threads on real memory: four processes (Rings) of three threads each fight over six slots.
// Every shard carries the nonce of whoever wrote it, and every load under a pin is judged: whole,
// of one writer, and the same when it is read again. Bounded in operations; the seed is printed and
// RING_THREADS_SEED sets it.
#include <gtest/gtest.h>

#include <barrier>
#include <cstdlib>
#include <iostream>
#include <random>
#include <thread>

#include "shm/ring.h"
#include "shm/ring_fixture.h"
#include "support/content.h"

namespace ucmstore::test {
namespace {

using Purpose = Ring::Purpose;

constexpr std::uint32_t kProcesses = 4;
constexpr std::uint32_t kThreads = 3;
constexpr std::uint32_t kBlocks = 14;
constexpr std::uint32_t kOperations = 20'000;  // of each thread
constexpr std::uint64_t kShardBytes = 1024;
constexpr RingGeometry kGeometry{.shard_size = kShardBytes, .shards_per_block = 2, .slot_count = 6};
constexpr std::array<std::uint32_t, kProcesses> kPlaces{0, 63, 64, 127};

std::uint64_t Seed() {
  const char* text = std::getenv("RING_THREADS_SEED");
  const std::uint64_t seed =
      text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device{}() * 1'000'003ULL;
  std::cout << "seed " << seed << '\n';
  return seed;
}

class Worker {
 public:
  Worker(Ring& ring, std::uint64_t seed) : ring_(ring), random_(seed) {}

  void Run() {
    for (std::uint32_t i = 0; i < kOperations; ++i) {
      const BlockId block = MakeId(1, random_() % kBlocks);
      const std::uint64_t what = random_() % 100;
      if (what < 45) {
        Load(ring_.Find(block), block);
      } else if (what < 65) {
        Bring(block, Purpose::kFill);
      } else if (what < 80) {
        Bring(block, Purpose::kAssemble);
        Flush();
      } else if (what < 85) {
        if (Pin pin = ring_.Find(block)) ring_.Discard(std::move(pin));
      } else if (what < 90) {
        if (const Pin pin = ring_.Find(block)) (void)ring_.Rewrite(pin);
        Flush();
      } else if (what < 99) {
        Probe();
      } else {
        const std::uint32_t number = ring_.BeginWatch();
        ring_.Sleep(number, std::chrono::steady_clock::now() + std::chrono::microseconds(100));
        ring_.EndWatch();
      }
    }
  }

  // What this process owes arrives below, at the second try if not at the first.
  void Flush() {
    ring_.AdoptDirty([this](std::uint32_t slot) {
      if (!ring_.BeginFlush(slot)) return;
      const bool arrives = random_() % 4 != 0;
      ring_.EndFlush(slot, arrives ? Ring::Flush::kArrived : Ring::Flush::kFailed);
    });
  }

  std::uint64_t judged = 0;
  std::uint64_t refused = 0;

 private:
  void Load(const Pin& pin, const BlockId& block) {
    if (!pin) return;
    if (random_() % 2 == 0) ring_.Touch(pin);
    const bool complete = ring_.WordOf(pin).complete();
    for (std::uint32_t shard = 0; shard < kGeometry.shards_per_block; ++shard) {
      if (ring_.ShardState(pin, shard) != kShardLanded) {
        EXPECT_FALSE(complete) << "a whole block lacks a shard";
        continue;
      }
      const std::uint32_t length = ring_.LengthOf(pin, shard);
      const std::span<const std::byte> bytes(ring_.DataOf(pin, shard), length);
      const Verdict first = Inspect(bytes, block, shard);
      EXPECT_EQ(length, kShardBytes);
      EXPECT_TRUE(first.good()) << first.why;
      if (random_() % 4 == 0) std::this_thread::yield();
      const Verdict second = Inspect(bytes, block, shard, first.nonce);
      EXPECT_TRUE(second.good()) << "it changed under the pin: " << second.why;
      ++judged;
    }
  }

  void Bring(const BlockId& block, Purpose purpose) {
    const Ring::Claim claim = ring_.ClaimFor(block, purpose);
    if (!claim.pin) {
      ++refused;
      return;
    }
    EXPECT_EQ(ring_.BlockOf(claim.pin), block);
    const std::uint64_t nonce = NextNonce();
    for (std::uint32_t i = 0; i < kGeometry.shards_per_block; ++i) {
      const auto shard = static_cast<std::uint32_t>((i + nonce) % kGeometry.shards_per_block);
      if (random_() % 16 == 0 || !ring_.BeginShard(claim.pin, shard)) continue;
      Fill({ring_.DataOf(claim.pin, shard), kShardBytes}, block, shard, nonce);
      if (random_() % 16 == 0) {
        ring_.AbandonShard(claim.pin, shard);
      } else {
        (void)ring_.LandShard(claim.pin, shard, kShardBytes);
      }
    }
    Load(claim.pin.Another(), block);
  }

  void Probe() {
    std::array<BlockId, kBlocks> blocks;
    std::array<std::uint8_t, kBlocks> here;
    for (std::uint32_t i = 0; i < kBlocks; ++i) blocks[i] = MakeId(1, i);
    ring_.Probe(blocks, random_() % 2 == 0, here.data());
  }

  Ring& ring_;
  std::mt19937_64 random_;
};

TEST(RingThreads, C06_NoLoadUnderAPinIsEverWrong) {
  const std::uint64_t seed = Seed();
  const RingArena arena(kGeometry);
  std::vector<std::unique_ptr<Ring>> rings;
  for (const std::uint32_t place : kPlaces) rings.push_back(arena.Join(place));
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kProcesses * kThreads; ++i) {
    workers.push_back(std::make_unique<Worker>(*rings[i % kProcesses], seed + i));
    threads.emplace_back([&worker = *workers.back()] { worker.Run(); });
  }
  for (std::thread& thread : threads) thread.join();
  std::uint64_t judged = 0;
  std::uint64_t refused = 0;
  for (const auto& worker : workers) {
    judged += worker->judged;
    refused += worker->refused;
  }
  std::cout << judged << " shards judged, " << refused << " claims refused, "
            << arena.memory().shared->evictions.load() << " evictions\n";
  EXPECT_GT(judged, kOperations);
  EXPECT_EQ(arena.WhatIsLeft(), "");
  // No slot is lost.
  for (int tries = 0; tries < 64; ++tries) {
    for (const auto& worker : workers) worker->Flush();
  }
  std::vector<Pin> pins;
  for (std::uint32_t i = 0; i < kGeometry.slot_count; ++i) {
    Ring::Claim claim = rings[0]->ClaimFor(MakeId(2, i), Purpose::kFill);
    EXPECT_TRUE(claim.made);
    pins.push_back(std::move(claim.pin));
  }
}

// Hundreds of rounds in which all processes bring the same block at once.
TEST(RingThreads, S09_ABlockThatAllBringAtOnceIsThereOnce) {
  constexpr std::uint32_t kRounds = 500;
  const RingArena arena({.shard_size = 64, .shards_per_block = 1, .slot_count = kProcesses});
  std::vector<std::unique_ptr<Ring>> rings;
  for (const std::uint32_t place : kPlaces) rings.push_back(arena.Join(place));
  std::barrier together(kProcesses);
  std::atomic<std::uint32_t> made{0};
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kProcesses; ++i) {
    threads.emplace_back([&, i] {
      for (std::uint32_t round = 0; round < kRounds; ++round) {
        together.arrive_and_wait();
        {
          const Ring::Claim claim = rings[i]->ClaimFor(PlainId(round), Purpose::kFill);
          if (claim.made) ++made;
          if (claim.pin) BringAll(*rings[i], claim.pin);
        }
        together.arrive_and_wait();
        if (i != 0) continue;
        EXPECT_EQ(arena.WhatIsLeft(), "") << "round " << round;
        // Claims that all lost to each other are refused: rare, and all of them together rarer.
        EXPECT_EQ(IsHere(*rings[0], PlainId(round)), made.exchange(0) > 0) << "round " << round;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace ucmstore::test
