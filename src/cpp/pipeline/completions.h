// SPDX-License-Identifier: Apache-2.0
//
// Completions: what an engine asks once a step instead of polling each task: which tasks have
// ended? Holds the ended, unretired tasks of one store that were not announced yet, in the order of
// their end, and an eventfd that is readable while there are some. A task that is waited for
// leaves, so there are never more entries than unretired tasks. It also counts the tasks that run.
//
// Room for an entry is made before a task begins, for its end must not fail for want of memory.
// Thread-safe. Must outlive every task that began here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "ucmstore/store_v1.h"

namespace ucmstore {

class Completions {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Completions>> Create();

  // Before a stage gets the task: its end will be heard of here, and by desc.on_done if the
  // caller set one (then it is not announced). kLimit: out of memory; `desc` is as it was.
  [[nodiscard]] Status Begin(TaskDesc& desc) noexcept;
  // Instead, if the stage refused the task. `desc`: as Begin left it.
  void Withdraw(const TaskDesc& desc) noexcept;
  // The task was waited for.
  void Retire(TaskId task) noexcept;

  // Takes up to tasks.size() entries.
  [[nodiscard]] std::size_t Poll(std::span<TaskId> tasks) noexcept;
  // From now on the descriptor is kept up to date; stores that are never polled are spared that.
  [[nodiscard]] int event_fd() noexcept;

  [[nodiscard]] std::size_t running() const noexcept;
  [[nodiscard]] std::size_t unannounced() const noexcept;
  // Waits until no task runs. False: some still do at `until`.
  [[nodiscard]] bool AwaitIdle(TimePoint until) noexcept;

 private:
  using Order = std::list<TaskId>;
  using Index = std::map<TaskId, Order::iterator>;
  struct PassedOn {  // a task whose caller has a callback of its own
    Completions* self;
    void (*on_done)(void* ctx, TaskId task);
    void* ctx;
  };
  // Kept for the next tasks, so that the usual few in flight never allocate.
  static constexpr std::size_t kKeptEntries = 64;

  explicit Completions(UniqueFd event) : event_(std::move(event)) {}
  static void OnDone(void* ctx, TaskId task);
  static void OnDonePassOn(void* ctx, TaskId task);

  void MakeEntry() UCMSTORE_REQUIRES(mutex_);
  void TrimEntries() noexcept UCMSTORE_REQUIRES(mutex_);
  void Announce(TaskId task) noexcept UCMSTORE_EXCLUDES(mutex_);
  void EndOne() noexcept UCMSTORE_REQUIRES(mutex_);
  void Take(Index::iterator entry) noexcept UCMSTORE_REQUIRES(mutex_);
  void Signal() noexcept UCMSTORE_REQUIRES(mutex_);
  void Clear() noexcept UCMSTORE_REQUIRES(mutex_);

  const UniqueFd event_;
  mutable Mutex mutex_;
  CondVar idle_;
  bool watched_ UCMSTORE_GUARDED_BY(mutex_) = false;
  std::size_t running_ UCMSTORE_GUARDED_BY(mutex_) = 0;
  std::size_t owed_ UCMSTORE_GUARDED_BY(mutex_) = 0;  // running tasks that will be announced
  Order ended_ UCMSTORE_GUARDED_BY(mutex_);           // unannounced, first ended first
  Index index_ UCMSTORE_GUARDED_BY(mutex_);           // of ended_
  // Room: always as many of each as owed_, or more.
  Order spare_order_ UCMSTORE_GUARDED_BY(mutex_);
  std::vector<Index::node_type> spare_index_ UCMSTORE_GUARDED_BY(mutex_);
};

}  // namespace ucmstore
