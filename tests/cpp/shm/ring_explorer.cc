// SPDX-License-Identifier: Apache-2.0
//
// The explorer's fibers and choices.
#include "shm/ring_explorer.h"

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace ucmstore::test {
namespace {

constexpr std::size_t kStackBytes = 256 << 10;

constinit Explorer* g_explorer = nullptr;  // the one that runs; there is one thread

std::string_view NameOf(Step step) {
  switch (step) {
    case Step::kSwap: return "swap";
    case Step::kPin: return "pin";
    case Step::kUnpin: return "unpin";
    case Step::kHint: return "hint";
    case Step::kUnhint: return "unhint";
    case Step::kShard: return "begin shard";
    case Step::kLand: return "land";
    case Step::kDrop: return "drop of a stale hint";
    case Step::kLook: return "second look";
  }
  return "?";
}

}  // namespace

std::string NameOf(const Pause& pause) {
  std::string name = pause.moment == Moment::kBefore ? "before " : "after ";
  name += pause.step == Step::kSwap ? RowOf(pause.transition).name : NameOf(pause.step);
  return name;
}

// A context and its stack. The main one has the thread's own.
struct Explorer::Fiber {
  ucontext_t context{};
  std::unique_ptr<std::byte[]> memory;
  const void* stack = nullptr;
  std::size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's; kept from run to run, it is dear to make
  bool enabled = false;
  std::unique_ptr<Player> player;

  void Prepare(void (*body)()) {
    if (!memory) memory = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(memory.get(), kStackBytes);  // frames of one that died in them
#endif
    stack = memory.get();
    stack_bytes = kStackBytes;
    ::getcontext(&context);
    context.uc_stack.ss_sp = memory.get();
    context.uc_stack.ss_size = kStackBytes;
    context.uc_link = nullptr;
    ::makecontext(&context, body, 0);
  }

  void Entered([[maybe_unused]] Fiber* from) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_stack, from ? &from->stack : nullptr,
                                    from ? &from->stack_bytes : nullptr);
#endif
  }

  void SwitchTo(Fiber& to) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&fake_stack, to.stack, to.stack_bytes);
#endif
    ::swapcontext(&context, &to.context);
    Entered(nullptr);
  }
};

Explorer::Explorer() = default;
Explorer::~Explorer() = default;

// ---- choices ------------------------------------------------------------------------------------

int Explorer::Choose(int options) {
  if (options == 1) return 0;
  if (depth_ < path_.size()) {
    if (path_[depth_].options != options) std::abort();  // the scenario is not deterministic
    return path_[depth_++].chosen;
  }
  path_.push_back({.chosen = 0, .options = options});
  ++depth_;
  return 0;
}

bool Explorer::Advance() {
  while (!path_.empty() && path_.back().chosen + 1 == path_.back().options) path_.pop_back();
  if (path_.empty()) return false;
  ++path_.back().chosen;
  return true;
}

std::vector<std::size_t> Explorer::Enabled() const {
  std::vector<std::size_t> actors;
  for (std::size_t i = 0; i < fibers_.size(); ++i) {
    const bool waits = scenario_->roles[i].reaps && !world_->somebody_died();
    if (fibers_[i]->enabled && !waits) actors.push_back(i);
  }
  return actors;
}

void Explorer::OnPause(const Pause& pause) {
  if (g_explorer != nullptr && g_explorer->running_) g_explorer->AtPause(pause);
}

void Explorer::AtPause(const Pause& pause) {
  ++steps_;
  Coverage::Point* point = nullptr;
  const std::string_view role = scenario_->roles[current_].name;
  if (coverage_ != nullptr) {
    point = &coverage_->points[{role, pause.step, pause.transition, pause.moment}];
    ++point->passed;
  }
  events_.push_back({.actor = current_, .pause = pause, .dies = false});
  if (std::string wrong = world_->Check(); !wrong.empty()) Fail(std::move(wrong));
  int others = 0;
  if (preemptions_ < most_preemptions_) {
    others = static_cast<int>(Enabled().size()) - 1;
  }
  const bool may_die = deaths_ < most_deaths_;
  const int choice = Choose(1 + others + (may_die ? 1 : 0));
  if (choice == 0) return;
  if (choice > others) {
    ++deaths_;
    events_.back().dies = true;
    if (point != nullptr) ++point->died;
    world_->Died(current_);
    Leave(Why::kDied);
  } else {
    ++preemptions_;
    next_ = [&] {
      std::vector<std::size_t> actors = Enabled();
      std::erase(actors, current_);
      return actors[static_cast<std::size_t>(choice) - 1];
    }();
    Leave(Why::kSwitched);
  }
}

void Explorer::Leave(Why why) {
  why_ = why;
  Fiber& me = *fibers_[current_];
  me.SwitchTo(*main_);
}

void Explorer::Fail(std::string what) {
  failure_ = std::move(what) + Trace();
  running_ = false;
  Leave(Why::kFailed);
}

std::string Explorer::Trace() const {
  std::string text = "\n  after these steps:";
  for (const Event& event : events_) {
    text += "\n    " + std::string(scenario_->roles[event.actor].name) + ' ' + NameOf(event.pause);
    text += " of slot " + std::to_string(event.pause.slot) + (event.dies ? ": dies" : "");
  }
  return text;
}

// ---- one run ------------------------------------------------------------------------------------

void Explorer::Body() {
  Explorer& self = *g_explorer;
  Fiber& me = *self.fibers_[self.current_];
  me.Entered(self.main_.get());
  self.scenario_->roles[self.current_].act(*me.player);
  self.Leave(Why::kEnded);
}

void Explorer::Resume(std::size_t actor) {
  current_ = actor;
  running_ = true;
  main_->SwitchTo(*fibers_[actor]);
  running_ = false;
}

void Explorer::Run() {
  depth_ = 0;
  preemptions_ = 0;
  deaths_ = 0;
  events_.clear();
  world_->Reset();
  scenario_->prepare(*world_);
  for (std::size_t i = 0; i < fibers_.size(); ++i) {
    Fiber& fiber = *fibers_[i];
    fiber.Prepare(&Body);
    fiber.enabled = true;
    fiber.player = std::make_unique<Player>(world_.get(), i, world_->arena().Join(PlaceOf(i)));
  }
  for (;;) {
    {
      const std::vector<std::size_t> actors = Enabled();
      if (actors.empty()) break;
      next_ = actors[static_cast<std::size_t>(Choose(static_cast<int>(actors.size())))];
    }
    do {
      Resume(next_);
    } while (why_ == Why::kSwitched);
    fibers_[current_]->enabled = false;
    if (why_ == Why::kFailed) return;
  }
  Judge();
}

void Explorer::Judge() {
  std::string wrong = world_->CheckEnd();
  if (wrong.empty() && scenario_->judge) wrong = scenario_->judge(*world_);
  if (wrong.empty()) wrong = world_->ClaimAll();
  if (!wrong.empty()) failure_ = "at the end: " + wrong + Trace();
}

Explorer::Result Explorer::Explore(const Scenario& scenario, int preemptions, int deaths,
                                   Coverage* coverage) {
  scenario_ = &scenario;
  coverage_ = coverage;
  most_preemptions_ = preemptions;
  most_deaths_ = deaths;
  path_.clear();
  steps_ = 0;
  failure_.clear();
  world_ = std::make_unique<World>(this, scenario.geometry);
  main_ = std::make_unique<Fiber>();
  fibers_.clear();
  for (std::size_t i = 0; i < scenario.roles.size(); ++i) {
    fibers_.push_back(std::make_unique<Fiber>());
  }
  g_explorer = this;
  pause_hook.store(&OnPause);
  Result result;
  do {
    Run();
    ++result.runs;
  } while (failure_.empty() && Advance());
  pause_hook.store(nullptr);
  g_explorer = nullptr;
  fibers_.clear();
  result.steps = steps_;
  result.failure = failure_;
  return result;
}

}  // namespace ucmstore::test
