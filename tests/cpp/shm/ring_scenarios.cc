// SPDX-License-Identifier: Apache-2.0
//
// The scenes. In each the reaper begins when another one has died, and may die as well.
#include "shm/ring_scenarios.h"

namespace ucmstore::test {
namespace {

using Purpose = Ring::Purpose;

const BlockId kA = PlainId(1);
const BlockId kB = PlainId(2);

Role Reaper() {
  return {.name = "reaper", .act = [](Player& player) { player.Reap(); }, .reaps = true};
}

// For when the first reaper dies as well.
Role SecondReaper() {
  return {.name = "second reaper", .act = [](Player& player) { player.Reap(); }, .reaps = true};
}

Role Reader(const BlockId& block) {
  return {.name = "reader", .act = [block](Player& player) { (void)player.Load(block); }};
}

// Wants a slot for another block.
Role Evictor(const BlockId& block) {
  return {.name = "evictor",
          .act = [block](Player& player) { (void)player.Put(block, Purpose::kFill); }};
}

Role Bringer(std::string_view name, const BlockId& block, Purpose purpose) {
  return {.name = name, .act = [block, purpose](Player& player) {
            const auto [held, made] = player.Claim(block, purpose);
            if (made) ++player.world().tally[0];
            if (held) (void)player.Bring(held);
          }};
}

RingGeometry Slots(std::uint32_t slots, std::uint32_t shards = 1) {
  return {.shard_size = 64, .shards_per_block = shards, .slot_count = slots};
}

Scenario ReaderAndEvictor() {
  return {.name = "a reader and an evictor",
          .geometry = Slots(1),
          .prepare = [](World& world) { world.Put(kA); },
          .roles = {Reader(kA), Evictor(kB), Reaper(), SecondReaper()},
          .judge = {},
          .exhaust = true};
}

Scenario TwoReadersAndEvictor() {
  return {.name = "two readers and an evictor",
          .geometry = Slots(1),
          .prepare = [](World& world) { world.Put(kA); },
          .roles = {Reader(kA), Reader(kA), Evictor(kB), Reaper()},
          .judge = {},
          .preemptions_and_death = 2};
}

Scenario TwoEvictors() {
  return {.name = "two evictors and one slot",
          .geometry = Slots(1),
          .prepare = [](World& world) { world.Put(kA); },
          .roles = {Evictor(kB), Evictor(PlainId(3)), Reaper()},
          .judge = {},
          .exhaust = true};
}

// Whoever they are, the block is there once, and whole, when all have ended.
Scenario TwoClaimers(std::string_view name, Purpose one, Purpose other) {
  return {
      .name = name,
      .geometry = Slots(2),
      .prepare = [](World&) {},
      .roles = {Bringer("first claimer", kA, one), Bringer("second claimer", kA, other), Reaper()},
      .judge = [](World& world) -> std::string {
        SlotWord word;
        const std::uint32_t count = world.CountOf(kA, &word);
        if (world.somebody_died()) return {};
        if (count != 1) return "the block was brought by two and is not here";
        if (!word.complete()) return "the block is not whole";
        return world.tally[0] == 1 ? "" : "not exactly one has made the claim";
      },
      .preemptions_and_death = 2};
}

// Both shards are brought, one by each; exactly one sees that this made the block whole.
Scenario LastLandings(std::string_view name, Purpose purpose) {
  const auto act = [](std::uint32_t shard) {
    return [shard](Player& player) {
      const Held held = player.Find(kA);
      if (!held) return player.Fail("a block that is being brought is not found");
      if (player.BringShard(held, shard)) ++player.world().tally[0];
    };
  };
  return {.name = name,
          .geometry = Slots(1, 2),
          .prepare = [purpose](World& world) { (void)world.janitor().ClaimFor(kA, purpose); },
          .roles = {{.name = "one bringer", .act = act(0)},
                    {.name = "other bringer", .act = act(1)},
                    Reaper(),
                    SecondReaper()},
          .judge = [](World& world) -> std::string {
            SlotWord word;
            if (world.CountOf(kA, &word) != 1) return "the block is gone";
            if (world.somebody_died()) return {};
            if (!word.complete()) return "the block is not whole";
            return world.tally[0] == 1 ? "" : "not exactly one has made it whole";
          },
          .preemptions_and_death = 2};
}

Scenario LandingAndEvictor(std::string_view name, Purpose purpose) {
  return {.name = name,
          .geometry = Slots(1),
          .prepare = [purpose](World& world) { (void)world.janitor().ClaimFor(kA, purpose); },
          .roles = {{.name = "filler",
                     .act =
                         [](Player& player) {
                           const Held held = player.Find(kA);
                           if (held) (void)player.Bring(held);
                         }},
                    Evictor(kB),
                    Reaper(),
                    SecondReaper()},
          .judge = {},
          .exhaust = true};
}

Scenario Flushing(std::string_view name, Ring::Flush how) {
  return {.name = name,
          .geometry = Slots(1),
          .prepare = [](World& world) { world.PutDirtyOf(kA, PlaceOf(0)); },
          .roles = {{.name = "flusher",
                     .act =
                         [how](Player& player) {
                           if (!player.ring().BeginFlush(0)) return;
                           player.Rest();
                           player.ring().EndFlush(0, how);
                         }},
                    Evictor(kB),
                    Reader(kA),
                    Reaper(),
                    SecondReaper()},
          .judge = [how](World& world) -> std::string {
            if (how != Ring::Flush::kFailed || world.somebody_died()) return {};
            return world.CountOf(kA) == 1 ? "" : "a block that failed to be flushed is gone";
          },
          .preemptions_and_death = 2};
}

Scenario Leaving() {
  return {.name = "one leaves, another takes over",
          .geometry = Slots(2),
          .prepare =
              [](World& world) {
                world.PutDirtyOf(kA, PlaceOf(0));
                world.PutDirtyOf(kB, PlaceOf(0));
              },
          .roles = {{.name = "flusher",
                     .act =
                         [](Player& player) {
                           (void)player.ring().BeginFlush(0);
                           player.ring().EraseTraces(player.ring().place());
                         }},
                    {.name = "successor", .act = [](Player& player) { player.Reap(); }},
                    Reaper()},
          .judge = {},
          .exhaust = true};
}

Scenario Rewriting() {
  return {.name = "a rewriter and an evictor",
          .geometry = Slots(1),
          .prepare = [](World& world) { world.Put(kA); },
          .roles = {{.name = "rewriter",
                     .act =
                         [](Player& player) {
                           const Held held = player.Find(kA);
                           if (held && !player.ring().Rewrite(held.pin())) {
                             player.Fail("a clean block that is pinned cannot be rewritten");
                           }
                         }},
                    Evictor(kB),
                    Reaper()},
          .judge = {},
          .exhaust = true};
}

Scenario Touching() {
  return {.name = "uses and the hand",
          .geometry = Slots(1),
          .prepare = [](World& world) { world.Put(kA); },
          .roles = {{.name = "reader",
                     .act =
                         [](Player& player) {
                           std::uint8_t here = 0;
                           player.ring().Probe({&kA, 1}, true, &here);
                           const Held held = player.Find(kA);
                           if (held) player.ring().Touch(held.pin());
                         }},
                    Evictor(kB),
                    Reaper()},
          .judge = {}};
}

Scenario Discarding() {
  return {.name = "a discarder, a finder and an evictor",
          .geometry = Slots(2),
          .prepare = [](World&) {},
          .roles = {{.name = "discarder",
                     .act =
                         [](Player& player) {
                           auto [held, made] = player.Claim(kA, Purpose::kFill);
                           if (held) player.ring().Discard(held.Take());
                         }},
                    {.name = "finder",
                     .act =
                         [](Player& player) {
                           const Held held = player.Find(kA);
                           if (held) (void)player.Bring(held);
                         }},
                    Evictor(kA),
                    Reaper()},
          .judge = {},
          .preemptions = 3,
          .preemptions_and_death = 1,
          .preemptions_and_deaths = 0};
}

// One bucket for all, and all of its seven places taken: by the hints of two blocks that are here
// and of five lives that are over. Two claimers want a place, and so want to drop the same hints.
Scenario FullBucket() {
  return {.name = "inserts into a bucket full of stale hints",
          .geometry = Slots(5),
          .prepare =
              [](World& world) {
                world.Put(PlainId(11));
                world.Put(PlainId(12));
                for (auto& hint : world.arena().memory().buckets[0].hints) {
                  if (hint.load() != 0) continue;
                  hint.store(Hint(4, HintIndex::Hash(kA), 99).bits());
                }
              },
          .roles = {Bringer("first claimer", kA, Purpose::kFill),
                    Bringer("second claimer", kB, Purpose::kFill), Reaper()},
          .judge = [](World& world) -> std::string {
            if (world.somebody_died()) return {};
            return world.tally[0] == 2 ? "" : "a claim found no place for its hint";
          },
          .preemptions_and_death = 2};
}

// The same block is brought, evicted and brought again while its slot's hints come and go.
Scenario Returning() {
  return {.name = "a block that is evicted and brought again",
          .geometry = Slots(2),
          .prepare =
              [](World& world) {
                world.Put(kA);
                world.PutDirtyOf(kB, PlaceOf(5));
              },
          .roles = {Evictor(PlainId(3)), Bringer("claimer", kA, Purpose::kFill), Reaper()},
          .judge = {}};
}

}  // namespace

std::vector<Scenario> RingScenarios() {
  return {ReaderAndEvictor(),
          TwoReadersAndEvictor(),
          TwoEvictors(),
          TwoClaimers("two fillers of one block", Purpose::kFill, Purpose::kFill),
          TwoClaimers("a filler and a dumper of one block", Purpose::kFill, Purpose::kAssemble),
          TwoClaimers("two dumpers of one block", Purpose::kAssemble, Purpose::kAssemble),
          LastLandings("the last two landings of a fill", Purpose::kFill),
          LastLandings("the last two landings of a dump", Purpose::kAssemble),
          LandingAndEvictor("a filler and an evictor", Purpose::kFill),
          LandingAndEvictor("a dumper and an evictor", Purpose::kAssemble),
          Flushing("a flush that arrives", Ring::Flush::kArrived),
          Flushing("a flush that fails", Ring::Flush::kFailed),
          Flushing("a flush that is forsaken", Ring::Flush::kForsaken),
          Leaving(),
          Rewriting(),
          Touching(),
          Discarding(),
          FullBucket(),
          Returning()};
}

}  // namespace ucmstore::test
