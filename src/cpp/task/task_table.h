// SPDX-License-Identifier: Apache-2.0
//
// TaskTable: the unretired tasks of one stage, by id. Bounded: when it is full a new task is kBusy.
// An id is a slot and a generation that begins at random, so a retired id, or one of another store,
// is unknown here instead of naming a stranger's task. Thread-safe.
//
//   63                                  24 23             0
//   +-------------------------------------+----------------+
//   | generation, >= 1                    | slot           |
//   +-------------------------------------+----------------+
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "task/task.h"

namespace ucmstore {

class TaskTable {
 public:
  static constexpr std::uint32_t kMaxCapacity = 1U << 24;

  // 1 <= capacity <= kMaxCapacity.
  explicit TaskTable(std::uint32_t capacity);

  // Gives the task its id and keeps it. kBusy: full; nothing was kept.
  [[nodiscard]] Status Insert(const std::shared_ptr<Task>& task);
  [[nodiscard]] std::shared_ptr<Task> Find(TaskId id) const;  // null: unknown
  // Forgets the task. True for exactly one caller.
  bool Remove(TaskId id);

  // StoreV1's Check and Wait.
  [[nodiscard]] Status Check(TaskId id, bool* done) const noexcept;
  [[nodiscard]] Status Wait(TaskId id, std::uint32_t timeout_ms) noexcept;

  [[nodiscard]] std::vector<std::shared_ptr<Task>> All() const;
  [[nodiscard]] std::uint32_t size() const;
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }

 private:
  struct Slot {
    std::shared_ptr<Task> task;
    std::uint64_t generation;
  };
  [[nodiscard]] const Slot* FindSlot(TaskId id) const UCMSTORE_REQUIRES(mutex_);

  const std::uint32_t capacity_;
  const std::uint64_t first_generation_;
  mutable Mutex mutex_;
  std::vector<Slot> slots_ UCMSTORE_GUARDED_BY(mutex_);  // grows up to capacity_
  std::vector<std::uint32_t> free_ UCMSTORE_GUARDED_BY(mutex_);
};

// The status of a task id that nobody knows.
[[nodiscard]] Status UnknownTask(TaskId id) noexcept;

}  // namespace ucmstore
