// SPDX-License-Identifier: Apache-2.0
//
// Pipeline::State: what an open store consists of, and the order in which it comes and goes. Every
// call passes through it: the mark (another process?), the gate (closed?), then the topmost stage.
// Thread-safe as the Pipeline is.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "pipeline/call_gate.h"
#include "pipeline/completions.h"
#include "pipeline/pipeline.h"
#include "pipeline/process_mark.h"
#include "pipeline/stage_stack.h"
#include "task/runtime.h"
#include "task/segments.h"

namespace ucmstore {

class Pipeline::State {
 public:
  [[nodiscard]] static Result<std::unique_ptr<State>> Open(const PipelineConfig& config,
                                                           const Namespace& name_space);
  // Ends the store as Close does, then frees it, if it may be freed at all.
  static void End(std::unique_ptr<State> state) noexcept;

  [[nodiscard]] Status Lookup(const LookupDesc& desc, std::uint8_t* found) noexcept;
  [[nodiscard]] Result<std::uint32_t> LookupPrefix(std::span<const BlockId> blocks,
                                                   std::uint32_t flags,
                                                   std::uint32_t timeout_ms) noexcept;
  [[nodiscard]] Result<TaskId> Submit(TaskKind kind, const TaskDesc& desc) noexcept;
  [[nodiscard]] Result<bool> Check(TaskId task) noexcept;
  [[nodiscard]] Status Wait(TaskId task, std::uint32_t timeout_ms) noexcept;
  [[nodiscard]] Status Cancel(TaskId task) noexcept;
  [[nodiscard]] int event_fd() noexcept;
  [[nodiscard]] std::size_t Poll(std::span<TaskId> tasks) noexcept;
  [[nodiscard]] std::vector<StageMetric> Stats();
  [[nodiscard]] const PipelineConfig& config() const noexcept { return config_; }
  [[nodiscard]] Status Close(std::uint32_t timeout_ms) noexcept;

 private:
  // How far Close has come.
  enum class Phase : std::uint8_t {
    kOpen,
    kClosing,    // some thread is at it
    kBusy,       // calls inside did not leave in time; Close may be tried again
    kClosed,     // all has ended
    kLeftAlone,  // something moves still, and will be left to itself for ever
  };
  class Call;

  explicit State(const PipelineConfig& config);
  [[nodiscard]] Status Start(const Namespace& name_space);
  [[nodiscard]] bool EndStages(TimePoint until);
  [[nodiscard]] Phase CloseOnce(TimePoint until);
  [[nodiscard]] Status CancelAtTop(TaskId task) noexcept;
  void AddMetric(std::vector<StageMetric>& metrics, const char* name, std::size_t value) const;
  static void LeaveAlone(std::unique_ptr<State> state) noexcept;

  const PipelineConfig config_;
  const ProcessMark mark_;
  std::uint32_t close_timeout_ms_ = 0;
  std::unique_ptr<Log> log_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Completions> completions_;
  StageStack stack_;
  CallGate gate_;
  std::atomic<TimePoint> close_until_{TimePoint::min()};  // set before the gate is shut

  Mutex close_mutex_;
  CondVar close_done_;
  Phase phase_ UCMSTORE_GUARDED_BY(close_mutex_) = Phase::kOpen;

  State* next_left_alone_ = nullptr;
};

}  // namespace ucmstore
