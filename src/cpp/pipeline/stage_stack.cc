// SPDX-License-Identifier: Apache-2.0
//
// Building and ending.
#include "pipeline/stage_stack.h"

#include <algorithm>
#include <chrono>
#include <ranges>
#include <utility>

namespace ucmstore {
namespace {

// Even a Close that waits for nothing gives an idle stage this long to stop its threads.
constexpr milliseconds kLeastShare{100};

// False: the stage is left alone.
bool Destroy(BuiltStage& stage, milliseconds time) noexcept {
  try {
    return stage.plan.plugin->table().destroy(std::exchange(stage.store, nullptr),
                                              static_cast<std::uint32_t>(time.count()));
  } catch (...) {  // the ABI's edge: who knows what is left of it
    return false;
  }
}

// "stage "Posix" (spec column 7): <message>", unless the message names the stage itself.
Status Prefixed(const Status& status, const SpecStage& stage) {
  const std::string lower = LowerCase(status.text().substr(0, stage.label.size() + 1));
  if (lower == stage.label + ":") return status;
  return Status::Error(status.code, SpecPosition(stage) + ": " + std::string(status.text()),
                       status.sys_errno);
}

}  // namespace

Status StageStack::Build(std::vector<StagePlan> plans, const Context& context) {
  for (StagePlan& plan : plans) stages_.push_back({.plan = std::move(plan), .store = nullptr});
  const BuiltStage* below = nullptr;
  for (BuiltStage& stage : std::views::reverse(stages_)) {
    const Status status = SetUp(stage, below, context);
    if (!status.ok()) return Prefixed(status, stage.plan.spec);
    below = &stage;
  }
  return Status::Ok();
}

Status StageStack::SetUp(BuiltStage& stage, const BuiltStage* below, const Context& context) {
  const StagePlan& plan = stage.plan;
  try {
    stage.store = plan.plugin->table().create();
  } catch (...) {  // the ABI's edge
    return Status::Error(Code::kInternal, "its plugin threw an exception when asked for a stage");
  }
  if (stage.store == nullptr) {
    return Status::Error(Code::kLimit, "its plugin gave no stage: out of memory");
  }
  SetupV1 setup;
  if (below != nullptr) {
    setup.below = below->store;
    setup.below_plugin = &below->plan.plugin->table();
  }
  setup.shard_size = plan.shard_size;
  setup.shards_per_block = context.shards_per_block;
  setup.option_count = static_cast<std::uint32_t>(plan.options.values().size());
  setup.options = plan.options.values().data();
  setup.namespace_text = context.namespace_text.c_str();
  setup.namespace_label = context.namespace_label.c_str();
  std::ranges::copy(context.fingerprint, setup.fingerprint);
  setup.content = plan.content.c_str();
  setup.runtime = context.runtime;
  return stage.store->Setup(setup);
}

bool StageStack::End(TimePoint until, const std::function<bool(TimePoint)>& at_rest, Log& log) {
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    if (stages_[i].store == nullptr) continue;
    const TimePoint begin = std::chrono::steady_clock::now();
    const auto left = std::chrono::ceil<milliseconds>(until - begin);
    const auto sharers = static_cast<std::int64_t>(stages_.size() - i);
    const milliseconds share = std::max(kLeastShare, left / sharers);
    const bool freed = Destroy(stages_[i], share);
    // A task that has not ended is one of a stage further down, which passed through this one.
    if (freed && at_rest(std::max(begin + share, std::chrono::steady_clock::now()))) continue;
    log.Error([&] {
      return SpecPosition(stages_[i].plan.spec) + ": something still moves after " +
             std::to_string(share.count()) + " ms; it is left alone, with all that is below it";
    });
    return false;
  }
  return true;
}

}  // namespace ucmstore
