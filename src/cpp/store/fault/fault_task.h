// SPDX-License-Identifier: Apache-2.0
//
// FaultTask: a task on its way through a Fault stage, with the plan and the phase of each shard;
// and Leg, the part of it that the store below has got as a task of its own. Everything mutable in
// both is guarded by the stage's mutex.
#pragma once

#include <memory>
#include <vector>

#include "store/fault/rules.h"
#include "task/task.h"
#include "task/timer.h"

namespace ucmstore {

class FaultStage;

class FaultTask final : public Task {
 public:
  enum class Phase : std::uint8_t {
    kWaiting,  // not begun: a deadline or a cancel ends it
    kMoving,   // begun: at a stop of ours, or below
    kEnded,
  };
  struct Run {
    fault::Plan plan;
    Phase phase = Phase::kWaiting;
    Status moved;             // how it ended below
    std::uint32_t bytes = 0;  // likewise
    [[nodiscard]] bool Direct() const {
      const auto free = [](const fault::Plan::Stop& stop) {
        return stop.delay_ms == 0 && stop.hold_rule == 0 && !stop.failure;
      };
      return !plan.throws && free(plan.at(fault::Point::kBefore)) &&
             free(plan.at(fault::Point::kMoving));
    }
  };
  // A part of the task in flight below. Dies with the callback from there.
  struct Leg {
    FaultStage& stage;
    std::shared_ptr<FaultTask> task;
    std::vector<std::size_t> positions;
    std::vector<Shard> shards = {};
    std::vector<ShardResult> results = {};
    TaskId below = 0;        // 0: not known yet
    bool cancelled = false;  // before it was known
  };

  FaultTask(TaskKind kind, const TaskDesc& desc, FaultStage& stage);

  // Writes nonsense over the destinations of the shards whose rule says so.
  void Scribble(const Run& run, std::size_t i) const noexcept;

  FaultStage& stage;
  const std::uint64_t tenant;
  const TimePoint deadline;  // TimePoint::max(): none
  std::vector<Run> runs;
  std::vector<Leg*> legs;  // in flight
  Timer::EntryId deadline_entry = 0;
  bool scribbled = false;

 private:
  void OnFinish() noexcept override;
};

}  // namespace ucmstore
