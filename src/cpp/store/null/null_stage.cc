// SPDX-License-Identifier: Apache-2.0
//
// Everything goes nowhere.
#include "store/null/null_stage.h"

namespace ucmstore {
namespace {

class NullWriter final : public BlockWriter {
 public:
  void Write(std::span<ShardIo> shards, bool /*last*/) override {
    for (ShardIo& shard : shards) shard.Succeed(static_cast<std::uint32_t>(shard.bytes()));
  }
  Status Commit() override { return Status::Ok(); }
};

}  // namespace

Status NullStage::Open(const StageSetup& /*setup*/) { return Status::Ok(); }

Status NullStage::Find(std::span<const BlockId> /*blocks*/, std::uint32_t /*flags*/,
                       std::uint8_t* /*found*/) {
  return Status::Ok();  // `found` comes zeroed
}

void NullStage::Read(const BlockId& /*block*/, std::span<ShardIo> shards) {
  for (ShardIo& shard : shards) {
    shard.Fail(Status::Error(Code::kNotFound, "Null keeps nothing"));
  }
}

Result<std::unique_ptr<BlockWriter>> NullStage::Create(const BlockId& /*block*/) {
  return std::make_unique<NullWriter>();
}

}  // namespace ucmstore
