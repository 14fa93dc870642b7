// SPDX-License-Identifier: Apache-2.0
//
// Opening, calling and closing.
//
// Close and the calls inside: Close shuts the gate, so that new calls end at once. A call that
// waits for a task looks up at least every kSlice; when it finds the gate shut, it cancels its task
// and goes on waiting until that has ended, for only then is the caller's memory free, but no
// longer than Close itself has time. When the last call has left, Close ends the stages.
#include "pipeline/state.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <new>

#include "pipeline/log_sink.h"
#include "pipeline/store_options.h"

namespace ucmstore {
namespace {

using std::chrono::steady_clock;

constexpr milliseconds kSlice{50};
// What Close adds to its time for calls that are on their way out, and for idle threads to stop.
constexpr milliseconds kGrace{100};

Status Closed() noexcept { return Status::Error(Code::kClosed, "the store is closed"); }
Status InChild() noexcept {
  return Status::Error(Code::kClosed,
                       "the store was opened before this process was forked; open one here");
}
Status OutOfMemory() noexcept { return Status::Error(Code::kLimit, "out of memory"); }

std::uint32_t MillisecondsUntil(TimePoint until, TimePoint now) noexcept {
  const auto left = std::chrono::ceil<milliseconds>(until - now).count();
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(left, 0, UINT32_MAX));
}

}  // namespace

Pipeline::State::Call::Call(State& state) noexcept : state_(state) {
  if (state.mark_.InForkedChild()) {
    refusal_ = &InChild;
  } else if (!state.gate_.Enter()) {
    refusal_ = &Closed;
  }
}

// ---- open ------------------------------------------------------------------------------------

Pipeline::State::State(const PipelineConfig& config) : config_(config) {}

Result<std::unique_ptr<Pipeline::State>> Pipeline::State::Open(const PipelineConfig& config,
                                                               const Namespace& name_space) {
  std::unique_ptr<State> state;
  Status status;
  try {
    state.reset(new State(config));
    status = state->Start(name_space);
  } catch (const std::bad_alloc&) {
    status = OutOfMemory();
  }
  if (status.ok()) return state;
  if (state != nullptr) End(std::move(state));  // some stages may exist
  return std::unexpected(status);
}

Status Pipeline::State::Start(const Namespace& name_space) {
  static const OptionMap kNone;
  const auto given = config_.options.find(kStoreScope);
  Result<StoreOptions> options =
      StoreOptions::FromInput(given == config_.options.end() ? kNone : given->second);
  if (!options) return options.error();
  close_timeout_ms_ = options->close_timeout_ms;
  options->runtime.log_sink =
      config_.log_sink != nullptr ? config_.log_sink : StderrLogSink(options->log_level);
  log_ = std::make_unique<Log>(options->runtime.log_sink, "store");

  Result<std::vector<StagePlan>> plans = PlanStages(config_, options->plugin_path);
  if (!plans) return plans.error();
  Result<std::unique_ptr<Completions>> completions = Completions::Create();
  if (!completions) return completions.error();
  completions_ = *std::move(completions);
  runtime_ = std::make_unique<Runtime>(options->runtime);
  return stack_.Build(*std::move(plans), {.shards_per_block = config_.shards_per_block,
                                          .namespace_text = name_space.text(),
                                          .namespace_label = name_space.label(),
                                          .fingerprint = name_space.fingerprint(),
                                          .runtime = runtime_.get()});
}

// ---- calls -----------------------------------------------------------------------------------

Status Pipeline::State::Lookup(const LookupDesc& desc, std::uint8_t* found) noexcept {
  const Call call(*this);
  if (call.ok()) return stack_.top()->Lookup(desc, found);
  if (found != nullptr) std::fill_n(found, desc.count, kAbsent);
  return call.refusal();
}

Result<std::uint32_t> Pipeline::State::LookupPrefix(std::span<const BlockId> blocks,
                                                    std::uint32_t flags,
                                                    std::uint32_t timeout_ms) noexcept {
  const Call call(*this);
  if (!call.ok()) return std::unexpected(call.refusal());
  if (blocks.size() > UINT32_MAX) {
    return Failure(Code::kInvalidArgument, "lookup of more than 2^32 - 1 blocks");
  }
  // In pieces, so that the answers need no memory; each is long enough to be looked up in parallel.
  std::array<std::uint8_t, 4096> found;
  const TimePoint until = steady_clock::now() + milliseconds(timeout_ms);
  std::uint32_t hits = 0;
  for (std::size_t begin = 0; begin < blocks.size(); begin += found.size()) {
    const auto piece = blocks.subspan(begin, std::min(found.size(), blocks.size() - begin));
    LookupDesc desc;
    desc.flags = flags | kStopAtMiss;
    desc.blocks = piece.data();
    desc.count = static_cast<std::uint32_t>(piece.size());
    if (timeout_ms != 0)
      desc.timeout_ms = std::max(1U, MillisecondsUntil(until, steady_clock::now()));
    const Status status = stack_.top()->Lookup(desc, found.data());
    if (status.code == Code::kTimeout && hits > 0) break;  // so much is known
    if (!status.ok()) return std::unexpected(status);
    const auto end = found.begin() + static_cast<std::ptrdiff_t>(piece.size());
    const auto miss = std::find(found.begin(), end, kAbsent);
    hits += static_cast<std::uint32_t>(miss - found.begin());
    if (miss != end) break;
  }
  return hits;
}

Result<TaskId> Pipeline::State::Submit(TaskKind kind, const TaskDesc& desc) noexcept {
  const Call call(*this);
  if (!call.ok()) return std::unexpected(call.refusal());
  if (desc.struct_size < sizeof(TaskDesc)) {
    return Failure(Code::kInvalidArgument, "TaskDesc::struct_size is too small");
  }
  TaskDesc announced = desc;
  Status status = completions_->Begin(announced);
  if (!status.ok()) return std::unexpected(status);
  TaskId task = 0;
  status = kind == TaskKind::kLoad ? stack_.top()->Load(announced, &task)
                                   : stack_.top()->Dump(announced, &task);
  if (status.ok()) return task;
  completions_->Withdraw(announced);
  return std::unexpected(status);
}

Result<bool> Pipeline::State::Check(TaskId task) noexcept {
  const Call call(*this);
  if (!call.ok()) return std::unexpected(call.refusal());
  bool done = false;
  const Status status = stack_.top()->Check(task, &done);
  if (!status.ok()) return std::unexpected(status);
  return done;
}

Status Pipeline::State::Wait(TaskId task, std::uint32_t timeout_ms) noexcept {
  const Call call(*this);
  if (!call.ok()) return call.refusal();
  const TimePoint until = steady_clock::now() + milliseconds(timeout_ms);
  bool closing = false;
  while (true) {
    if (!closing && gate_.shut()) {
      closing = true;
      static_cast<void>(CancelAtTop(task));  // best effort
    }
    const TimePoint give_up = closing ? std::min(until, close_until_.load()) : until;
    TimePoint now = steady_clock::now();
    const Status status =
        stack_.top()->Wait(task, MillisecondsUntil(std::min(give_up, now + kSlice), now));
    if (status.code != Code::kPending) {
      completions_->Retire(task);
      return closing && status.code == Code::kCancelled ? Closed() : status;
    }
    now = steady_clock::now();
    if (now >= until) return status;
    if (closing && now >= give_up) {
      return Status::Error(Code::kClosed,
                           "the store was closed, but the task still moves: its memory must stay");
    }
  }
}

Status Pipeline::State::Cancel(TaskId task) noexcept {
  const Call call(*this);
  if (!call.ok()) return call.refusal();
  return CancelAtTop(task);
}

Status Pipeline::State::CancelAtTop(TaskId task) noexcept {
  const auto* table = stack_.top_plugin().Query<CancelTableV1>(stack_.top(), "cancel/1");
  if (table == nullptr || table->cancel == nullptr) {
    char text[sizeof(Status::message)];
    std::snprintf(text, sizeof(text), "%s cannot cancel a task", stack_.top_plugin().table().name);
    return Status::Error(Code::kUnsupported, text);
  }
  try {
    return table->cancel(stack_.top(), task);
  } catch (...) {  // the ABI's edge
    return Status::Error(Code::kInternal, "the stage threw an exception when asked to cancel");
  }
}

int Pipeline::State::event_fd() noexcept {
  const Call call(*this);
  return call.ok() ? completions_->event_fd() : -1;
}

std::size_t Pipeline::State::Poll(std::span<TaskId> tasks) noexcept {
  const Call call(*this);
  return call.ok() ? completions_->Poll(tasks) : 0;
}

void Pipeline::State::AddMetric(std::vector<StageMetric>& metrics, const char* name,
                                std::size_t value) const {
  metrics.push_back({.stage = kStoreScope,
                     .name = name,
                     .kind = MetricKind::kGauge,
                     .value = static_cast<double>(value)});
}

std::vector<StageMetric> Pipeline::State::Stats() {
  const Call call(*this);
  std::vector<StageMetric> metrics;
  if (!call.ok()) return metrics;
  AddMetric(metrics, "running_tasks", completions_->running());
  AddMetric(metrics, "unannounced_tasks", completions_->unannounced());
  struct Visit {
    std::vector<StageMetric>& metrics;
    const std::string& label;
    static void Add(void* ctx, const MetricV1* metric) {
      auto& [all, stage] = *static_cast<Visit*>(ctx);
      if (metric == nullptr || metric->name == nullptr) return;
      all.push_back(
          {.stage = stage, .name = metric->name, .kind = metric->kind, .value = metric->value});
    }
  };
  for (const BuiltStage& stage : stack_.stages()) {
    const auto* table = stage.plan.plugin->Query<StatsTableV1>(stage.store, "stats/1");
    if (table == nullptr || table->visit == nullptr) continue;
    Visit visit{metrics, stage.plan.spec.label};
    try {
      table->visit(stage.store, &visit, &Visit::Add);
    } catch (...) {  // the ABI's edge: what was told so far is told
    }
  }
  return metrics;
}

// ---- close -----------------------------------------------------------------------------------

Status Pipeline::State::Close(std::uint32_t timeout_ms) noexcept {
  if (mark_.InForkedChild()) return Status::Ok();  // the parent's to close
  const TimePoint until = steady_clock::now() + milliseconds(timeout_ms);
  {
    const MutexLock lock(close_mutex_);
    while (phase_ == Phase::kClosing) {
      if (!close_done_.WaitUntil(close_mutex_, until) && phase_ == Phase::kClosing) {
        return Status::Error(Code::kBusy, "another thread is closing the store");
      }
    }
    if (phase_ == Phase::kClosed) return Status::Ok();
    if (phase_ == Phase::kLeftAlone) {
      return Status::Error(Code::kBusy,
                           "something still moved when the store was closed: the "
                           "memory of its tasks must stay");
    }
    phase_ = Phase::kClosing;
  }
  Phase reached = Phase::kLeftAlone;
  try {
    reached = CloseOnce(until);
  } catch (...) {  // out of memory for words: leave alone what may not have ended
  }
  const MutexLock lock(close_mutex_);
  phase_ = reached;
  close_done_.NotifyAll();
  if (reached == Phase::kClosed) return Status::Ok();
  return Status::Error(Code::kBusy,
                       "something still moves in the store: the memory of its tasks "
                       "must stay");
}

Pipeline::State::Phase Pipeline::State::CloseOnce(TimePoint until) {
  close_until_.store(until);
  gate_.Shut();
  if (!gate_.AwaitEmpty(until + kGrace)) {
    log_->Warning("close: " + std::to_string(gate_.inside()) + " calls are still in the store");
    return Phase::kBusy;
  }
  {
    const MutexLock lock(lease_mutex_);
    lease_book_.reset();
  }
  return EndStages(until) ? Phase::kClosed : Phase::kLeftAlone;
}

bool Pipeline::State::EndStages(TimePoint until) {
  if (completions_ == nullptr) return true;  // Start failed before there was anything
  const auto at_rest = [this](TimePoint latest) { return completions_->AwaitIdle(latest); };
  if (!stack_.End(until, at_rest, *log_)) return false;
  if (runtime_ == nullptr) return true;
  const TimePoint now = steady_clock::now();
  if (!runtime_->Shutdown(MillisecondsUntil(std::max(until, now + kGrace), now))) {
    log_->Error("close: a worker still runs; it is left alone");
    return false;
  }
  runtime_.reset();
  completions_.reset();  // closes the descriptor; nobody is inside and nobody comes
  return true;
}

void Pipeline::State::End(std::unique_ptr<State> state) noexcept {
  if (state->mark_.InForkedChild()) {
    LeaveAlone(std::move(state));
    return;
  }
  bool tried = false;
  {
    const MutexLock lock(state->close_mutex_);
    tried = state->phase_ != Phase::kOpen;
  }
  // Whoever closed it before has waited already.
  const Status status = state->Close(tried ? 0 : state->close_timeout_ms_);
  if (!status.ok()) LeaveAlone(std::move(state));
}

void Pipeline::State::LeaveAlone(std::unique_ptr<State> state) noexcept {
  // A list for its own sake: whoever looks for leaks finds these reachable.
  static std::atomic<State*> first{nullptr};
  State* left = state.release();
  left->next_left_alone_ = first.load(std::memory_order_relaxed);
  while (!first.compare_exchange_weak(left->next_left_alone_, left, std::memory_order_release,
                                      std::memory_order_relaxed)) {
  }
}

}  // namespace ucmstore
