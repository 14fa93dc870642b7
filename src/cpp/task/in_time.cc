// SPDX-License-Identifier: Apache-2.0
//
// Handing out the pieces one by one. A worker's job lives in the state, and keeps that alive from
// the push to its end, so that whoever gives up waiting may go.
#include "task/in_time.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace ucmstore {
namespace {

// Enough to hide a disk's latency, few enough to leave the other stores' workers alone.
constexpr std::size_t kMaxWorkers = 8;

}  // namespace

class InTime::Worker final : public Job {
 public:
  void Run() noexcept override;

  std::shared_ptr<State> keeps;  // set from before it is queued until it runs
};

struct InTime::State {
  State(std::size_t pieces, Piece function) : count(pieces), work(std::move(function)) {}

  const std::size_t count;
  const Piece work;
  std::deque<Worker> workers;
  Mutex mutex;
  CondVar changed;
  std::size_t next UCMSTORE_GUARDED_BY(mutex) = 0;    // of the pieces
  std::size_t active UCMSTORE_GUARDED_BY(mutex) = 0;  // workers, queued ones included

  [[nodiscard]] bool AwaitIdle(TimePoint until) {
    const MutexLock lock(mutex);
    while (active > 0) {
      if (!changed.WaitUntil(mutex, until) && active > 0) return false;
    }
    return true;
  }
};

void InTime::Worker::Run() noexcept {
  const std::shared_ptr<State> state = std::move(keeps);
  for (;;) {
    std::size_t piece = 0;
    {
      const MutexLock lock(state->mutex);
      if (state->next >= state->count) {
        --state->active;
        state->changed.NotifyAll();
        return;
      }
      piece = state->next++;
    }
    state->work(piece);
  }
}

InTime::InTime(ThreadPool& pool, std::size_t count, Piece work)
    : pool_(pool), state_(std::make_shared<State>(count, std::move(work))) {
  std::vector<Job*> jobs;
  const std::size_t workers = std::min<std::size_t>({count, kMaxWorkers, pool.max_threads()});
  jobs.reserve(workers);
  for (std::size_t i = 0; i < workers; ++i) {
    jobs.push_back(&state_->workers.emplace_back());
  }
  for (Worker& worker : state_->workers) worker.keeps = state_;
  {
    const MutexLock lock(state_->mutex);
    state_->active = workers;
  }
  if (pool.Push(jobs, Lane::kDump)) return;
  for (Worker& worker : state_->workers) worker.keeps.reset();
  const MutexLock lock(state_->mutex);
  state_->active = 0;
}

InTime::~InTime() = default;

bool InTime::Finish(TimePoint until, const Piece& skip) {
  State& state = *state_;
  (void)state.AwaitIdle(until);
  std::size_t rest = 0;
  {
    const MutexLock lock(state.mutex);
    rest = std::exchange(state.next, state.count);
  }
  for (; rest < state.count; ++rest) skip(rest);
  for (Worker& worker : state.workers) {
    if (!pool_.Remove(worker)) continue;
    worker.keeps.reset();
    const MutexLock lock(state.mutex);
    --state.active;
  }
  return state.AwaitIdle(std::chrono::steady_clock::now() + kGrace);
}

}  // namespace ucmstore
