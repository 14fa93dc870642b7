// SPDX-License-Identifier: Apache-2.0
//
// The way of a dump: into a slot, where the last shard makes the block visible; past the ring where
// there is no slot; nowhere if the block is visible already.
#include <algorithm>
#include <chrono>

#include "store/cache/cache_stage.h"
#include "task/segments.h"

namespace ucmstore {
namespace {

constexpr int kLooks = 8;                         // at a slot that changes under the dump's hands
constexpr milliseconds kPatienceForSlot{10'000};  // with a ring full of dirty blocks

std::uint32_t BytesOf(const Shard& shard) {
  return static_cast<std::uint32_t>(TotalBytes({shard.segments, shard.segment_count}));
}

void EndAsDumped(const CacheTaskPtr& task, const std::vector<std::uint32_t>& positions) {
  for (const std::uint32_t i : positions) {
    task->EndWaiting(i, Status::Ok(), BytesOf(task->shards()[i]));
  }
}

}  // namespace

std::vector<std::uint32_t> CacheStage::IndexesOf(const CacheTask& task,
                                                 const Positions& positions) const {
  std::vector<std::uint32_t> indexes;
  for (const std::uint32_t i : positions) indexes.push_back(task.shards()[i].index);
  return indexes;
}

bool CacheStage::IsWholeBlock(const CacheTask& task, const Positions& positions) const {
  std::vector<bool> given(setup().shards_per_block);
  for (const std::uint32_t i : positions) given[task.shards()[i].index] = true;
  return std::ranges::all_of(given, [](bool one) { return one; });
}

void CacheStage::DumpRun(const CacheTaskPtr& task, const Positions& positions, Turn turn,
                         BelowAnswers& below, std::size_t k) {
  const BlockId block = task->shards()[positions.front()].block;
  for (int looks = 0; looks < kLooks; ++looks) {
    if (Pin pin = ring().Find(block)) {
      if (DumpInto(std::move(pin), task, positions, below, k)) return;
      continue;
    }
    // Of a visible block the first bytes stay, and nothing is to be written.
    if (looks == 0 ? below.Has(k) : BelowHas(block)) {
      unfinished_->Forget(block);
      EndAsDumped(task, positions);
      return;
    }
    if (unfinished_->AreLate(block, IndexesOf(*task, positions))) {
      EndAll(task, positions,
             Status::Error(Code::kAborted,
                           "this block was given up while it was incomplete; dump all of it"));
      return;
    }
    Ring::Claim claim = ring().ClaimFor(block, Ring::Purpose::kAssemble);
    if (!claim.pin) {
      DumpWithoutSlot(task, positions, std::move(turn));
      return;
    }
    if (DumpInto(std::move(claim.pin), task, positions, below, k)) return;
  }
  EndAll(task, positions,
         Status::Error(Code::kBusy, "the block's slot changes hands again and again"));
}

bool CacheStage::DumpInto(Pin pin, const CacheTaskPtr& task, const Positions& positions,
                          BelowAnswers& below, std::size_t k) {
  const SlotState state = ring().WordOf(pin).state();
  if (state == SlotState::kAssembling) {
    DumpIntoAssembling(std::move(pin), task, positions);
    return true;
  }
  const BlockId block = task->shards()[positions.front()].block;
  if (state >= SlotState::kClean) {
    DumpIntoVisible(pin, task, positions, below, k);
    return true;
  }
  // Being filled, so it was below not long ago.
  if (BelowHas(block)) {
    EndAsDumped(task, positions);
    return true;
  }
  const std::uint64_t generation = pin.generation();
  ring().Discard(std::move(pin));
  const Pin still = ring().Find(block);
  if (!still || still.generation() != generation) return false;
  // Somebody is loading it, and will soon find that it is gone.
  WaitForAChange(task, positions);
  return true;
}

void CacheStage::DumpIntoVisible(const Pin& pin, const CacheTaskPtr& task,
                                 const Positions& positions, BelowAnswers& below, std::size_t k) {
  SeeThatItGetsBelow(pin, task->shards()[positions.front()].block, below, k);
  const SlotWord word = ring().WordOf(pin);
  if (!through_ || word.state() == SlotState::kClean) {
    EndAsDumped(task, positions);
  } else if (ring().IsMine(word.owner())) {
    write_back_->Follow(pin.slot(), task, positions);
    write_back_->Add(pin.slot());
  } else {
    WaitForAChange(task, positions);  // another process sees to it
  }
}

void CacheStage::SeeThatItGetsBelow(const Pin& pin, const BlockId& block, BelowAnswers& below,
                                    std::size_t k) {
  unfinished_->Forget(block);
  // Removed below since it came here: what is confirmed now must get there again.
  const SlotWord word = ring().WordOf(pin);
  if (word.state() == SlotState::kClean && !below.Has(k) && ring().Rewrite(pin)) {
    write_back_->Add(pin.slot());
  }
}

void CacheStage::DumpIntoAssembling(Pin pin, const CacheTaskPtr& task, const Positions& positions) {
  const BlockId block = task->shards()[positions.front()].block;
  Positions moved;
  Positions there;
  Positions moving;  // by others
  // From the first BeginShard on nothing may throw: nobody else would ever end that shard.
  for (Positions* each : {&moved, &there, &moving}) each->reserve(positions.size());
  bool complete = false;
  for (const std::uint32_t i : positions) {
    const Shard& shard = task->shards()[i];
    if (ring().BeginShard(pin, shard.index)) {
      if (!task->BeginMove(i)) {
        ring().AbandonShard(pin, shard.index);
        continue;
      }
      const std::uint32_t bytes = BytesOf(shard);
      (void)Gather({shard.segments, shard.segment_count}, {ring().DataOf(pin, shard.index), bytes});
      complete = ring().LandShard(pin, shard.index, bytes) || complete;
      moved.push_back(i);
    } else if (ring().ShardState(pin, shard.index) == kShardLanded) {
      there.push_back(i);
    } else {
      moving.push_back(i);
    }
  }
  // Who landed the last one may have stopped, or died, before it could say so.
  complete = complete || ring().CompleteIfWhole(pin);
  // What has moved ends, whatever happens; or waits to be below.
  try {
    if (complete) {
      unfinished_->Forget(block);
      if (through_) {
        write_back_->Follow(pin.slot(), task, moved);
        for (const std::uint32_t i : moved) task->EndMove(i);
        moved.clear();
      }
      write_back_->Note(pin.slot());
    } else if (!moved.empty()) {
      unfinished_->Note(block, pin, IndexesOf(*task, moved));
      ScheduleExpiry();
    }
  } catch (const std::exception&) {
    // Out of memory for the records: the ring bounds its blocks, and Close looks for dirty ones.
  }
  // Before the end is told: whoever hears of it may want the block given up, or evicted.
  if (moving.empty()) pin.Release();
  for (const std::uint32_t i : moved) task->EndMoved(i, Status::Ok(), BytesOf(task->shards()[i]));
  EndAsDumped(task, there);
  for (const std::uint32_t i : moving) WaitForShard(task, i, pin);
}

void CacheStage::DumpWithoutSlot(const CacheTaskPtr& task, const Positions& positions, Turn turn) {
  Reap();
  write_back_->Pump();  // so that there are slots again
  if (IsWholeBlock(*task, positions)) {
    if (!turn) turn = TakeTurn(task, positions);
    if (turn) GoPast(task, positions, std::move(turn));
    return;
  }
  // Parts must meet in one place, and below they would not meet those of other processes.
  dump_waits_for_room_.Add();
  WaitForAChange(task, positions);
}

// The task's deadline, if it comes first, is the timer's to keep: one of the two says why it ended.
void CacheStage::WaitForAChange(const CacheTaskPtr& task, const Positions& positions) {
  ShardWait wait{.task = task,
                 .positions = positions,
                 .pin = {},
                 .shard = 0,
                 .give_up = task->begun + kPatienceForSlot};
  if (Status status = watch_->Add(wait); !status.ok()) EndAll(task, positions, status);
}

}  // namespace ucmstore
