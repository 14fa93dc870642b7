// SPDX-License-Identifier: Apache-2.0
//
// The face of an open store; what it is made of is in state.h.
#include "pipeline/pipeline.h"

#include <new>
#include <utility>

#include "pipeline/state.h"

namespace ucmstore {

Pipeline::Pipeline(std::unique_ptr<State> state) : state_(std::move(state)) {}

Pipeline::~Pipeline() { State::End(std::move(state_)); }

Result<std::unique_ptr<Pipeline>> Pipeline::Open(const PipelineConfig& config,
                                                 const Namespace& name_space) {
  Result<std::unique_ptr<State>> state = State::Open(config, name_space);
  if (!state) return std::unexpected(state.error());
  return std::unique_ptr<Pipeline>(new Pipeline(*std::move(state)));
}

Status Pipeline::Lookup(const LookupDesc& desc, std::uint8_t* found) noexcept {
  return state_->Lookup(desc, found);
}

Result<std::uint32_t> Pipeline::LookupPrefix(std::span<const BlockId> blocks, std::uint32_t flags,
                                             std::uint32_t timeout_ms) noexcept {
  return state_->LookupPrefix(blocks, flags, timeout_ms);
}

Result<TaskId> Pipeline::Load(const TaskDesc& desc) noexcept {
  return state_->Submit(TaskKind::kLoad, desc);
}

Result<TaskId> Pipeline::Dump(const TaskDesc& desc) noexcept {
  return state_->Submit(TaskKind::kDump, desc);
}

Result<TaskId> Pipeline::Prefetch(std::span<const BlockId> blocks,
                                  std::uint32_t timeout_ms) noexcept {
  const std::uint32_t shards_per_block = config().shards_per_block;
  if (blocks.size() > UINT32_MAX / shards_per_block) {
    return Failure(Code::kInvalidArgument, "prefetch of more than 2^32 - 1 shards");
  }
  try {
    std::vector<Shard> shards;
    shards.reserve(blocks.size() * shards_per_block);
    for (const BlockId& block : blocks) {
      for (std::uint32_t index = 0; index < shards_per_block; ++index) {
        shards.push_back({.block = block, .segments = nullptr, .segment_count = 0, .index = index});
      }
    }
    TaskDesc desc;
    desc.shards = shards.data();
    desc.shard_count = static_cast<std::uint32_t>(shards.size());
    desc.timeout_ms = timeout_ms;
    return Load(desc);
  } catch (const std::bad_alloc&) {
    return Failure(Code::kLimit, "out of memory for a prefetch");
  }
}

Result<bool> Pipeline::Check(TaskId task) noexcept { return state_->Check(task); }

Status Pipeline::Wait(TaskId task, std::uint32_t timeout_ms) noexcept {
  return state_->Wait(task, timeout_ms);
}

Status Pipeline::Cancel(TaskId task) noexcept { return state_->Cancel(task); }

int Pipeline::event_fd() const noexcept { return state_->event_fd(); }

std::size_t Pipeline::Poll(std::span<TaskId> tasks) noexcept { return state_->Poll(tasks); }

std::vector<StageMetric> Pipeline::Stats() const { return state_->Stats(); }

const PipelineConfig& Pipeline::config() const noexcept { return state_->config(); }

std::uint64_t Pipeline::block_size() const noexcept {
  return config().shard_size * config().shards_per_block;
}

Status Pipeline::Close(std::uint32_t timeout_ms) noexcept { return state_->Close(timeout_ms); }

}  // namespace ucmstore
