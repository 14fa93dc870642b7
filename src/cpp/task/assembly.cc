// SPDX-License-Identifier: Apache-2.0
//
// One dump's way through the assembler: admit, claim, write, settle. From the claims on nothing
// throws, so no claim can be lost to an exception and leave its followers waiting.
#include "task/assembly.h"

#include <algorithm>
#include <exception>
#include <new>
#include <string>

#include "base/hex.h"
#include "task/assembly_block.h"

namespace ucmstore {
namespace {

Status AbortedStatus(const BlockId& id, const char* why) noexcept {
  return ErrorInWords(Code::kAborted, why,
                      [&] { return "block " + ToHex(id) + " was given up: " + why; });
}

// Runs what may throw. The message says what was being done.
template <typename Function>
Status Guarded(const char* doing, Function&& function) noexcept {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return ErrorInWords(Code::kLimit, "out of memory",
                        [&] { return std::string("out of memory while ") + doing; });
  } catch (const std::exception& error) {
    return ErrorInWords(Code::kInternal, "an exception in the medium", [&] {
      return std::string("an exception while ") + doing + ": " + error.what();
    });
  } catch (...) {  // the worker's edge
    return Status::Error(Code::kInternal, "an unknown exception in the medium");
  }
}

}  // namespace

Assembler::Assembler(const AssemblyLimits& limits, AssemblyMedium medium, const Clock& clock)
    : limits_(limits), medium_(std::move(medium)), clock_(clock) {}

Assembler::~Assembler() = default;

void Assembler::Dump(const BlockId& block, std::span<ShardIo> shards, const EndShard& end) {
  bool being_assembled = false;
  {
    const MutexLock lock(mutex_);
    being_assembled = blocks_.contains(block);
  }
  if (!being_assembled && EndIfVisible(block, shards, end)) return;
  Dumping dumping{.id = block,
                  .shards = shards,
                  .end = end,
                  .block = nullptr,
                  .outcomes = std::vector<Outcome>(shards.size()),
                  .claimed = {},
                  .partial = {},
                  .followers = {},
                  .dropped = {},
                  .writer = nullptr};
  if (Admit(dumping)) {
    Write(dumping);
    Settle(dumping);
  }
  // What was given up leaves the medium before anybody hears of it.
  dumping.dropped.clear();
  dumping.writer.reset();
  // The cause first, then what it brought about: a task's first error is what Wait tells.
  for (const bool causes : {true, false}) {
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const Outcome& outcome = dumping.outcomes[i];
      const bool cause = !outcome.status.ok() && outcome.status.code != Code::kAborted;
      if (outcome.known && cause == causes) end(i, outcome.status, outcome.bytes);
    }
  }
  for (const Follower& follower : dumping.followers) {
    follower.end(follower.position, follower.outcome.status, follower.outcome.bytes);
  }
}

bool Assembler::EndIfVisible(const BlockId& block, std::span<ShardIo> shards, const EndShard& end) {
  // An error here is no reason to refuse: the write itself will tell.
  if (!medium_.visible(block).value_or(false)) return false;
  {
    const MutexLock lock(mutex_);
    if (const auto stone = tombstones_.find(block); stone != tombstones_.end()) {
      tombstones_by_age_.erase(stone->second.place);
      tombstones_.erase(stone);
    }
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    end(i, Status::Ok(), static_cast<std::uint32_t>(shards[i].bytes()));
  }
  return true;
}

bool Assembler::Admit(Dumping& dumping) {
  dumping.claimed.reserve(dumping.shards.size());
  const MutexLock lock(mutex_);
  if (const auto found = blocks_.find(dumping.id); found != blocks_.end()) {
    dumping.block = found->second;
  } else {
    if (EndLate(dumping)) return false;
    MakeRoom(dumping.dropped);
    auto block = std::make_shared<Block>(dumping.id, limits_.shards_per_block);
    const auto entry = blocks_.emplace(dumping.id, block).first;
    try {
      by_age_.push_back(block);
    } catch (...) {  // out of memory: both or none
      blocks_.erase(entry);
      throw;
    }
    block->place = std::prev(by_age_.end());
    dumping.block = std::move(block);
  }
  Touch(dumping.block);
  Claim(dumping);
  return true;
}

// Late shards of an aborted block: all of them unheard of by the attempt that was aborted.
bool Assembler::EndLate(Dumping& dumping) {
  const auto found = tombstones_.find(dumping.id);
  if (found == tombstones_.end()) return false;
  Tombstone& stone = found->second;
  const bool anew = std::ranges::any_of(
      dumping.shards, [&](const ShardIo& shard) { return stone.heard[shard.index()]; });
  if (!anew) {
    const Status status = AbortedStatus(
        dumping.id,
        "one of its shards failed, or it was incomplete for longer than incomplete_age_ms, or more "
        "than max_incomplete_blocks were; dump it anew");
    for (std::size_t i = 0; i < dumping.shards.size(); ++i) {
      stone.heard[dumping.shards[i].index()] = true;
      dumping.outcomes[i] = {.known = true, .bytes = 0, .status = status};
    }
  }
  if (anew || std::ranges::all_of(stone.heard, [](bool heard) { return heard; })) {
    tombstones_by_age_.erase(stone.place);
    tombstones_.erase(found);
  }
  return !anew;
}

void Assembler::Claim(Dumping& dumping) {
  try {
    for (std::size_t i = 0; i < dumping.shards.size(); ++i) ClaimShard(dumping, i);
    if (dumping.claimed.size() < dumping.shards.size()) {
      dumping.partial.reserve(dumping.claimed.size());
      for (const std::size_t i : dumping.claimed) dumping.partial.push_back(dumping.shards[i]);
    }
  } catch (...) {  // out of memory: nobody may wait for a claim that is never settled
    for (const std::size_t i : dumping.claimed) {
      dumping.block->state[dumping.shards[i].index()] = ShardState::kEmpty;
    }
    throw;
  }
  dumping.last = !dumping.claimed.empty() &&
                 dumping.block->landed + dumping.claimed.size() == limits_.shards_per_block;
  ++dumping.block->active;
}

void Assembler::ClaimShard(Dumping& dumping, std::size_t i) {
  Block& block = *dumping.block;
  const std::uint32_t index = dumping.shards[i].index();
  block.heard[index] = true;
  switch (block.state[index]) {
    case ShardState::kEmpty:
      block.state[index] = ShardState::kWriting;
      dumping.claimed.push_back(i);
      break;
    case ShardState::kWriting:
      if (block.followers.size() < limits_.max_followers) {
        block.followers.push_back(
            {.index = index, .position = i, .end = dumping.end, .outcome = {}});
      } else {
        dumping.outcomes[i] = {
            .known = true,
            .bytes = 0,
            .status = Status::Error(
                Code::kBusy, "too many dumps at once of one shard of block " + ToHex(block.id))};
      }
      break;
    case ShardState::kLanded:
      dumping.outcomes[i] = {.known = true, .bytes = block.bytes[index], .status = {}};
      break;
  }
}

Result<BlockWriter*> Assembler::Writer(Block& block) {
  const MutexLock lock(mutex_);
  if (block.phase == Phase::kEnded) return std::unexpected(block.end);
  if (block.writer == nullptr) {
    auto created = medium_.create(block.id);
    if (!created) return std::unexpected(created.error());
    block.writer = std::move(*created);
  }
  return block.writer.get();
}

void Assembler::Write(Dumping& dumping) noexcept {
  if (dumping.claimed.empty()) return;
  const std::span<ShardIo> writing = dumping.writing();
  Status failure = Guarded("writing", [&] {
    const Result<BlockWriter*> writer = Writer(*dumping.block);
    if (!writer) return writer.error();
    (*writer)->Write(writing, dumping.last);
    return Status::Error(Code::kInternal, "the medium left a shard without a result");
  });
  for (ShardIo& shard : writing) {
    if (!shard.ended()) shard.Fail(failure);
  }
}

void Assembler::Settle(Dumping& dumping) noexcept {
  Block& block = *dumping.block;
  const std::span<ShardIo> written =
      dumping.claimed.empty() ? std::span<ShardIo>() : dumping.writing();
  const auto failed =
      std::ranges::find_if(written, [](const ShardIo& shard) { return !shard.status().ok(); });
  bool commit = false;
  {
    const MutexLock lock(mutex_);
    if (block.phase != Phase::kEnded) {
      if (failed != written.end()) {
        Abort(dumping.block, failed->status());
      } else {
        commit = Land(block, written);
      }
    }
  }
  Status committed;
  if (commit) committed = Guarded("committing", [&] { return block.writer->Commit(); });

  const MutexLock lock(mutex_);
  if (commit && committed.ok()) {
    committed_.Add();
    block.phase = Phase::kEnded;
    Forget(dumping.block);
  } else if (commit) {
    Abort(dumping.block, committed);
  }
  for (std::size_t n = 0; n < dumping.claimed.size(); ++n) {
    Outcome& outcome = dumping.outcomes[dumping.claimed[n]];
    outcome = {.known = true, .bytes = written[n].stored_bytes(), .status = written[n].status()};
    if (outcome.status.ok() && !committed.ok()) outcome.status = committed;
    if (outcome.status.ok() && block.phase == Phase::kEnded) outcome.status = block.end;
  }
  EndFollowers(dumping);
  if (block.phase != Phase::kEnded) Touch(dumping.block);
  if (--block.active == 0 && block.phase == Phase::kEnded) dumping.writer = std::move(block.writer);
}

// Counts the shards in. True: the block is complete, and this dump is the one that commits it;
// until it has, the shards still count as being written, so that no other dump of them ends before.
bool Assembler::Land(Block& block, std::span<ShardIo> written) noexcept {
  for (const ShardIo& shard : written) {
    block.bytes[shard.index()] = shard.stored_bytes();
    written_bytes_.Add(shard.stored_bytes());
  }
  block.landed += static_cast<std::uint32_t>(written.size());
  if (!written.empty() && block.landed == limits_.shards_per_block) {
    block.phase = Phase::kCommitting;
    return true;
  }
  for (const ShardIo& shard : written) block.state[shard.index()] = ShardState::kLanded;
  return false;
}

void Assembler::EndFollowers(Dumping& dumping) noexcept {
  Block& block = *dumping.block;
  for (auto next = block.followers.begin(); next != block.followers.end();) {
    const auto follower = next++;
    const bool landed = block.state[follower->index] == ShardState::kLanded;
    if (block.phase != Phase::kEnded && !landed) continue;
    const Status end = block.phase == Phase::kEnded ? block.end : Status::Ok();
    follower->outcome = {
        .known = true, .bytes = end.ok() ? block.bytes[follower->index] : 0, .status = end};
    dumping.followers.splice(dumping.followers.end(), block.followers, follower);
  }
}

void Assembler::MakeRoom(std::vector<BlockPtr>& dropped) {
  // At most as many blocks have an active dump as there are workers, so the search is short.
  while (blocks_.size() >= limits_.max_blocks) {
    const auto oldest =
        std::ranges::find_if(by_age_, [](const BlockPtr& block) { return block->active == 0; });
    if (oldest == by_age_.end()) return;
    dropped.push_back(*oldest);
    Abort(dropped.back(), Status::Error(Code::kAborted, "too many incomplete blocks"));
  }
}

bool Assembler::Expire(const std::atomic<bool>& hurry) {
  std::vector<BlockPtr> dropped;
  const bool more = TakeExpired(dropped);
  for (BlockPtr& block : dropped) {  // outside the lock
    if (hurry.load() && block->writer != nullptr) block->writer->Abandon();
    block.reset();
  }
  return more;
}

bool Assembler::TakeExpired(std::vector<BlockPtr>& dropped) {
  const MutexLock lock(mutex_);
  const TimePoint limit = clock_.Now() - limits_.max_age;
  for (auto next = by_age_.begin(); next != by_age_.end() && (*next)->touched <= limit;) {
    const BlockPtr block = *next++;
    if (block->active > 0) continue;
    dropped.push_back(block);
    Abort(block, Status::Error(Code::kAborted, "incomplete too long"));
  }
  while (!tombstones_by_age_.empty()) {
    const auto oldest = tombstones_.find(tombstones_by_age_.front());
    if (oldest->second.made > limit) break;
    tombstones_.erase(oldest);
    tombstones_by_age_.pop_front();
  }
  return !by_age_.empty() || !tombstones_.empty();
}

void Assembler::Abort(const BlockPtr& block, const Status& why) noexcept {
  aborted_.Add();
  block->phase = Phase::kEnded;
  block->end = AbortedStatus(block->id, why.message);
  Forget(block);
  if (std::ranges::all_of(block->heard, [](bool heard) { return heard; })) return;
  try {
    tombstones_by_age_.push_back(block->id);
    const auto place = std::prev(tombstones_by_age_.end());
    tombstones_.insert_or_assign(
        block->id, Tombstone{.heard = block->heard, .made = clock_.Now(), .place = place});
  } catch (...) {  // out of memory: its late shards begin an incomplete block, which ages as any
    if (!tombstones_by_age_.empty() && !tombstones_.contains(tombstones_by_age_.back())) {
      tombstones_by_age_.pop_back();
    }
  }
  while (tombstones_.size() > limits_.max_blocks) {
    tombstones_.erase(tombstones_by_age_.front());
    tombstones_by_age_.pop_front();
  }
}

void Assembler::Forget(const BlockPtr& block) noexcept {
  by_age_.erase(block->place);
  blocks_.erase(block->id);
}

void Assembler::Touch(const BlockPtr& block) noexcept {
  block->touched = clock_.Now();
  by_age_.splice(by_age_.end(), by_age_, block->place);
}

std::vector<std::unique_ptr<BlockWriter>> Assembler::Clear() {
  std::vector<std::unique_ptr<BlockWriter>> writers;
  const MutexLock lock(mutex_);
  writers.reserve(by_age_.size());  // before anything is forgotten
  for (const BlockPtr& block : by_age_) {
    if (block->writer != nullptr) writers.push_back(std::move(block->writer));
  }
  by_age_.clear();
  blocks_.clear();
  tombstones_.clear();
  tombstones_by_age_.clear();
  return writers;
}

std::size_t Assembler::Incomplete() const {
  const MutexLock lock(mutex_);
  return blocks_.size();
}

std::size_t Assembler::Tombstones() const {
  const MutexLock lock(mutex_);
  return tombstones_.size();
}

}  // namespace ucmstore
