// SPDX-License-Identifier: Apache-2.0
//
// StageStack: the stages of one open store. Built from the bottom up, so that each finds the store
// below it ready; ended from the top down, so that each finds it alive to the end. A stage that
// says it has not come to rest is left alone for ever, and with it all that is below, which it may
// still call. Build and End: from one thread, once; the rest is thread-safe in between.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "pipeline/stage_plan.h"
#include "task/runtime.h"
#include "ucmstore/store_v1.h"

namespace ucmstore {

struct BuiltStage {
  StagePlan plan;
  StoreV1* store = nullptr;  // ended by plan.plugin's destroy, by nobody else
};

class StageStack {
 public:
  struct Context {
    std::uint32_t shards_per_block;
    std::string namespace_text;
    std::string namespace_label;
    std::array<std::uint8_t, 32> fingerprint;
    Runtime* runtime;
  };

  StageStack() = default;
  StageStack(const StageStack&) = delete;
  StageStack& operator=(const StageStack&) = delete;

  // On an error some stages exist: End follows in any case.
  [[nodiscard]] Status Build(std::vector<StagePlan> plans, const Context& context);

  [[nodiscard]] StoreV1* top() const noexcept { return stages_.front().store; }
  [[nodiscard]] const Plugin& top_plugin() const noexcept { return *stages_.front().plan.plugin; }
  [[nodiscard]] std::span<const BuiltStage> stages() const noexcept { return stages_; }

  // Ends the stages, each with its share of the time until `until`. `at_rest` says, after each,
  // whether no task of the engine moves any more, and may wait for it until the time it is given.
  // False: something was left alone; the runtime and this object must be, too.
  [[nodiscard]] bool End(TimePoint until, const std::function<bool(TimePoint)>& at_rest, Log& log);

 private:
  [[nodiscard]] Status SetUp(BuiltStage& stage, const BuiltStage* below, const Context& context);

  std::vector<BuiltStage> stages_;  // topmost first; those not built have no store
};

}  // namespace ucmstore
