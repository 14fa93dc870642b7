// SPDX-License-Identifier: Apache-2.0
//
// Null: a terminal stage that accepts every dump and finds nothing. For measuring what is above it,
// and for switching storage off without touching the engine. Thread-safe.
#pragma once

#include "task/terminal_stage.h"

namespace ucmstore {

class NullStage final : public TerminalStage {
 public:
  NullStage() : TerminalStage("Null") {}

  // All of them keep the same blocks: none. So one ring in front serves them all.
  [[nodiscard]] std::string Identity() override { return "Null"; }

 protected:
  Status Open(const StageSetup& setup) override;
  Status Find(std::span<const BlockId> blocks, std::uint32_t flags, std::uint8_t* found) override;
  void Read(const BlockId& block, std::span<ShardIo> shards) override;
  Result<std::unique_ptr<BlockWriter>> Create(const BlockId& block) override;
};

}  // namespace ucmstore
