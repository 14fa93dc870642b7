// SPDX-License-Identifier: Apache-2.0
//
// Setting up a stage with a store below it, and passing calls down.
#include "task/forward_stage.h"

#include <exception>

namespace ucmstore {

ForwardStage::ForwardStage(std::string name) : name_(std::move(name)) {}

ForwardStage::~ForwardStage() = default;

Status ForwardStage::Setup(const SetupV1& setup) noexcept {
  try {
    if (setup.struct_size < sizeof(SetupV1)) {
      return Status::Error(Code::kInvalidArgument, name_ + ": SetupV1.struct_size is " +
                                                       std::to_string(setup.struct_size) +
                                                       ", not " + std::to_string(sizeof(SetupV1)));
    }
    if (setup.below == nullptr) {
      return Status::Error(Code::kInvalidArgument,
                           name_ +
                               " needs a stage below it: end the spec with a terminal stage, "
                               "as in \"" +
                               name_ + "|Posix\"");
    }
    below_ = setup.below;
    below_plugin_ = setup.below_plugin;
    runtime_ = Runtime::FromSetup(setup);
    if (runtime_ == nullptr) {
      own_runtime_ = std::make_unique<Runtime>(RuntimeOptions{});
      runtime_ = own_runtime_.get();
    }
    log_.emplace(runtime_->log_sink(), name_);
    setup_.emplace(setup);
    return Open(*setup_);
  } catch (const std::exception& error) {
    return ErrorInWords(Code::kInternal, "setup failed with an exception",
                        [&] { return name_ + ": setup failed: " + error.what(); });
  } catch (...) {  // the ABI's edge
    return Status::Error(Code::kInternal, "setup failed with an unknown exception");
  }
}

Status ForwardStage::Lookup(const LookupDesc& desc, std::uint8_t* found) noexcept {
  return below_->Lookup(desc, found);
}

Status ForwardStage::Load(const TaskDesc& desc, TaskId* task) noexcept {
  return below_->Load(desc, task);
}

Status ForwardStage::Dump(const TaskDesc& desc, TaskId* task) noexcept {
  return below_->Dump(desc, task);
}

Status ForwardStage::Check(TaskId task, bool* done) noexcept { return below_->Check(task, done); }

Status ForwardStage::Wait(TaskId task, std::uint32_t timeout_ms) noexcept {
  return below_->Wait(task, timeout_ms);
}

bool ForwardStage::Close(std::uint32_t timeout_ms) noexcept {
  return own_runtime_ == nullptr || own_runtime_->Shutdown(timeout_ms);
}

Status ForwardStage::Cancel(TaskId task) noexcept { return CancelBelow(task); }

const void* ForwardStage::QueryBelow(const char* table) const noexcept {
  if (below_plugin_ == nullptr || below_plugin_->query == nullptr) return nullptr;
  return below_plugin_->query(below_, table);
}

std::string ForwardStage::IdentityBelow() const {
  const auto* table = static_cast<const IdentityTableV1*>(QueryBelow("identity/1"));
  if (table == nullptr || table->struct_size < sizeof(IdentityTableV1)) return {};
  std::string identity;
  table->identity(below_, &identity,
                  [](void* ctx, const char* text) { *static_cast<std::string*>(ctx) = text; });
  return identity;
}

Status ForwardStage::CancelBelow(TaskId task) noexcept {
  const auto* cancel = static_cast<const CancelTableV1*>(QueryBelow("cancel/1"));
  if (cancel == nullptr || cancel->struct_size < sizeof(CancelTableV1)) {
    return Status::Error(Code::kUnsupported, "the stage below cannot cancel a task");
  }
  return cancel->cancel(below_, task);
}

}  // namespace ucmstore
