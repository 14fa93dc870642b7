// SPDX-License-Identifier: Apache-2.0
//
// What the assembler keeps for a block that is not visible yet, for a dump on its way, and for an
// aborted block. Private to assembly.cc; guarded by the assembler's mutex, except where a dump is
// alone with what it claimed.
#pragma once

#include <list>
#include <memory>
#include <span>
#include <vector>

#include "task/assembly.h"

namespace ucmstore {

enum class ShardState : std::uint8_t { kEmpty, kWriting, kLanded };
enum class Phase : std::uint8_t { kOpen, kCommitting, kEnded };

// One dump's shard that waits for another dump's write of the same shard.
struct Assembler::Follower {
  std::uint32_t index;
  std::size_t position;  // in its own dump
  EndShard end;
  Outcome outcome;
};

struct Assembler::Block {
  Block(const BlockId& block, std::uint32_t shards)
      : id(block), state(shards, ShardState::kEmpty), heard(shards, false), bytes(shards, 0) {}

  BlockId id;
  Phase phase = Phase::kOpen;
  std::uint32_t landed = 0;
  std::uint32_t active = 0;  // dumps between Admit and the end of Settle
  Status end;                // once kEnded: why it was aborted, or ok: it became visible
  std::unique_ptr<BlockWriter> writer;
  std::vector<ShardState> state;
  std::vector<bool> heard;
  std::vector<std::uint32_t> bytes;  // of landed shards, as stored
  std::list<Follower> followers;
  TimePoint touched;
  std::list<BlockPtr>::iterator place;  // in by_age_
};

struct Assembler::Tombstone {
  std::vector<bool> heard;
  TimePoint made;
  std::list<BlockId>::iterator place;
};

// One call of Dump.
struct Assembler::Dumping {
  const BlockId& id;
  std::span<ShardIo> shards;
  const EndShard& end;
  BlockPtr block;
  std::vector<Outcome> outcomes;     // by position
  std::vector<std::size_t> claimed;  // positions, in order
  std::vector<ShardIo> partial;      // the claimed shards, where they are not all
  bool last = false;                 // these are the last shards that the block lacks
  std::list<Follower> followers;     // those that end with this dump, of whatever dump
  std::vector<BlockPtr> dropped;
  std::unique_ptr<BlockWriter> writer;

  [[nodiscard]] std::span<ShardIo> writing() {
    return claimed.size() == shards.size() ? shards : std::span<ShardIo>(partial);
  }
};

}  // namespace ucmstore
