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
#include <type_traits>
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
  // Calls use(book) inside the store.
  template <typename Use>
  [[nodiscard]] auto WithLeases(Use&& use)
      -> std::invoke_result_t<Use, const std::shared_ptr<LeaseBookHandle>&>;
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
  [[nodiscard]] Result<std::shared_ptr<LeaseBookHandle>> OpenBook();
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

  Mutex lease_mutex_;
  // Opened when first asked for; shared with the leases.
  std::shared_ptr<LeaseBookHandle> lease_book_ UCMSTORE_GUARDED_BY(lease_mutex_);

  Mutex close_mutex_;
  CondVar close_done_;
  Phase phase_ UCMSTORE_GUARDED_BY(close_mutex_) = Phase::kOpen;

  State* next_left_alone_ = nullptr;
};

// One call, from the door in to the door out.
class Pipeline::State::Call {
 public:
  explicit Call(State& state) noexcept;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    if (ok()) state_.gate_.Leave();
  }
  [[nodiscard]] bool ok() const noexcept { return refusal_ == nullptr; }
  [[nodiscard]] Status refusal() const noexcept { return refusal_(); }

 private:
  State& state_;
  Status (*refusal_)() noexcept = nullptr;
};

template <typename Use>
auto Pipeline::State::WithLeases(Use&& use)
    -> std::invoke_result_t<Use, const std::shared_ptr<LeaseBookHandle>&> {
  const Call call(*this);
  if (!call.ok()) return std::unexpected(call.refusal());
  const Result<std::shared_ptr<LeaseBookHandle>> book = OpenBook();
  if (!book) return std::unexpected(book.error());
  return use(*book);
}

}  // namespace ucmstore
