// SPDX-License-Identifier: Apache-2.0
//
// ForwardStage: the SDK's base of a stage with a store below it. As it stands it passes every call
// down unchanged, task ids included, so an override is all that a stage has to write. Part of the
// SDK, NOT frozen: rebuild with each release. Thread-safety: StoreV1's.
//
// Two kinds of stages are made of it:
// - One that only looks at calls, or changes them, on their way down overrides Lookup, Load or Dump
//   and calls the base. The tasks stay those of the store below.
// - One whose tasks are not those of the store below (it moves bytes itself, splits a task, or does
//   something when a task ends) overrides all of Load, Dump, Check, Wait, Cancel and Close: it
//   keeps its tasks in a TaskTable, forwards with an on_done of its own, and retires the task below
//   inside that callback. Its Cancel ends what it has not forwarded yet and calls CancelBelow for
//   what it has; its Close does that for every task, then waits until no callback can come any
//   more. store/fault is the model.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "task/runtime.h"
#include "task/terminal_stage.h"

namespace ucmstore {

class ForwardStage : public StoreV1 {
 public:
  Status Setup(const SetupV1& setup) noexcept final;
  Status Lookup(const LookupDesc& desc, std::uint8_t* found) noexcept override;
  Status Load(const TaskDesc& desc, TaskId* task) noexcept override;
  Status Dump(const TaskDesc& desc, TaskId* task) noexcept override;
  Status Check(TaskId task, bool* done) noexcept override;
  Status Wait(TaskId task, std::uint32_t timeout_ms) noexcept override;

  virtual ~ForwardStage();
  ForwardStage(const ForwardStage&) = delete;
  ForwardStage& operator=(const ForwardStage&) = delete;

  // What PluginV1 needs; see stage_plugin.h.
  // True: nothing moves any more, the stage may be deleted. False: it must be left alone for ever.
  // An override calls this one last.
  [[nodiscard]] virtual bool Close(std::uint32_t timeout_ms) noexcept;
  virtual Status Cancel(TaskId task) noexcept;
  // See IdentityTableV1. As it stands: the blocks of the store below.
  [[nodiscard]] virtual std::string Identity() { return IdentityBelow(); }
  virtual void VisitMetrics(void* /*ctx*/,
                            void (* /*metric*/)(void* ctx, const MetricV1* metric)) noexcept {}

 protected:
  explicit ForwardStage(std::string name);

  // Opens the stage. The store below is set up already; `setup` lives as long as the stage. Called
  // once, from one thread; may throw.
  virtual Status Open(const StageSetup& /*setup*/) { return Status::Ok(); }

  [[nodiscard]] StoreV1& below() const noexcept { return *below_; }
  // An optional table of the store below, such as "remove/1"; null: it has none.
  [[nodiscard]] const void* QueryBelow(const char* table) const noexcept;
  // Whose blocks the store below reaches; "": nobody else's.
  [[nodiscard]] std::string IdentityBelow() const;
  // Cancels a task of the store below, at best. kUnsupported: the store below cannot.
  Status CancelBelow(TaskId task) noexcept;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const StageSetup& setup() const noexcept { return *setup_; }
  [[nodiscard]] Runtime& runtime() const noexcept { return *runtime_; }
  [[nodiscard]] Log& log() noexcept { return *log_; }

 private:
  const std::string name_;
  StoreV1* below_ = nullptr;
  const PluginV1* below_plugin_ = nullptr;
  std::unique_ptr<Runtime> own_runtime_;  // where the host gave none
  Runtime* runtime_ = nullptr;
  std::optional<StageSetup> setup_;
  std::optional<Log> log_;
};

}  // namespace ucmstore
