// SPDX-License-Identifier: Apache-2.0
//
// Processes that are really killed, with SIGKILL, at each pause point of the ring in turn, and
// another process that is attached to the same segment, hears of it from the kernel, reaps and goes
// on. The explorer (ring_explorer_test.cc) goes through the interleavings; here the deaths, the
// liveness and the segment are real.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <csignal>
#include <set>
#include <tuple>

#include "posix/children.h"
#include "shm/attachment.h"
#include "shm/ring_fixture.h"
#include "shm/segment_fixture.h"

namespace ucmstore::test {
namespace {

using Purpose = Ring::Purpose;
using Point = std::tuple<Step, Transition, Moment>;

// Where the process dies. The page is shared, so that the others learn where that was.
struct Plan {
  std::uint64_t dies_at = 0;  // the number of the pause point; 0: never
  std::uint64_t passed = 0;
  Pause last{};
};
Plan* const plan = static_cast<Plan*>(
    ::mmap(nullptr, sizeof(Plan), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));

void DieThere(const Pause& pause) {
  plan->last = pause;
  if (++plan->passed == plan->dies_at) ::raise(SIGKILL);
}

void DieAfter(Transition transition) {
  static Transition chosen;
  chosen = transition;
  pause_hook = [](const Pause& pause) {
    const bool here = pause.step == Step::kSwap && pause.moment == Moment::kAfter;
    if (here && pause.transition == chosen) ::raise(SIGKILL);
  };
}

std::byte StampOf(const BlockId& block, std::uint32_t shard) {
  return static_cast<std::byte>(HintIndex::Hash(block) * 31 + shard + 1);
}

void Bring(Ring& ring, const Pin& pin, const BlockId& block) {
  for (std::uint32_t shard = 0; shard < ring.memory().shards(); ++shard) {
    if (!ring.BeginShard(pin, shard)) continue;
    std::memset(ring.DataOf(pin, shard), static_cast<int>(StampOf(block, shard)), 4096);
    (void)ring.LandShard(pin, shard, 4096);
  }
}

// The slot that holds it now.
std::uint32_t Put(Ring& ring, std::uint64_t number, Purpose purpose) {
  const Ring::Claim claim = ring.ClaimFor(PlainId(number), purpose);
  if (!claim.pin) return UINT32_MAX;
  Bring(ring, claim.pin, PlainId(number));
  return claim.pin.slot();
}

void FlushAll(Ring& ring) {
  ring.AdoptDirty([&](std::uint32_t slot) {
    if (ring.BeginFlush(slot)) ring.EndFlush(slot, Ring::Flush::kArrived);
  });
}

class RingDeaths : public SegmentTest {
 protected:
  using Script = std::function<void(Attachment&)>;

  [[nodiscard]] SegmentRequest Numbered(std::uint64_t number) const {
    SegmentRequest request = Request(kBlocks * 8192 + 24576);
    request.name = "deaths-" + std::to_string(number);
    request.shards_per_block = 2;
    return request;
  }
  static std::shared_ptr<Attachment> Attach(const SegmentRequest& request) {
    auto attachment = Attachment::Open(request, kLongAge);
    EXPECT_TRUE(attachment.has_value()) << attachment.error().text();
    return attachment ? *attachment : nullptr;
  }
  // Runs the script in a process of its own, which `hook` may end. True: it was killed.
  static bool InProcess(const SegmentRequest& request, const std::function<void()>& hook,
                        const Script& script) {
    Children children;
    children.Start([&]() -> std::string {
      hook();
      const auto attachment = Attachment::Open(request, kLongAge);
      if (!attachment) return std::string(attachment.error().text());
      script(**attachment);
      return {};
    });
    const int code = children.Finish().front();
    EXPECT_TRUE(code == 0 || code == 128 + SIGKILL) << "exit status " << code;
    return code != 0;
  }

  // With all the dead reaped by `survivor`.
  static std::string Problem(Attachment& survivor) {
    Ring& ring = survivor.ring();
    FlushAll(ring);
    const RingMemory& memory = ring.memory();
    if (std::string left = WhatIsLeft(memory); !left.empty()) return left;
    for (std::uint32_t slot = 0; slot < memory.slot_count(); ++slot) {
      const SlotWord word = WordIn(memory, slot);
      if (!word.decided()) continue;
      if (word.state() > SlotState::kClean) return "a block that is never written back";
      const BlockId block = IdIn(memory, slot);
      const Pin pin = ring.Find(block);
      if (!pin || pin.slot() != slot) return "a block that is here is not found";
      for (std::uint32_t shard = 0; word.complete() && shard < memory.shards(); ++shard) {
        const std::byte* data = memory.DataOf(slot, shard);
        const std::byte stamp = StampOf(block, shard);
        if (std::any_of(data, data + 4096, [stamp](std::byte byte) { return byte != stamp; })) {
          return "wrong bytes";
        }
      }
    }
    std::vector<Pin> pins;
    for (std::uint64_t i = 0; i < memory.slot_count(); ++i) {
      Ring::Claim claim = ring.ClaimFor(PlainId(1'000'000 + i), Purpose::kFill);
      if (!claim.made) return "a slot has leaked";
      pins.push_back(std::move(claim.pin));
    }
    return {};
  }

  // The script again and again, killed one pause point later each time, until it is not reached.
  // `before`: what other processes have done, and left, when it begins.
  void DieEverywhere(const std::function<void(const SegmentRequest&)>& before,
                     const Script& script) {
    ASSERT_NE(plan, MAP_FAILED);
    for (std::uint64_t point = 1;; ++point) {
      const SegmentRequest request = Numbered(point);
      const auto survivor = Attach(request);
      ASSERT_NE(survivor, nullptr);
      before(request);
      *plan = {.dies_at = point, .passed = 0, .last = {}};
      const bool died = InProcess(request, [] { pause_hook = &DieThere; }, script);
      (void)survivor->Reap();
      ASSERT_EQ(survivor->Reap(), 0U);
      ASSERT_EQ(Problem(*survivor), "") << "died at pause point " << point;
      if (!died) break;
      died_at_.insert({plan->last.step, plan->last.transition, plan->last.moment});
      survivor->UnlinkAtEnd();
    }
  }
  void ExpectDeathsAt(std::initializer_list<Transition> transitions) const {
    for (const Transition transition : transitions) {
      for (const Moment moment : {Moment::kBefore, Moment::kAfter}) {
        EXPECT_TRUE(died_at_.contains({Step::kSwap, transition, moment}))
            << RowOf(transition).name << (moment == Moment::kBefore ? ", before" : ", after");
      }
    }
  }

  static constexpr std::uint64_t kBlocks = 4;
  std::set<Point> died_at_;
};

TEST_F(RingDeaths, E01_OfWhoBringsUsesEvictsAndFlushes) {
  const auto nothing = [](const SegmentRequest&) {};
  DieEverywhere(nothing, [](Attachment& attachment) {
    Ring& ring = attachment.ring();
    (void)Put(ring, 1, Purpose::kFill);
    {
      const Pin pin = ring.Find(PlainId(1));
      ring.Touch(pin);
      if (ring.Rewrite(pin) && ring.BeginFlush(pin.slot())) {
        ring.EndFlush(pin.slot(), Ring::Flush::kForsaken);
      }
    }
    const std::uint32_t dirty = Put(ring, 2, Purpose::kAssemble);
    for (const auto how : {Ring::Flush::kFailed, Ring::Flush::kArrived}) {
      if (ring.BeginFlush(dirty)) ring.EndFlush(dirty, how);
    }
    ring.Discard(ring.ClaimFor(PlainId(3), Purpose::kFill).pin);
    for (std::uint64_t number = 4; number < 10; ++number) (void)Put(ring, number, Purpose::kFill);
    (void)Put(ring, 10, Purpose::kAssemble);  // and leaves it, dirty
  });
  using enum Transition;
  ExpectDeathsAt({kClaim, kPropose, kDecideFilling, kDecideAssembling, kFilled, kAssembled, kTouch,
                  kRewrite, kFlush, kFlushed, kFlushFailed, kForsake, kDrain, kEvict, kGiveUp,
                  kPass, kLeave});
}

// Somebody has died before it, with a dirty block and a slot half claimed, or while it evicted.
TEST_F(RingDeaths, E01_OfTheReaper) {
  const auto reap = [](Attachment& attachment) {
    (void)attachment.Reap();
    FlushAll(attachment.ring());
  };
  const auto claimer = [](Attachment& attachment) {
    (void)Put(attachment.ring(), 1, Purpose::kAssemble);
    const Ring::Claim part = attachment.ring().ClaimFor(PlainId(2), Purpose::kAssemble);
    EXPECT_TRUE(attachment.ring().BeginShard(part.pin, 0));
    DieAfter(Transition::kPropose);
    (void)Put(attachment.ring(), 3, Purpose::kFill);
  };
  const auto evictor = [](Attachment& attachment) {
    DieAfter(Transition::kDrain);
    for (std::uint64_t i = 1; i < 7; ++i) (void)Put(attachment.ring(), i, Purpose::kFill);
  };
  const auto no_hook = [] {};
  DieEverywhere(
      [&](const SegmentRequest& request) { EXPECT_TRUE(InProcess(request, no_hook, claimer)); },
      reap);
  DieEverywhere(
      [&](const SegmentRequest& request) { EXPECT_TRUE(InProcess(request, no_hook, evictor)); },
      reap);
  using enum Transition;
  ExpectDeathsAt({kErase, kAdopt, kCallOff});
}

}  // namespace
}  // namespace ucmstore::test
