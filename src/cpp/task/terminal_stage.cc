// SPDX-License-Identifier: Apache-2.0
//
// The six methods of a terminal stage: no exception leaves them, and each error names the stage.
#include "task/terminal_stage.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <exception>

#include "task/stage_core.h"

namespace ucmstore {
namespace {

// The ABI's edge: whatever is thrown inside becomes a status, and an error gets the stage's name.
template <typename Function>
Status AtEdge(const std::string& stage, Function&& function) noexcept {
  try {
    Status status = function();
    if (status.ok() || status.code == Code::kPending) return status;
    return Status::Error(status.code, fmt::format("{}: {}", stage, status.text()),
                         status.sys_errno);
  } catch (const std::bad_alloc&) {
    return Status::Error(Code::kLimit, "out of memory");
  } catch (const std::exception& error) {
    return Status::Error(Code::kInternal, error.what());
  } catch (...) {  // the ABI's edge
    return Status::Error(Code::kInternal, "an unknown exception");
  }
}

// Even a Close that waits for nothing leaves a healthy medium the time to tidy up.
TimePoint LeastEnd() { return std::chrono::steady_clock::now() + milliseconds(100); }

Status NotSetUp() { return Status::Error(Code::kClosed, "the stage was never set up"); }

Status CheckSetup(const SetupV1& setup) {
  const auto invalid = [](std::string_view text) {
    return Status::Error(Code::kInvalidArgument, text);
  };
  if (setup.struct_size < sizeof(SetupV1)) return invalid("SetupV1.struct_size is too small");
  if (setup.flags != 0) return invalid("SetupV1.flags are not known here");
  if (setup.below != nullptr) return invalid("nothing can lie below a terminal stage");
  if (setup.shard_size == 0 || setup.shard_size > UINT32_MAX) {
    return invalid(fmt::format("shard_size {} is not in 1..{}", setup.shard_size, UINT32_MAX));
  }
  if (setup.shards_per_block == 0) return invalid("shards_per_block is 0; a block has shards");
  return Status::Ok();
}

}  // namespace

StageSetup::StageSetup(const SetupV1& setup)
    : shard_size(setup.shard_size),
      shards_per_block(setup.shards_per_block),
      namespace_text(setup.namespace_text),
      namespace_label(setup.namespace_label),
      content(setup.content) {
  std::copy(std::begin(setup.fingerprint), std::end(setup.fingerprint), fingerprint.begin());
  for (std::uint32_t i = 0; i < setup.option_count; ++i) {
    const OptionValueV1& value = setup.options[i];
    Option& option = options_.emplace_back();
    option.name = value.name;
    option.integer = value.integer;
    option.number = value.number;
    if (value.text != nullptr) option.text = value.text;
    for (std::uint64_t n = 0; n < value.list_count; ++n) option.list.emplace_back(value.list[n]);
  }
}

const StageSetup::Option& StageSetup::Find(std::string_view name) const {
  const auto found = std::ranges::find(options_, name, &Option::name);
  if (found != options_.end()) return *found;
  throw std::out_of_range(fmt::format("the option table has no '{}'", name));
}

void ShardIo::End(const Status& status, std::uint32_t bytes) noexcept {
  ended_ = true;
  status_ = status;
  stored_bytes_ = bytes;
}

bool ShardIo::HasRoomFor(std::uint32_t stored) noexcept {
  if (prefetch() || bytes_ >= stored) return true;
  try {
    Fail(Status::Error(Code::kInvalidArgument,
                       fmt::format("the segments of shard {} hold {} bytes; {} are stored", index_,
                                   bytes_, stored)),
         stored);
  } catch (const std::exception&) {
    Fail(Status::Error(Code::kInvalidArgument, "too small a destination"), stored);
  }
  return false;
}

void ShardIo::Deliver(std::span<const std::byte> stored) noexcept {
  const auto bytes = static_cast<std::uint32_t>(stored.size());
  if (!HasRoomFor(bytes)) return;
  Scatter(stored, segments_);
  Succeed(bytes);
}

TerminalStage::TerminalStage(std::string name) : name_(std::move(name)) {}

TerminalStage::~TerminalStage() = default;

Runtime& TerminalStage::runtime() const noexcept { return core_->runtime(); }
Log& TerminalStage::log() const noexcept { return core_->log(); }

Status TerminalStage::Setup(const SetupV1& setup) noexcept {
  return AtEdge(name_, [&] {
    if (Status status = CheckSetup(setup); !status.ok()) return status;
    setup_.emplace(setup);
    core_ = std::make_unique<StageCore>(*this, Runtime::FromSetup(setup), *setup_);
    return Open(*setup_);
  });
}

Status TerminalStage::Lookup(const LookupDesc& desc, std::uint8_t* found) noexcept {
  return AtEdge(name_, [&] { return core_ == nullptr ? NotSetUp() : core_->Lookup(desc, found); });
}

Status TerminalStage::Load(const TaskDesc& desc, TaskId* task) noexcept {
  *task = 0;
  return AtEdge(name_, [&] {
    return core_ == nullptr ? NotSetUp() : core_->Begin(TaskKind::kLoad, desc, task);
  });
}

Status TerminalStage::Dump(const TaskDesc& desc, TaskId* task) noexcept {
  *task = 0;
  return AtEdge(name_, [&] {
    return core_ == nullptr ? NotSetUp() : core_->Begin(TaskKind::kDump, desc, task);
  });
}

Status TerminalStage::Check(TaskId task, bool* done) noexcept {
  return AtEdge(name_,
                [&] { return core_ == nullptr ? NotSetUp() : core_->table().Check(task, done); });
}

Status TerminalStage::Wait(TaskId task, std::uint32_t timeout_ms) noexcept {
  // A task's own error was given the stage's name where it arose.
  if (core_ == nullptr) return NotSetUp();
  return core_->table().Wait(task, timeout_ms);
}

bool TerminalStage::Close(std::uint32_t timeout_ms) noexcept {
  if (core_ == nullptr) return true;
  bool closed = false;
  const Status status = AtEdge(name_, [&] {
    const TimePoint until = std::chrono::steady_clock::now() + milliseconds(timeout_ms);
    closed = core_->Rest(until) && Shut(std::max(until, LeastEnd())) && core_->EndRuntime(until);
    return Status::Ok();
  });
  return closed && status.ok();
}

Status TerminalStage::Cancel(TaskId task) noexcept {
  return AtEdge(name_, [&] { return core_ == nullptr ? NotSetUp() : core_->Cancel(task); });
}

void TerminalStage::VisitMetrics(void* ctx,
                                 void (*metric)(void* ctx, const MetricV1* metric)) noexcept {
  (void)AtEdge(name_, [&] {
    if (core_ == nullptr) return Status::Ok();
    const auto visit = [&](const MetricV1& one) { metric(ctx, &one); };
    core_->VisitMetrics(visit);
    VisitOwnMetrics(visit);
    return Status::Ok();
  });
}

}  // namespace ucmstore
