// SPDX-License-Identifier: Apache-2.0
//
// Slots with generations: insertion, look-up and retirement of tasks.
#include "task/task_table.h"

#include <algorithm>
#include <random>
#include <string>

namespace ucmstore {
namespace {

constexpr std::uint32_t kSlotBits = 24;
constexpr std::uint64_t kGenerationMask = (1ULL << (64 - kSlotBits)) - 1;
static_assert(TaskTable::kMaxCapacity == 1U << kSlotBits);

// 38 random bits: 2^38 retirements of one slot before a generation could wrap to 0.
std::uint64_t RandomGeneration() {
  std::random_device random;
  const std::uint64_t high = random();
  return (((high << 32U) | random()) & (kGenerationMask >> 2U)) | 1U;
}

std::uint32_t SlotOf(TaskId id) { return static_cast<std::uint32_t>(id) & ((1U << kSlotBits) - 1); }

}  // namespace

Status UnknownTask(TaskId id) noexcept {
  try {
    return Status::Error(Code::kNotFound, "task " + std::to_string(id) +
                                              " is unknown: never begun here, or retired already");
  } catch (...) {  // the ABI's edge: out of memory for words
    return Status::Error(Code::kNotFound, "unknown task");
  }
}

TaskTable::TaskTable(std::uint32_t capacity)
    : capacity_(std::clamp(capacity, 1U, kMaxCapacity)), first_generation_(RandomGeneration()) {}

Status TaskTable::Insert(const std::shared_ptr<Task>& task) {
  const MutexLock lock(mutex_);
  if (free_.empty()) {
    if (slots_.size() >= capacity_) {
      return Status::Error(Code::kBusy, "the task table is full: " + std::to_string(capacity_) +
                                            " tasks are not retired yet; wait for some, or raise "
                                            "max_tasks");
    }
    free_.reserve(slots_.size() + 1);  // so that Remove never allocates
    slots_.push_back({.task = nullptr, .generation = first_generation_});
    free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
  }
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  slots_[slot].task = task;
  task->id_ = ((slots_[slot].generation & kGenerationMask) << kSlotBits) | slot;
  return Status::Ok();
}

const TaskTable::Slot* TaskTable::FindSlot(TaskId id) const {
  const std::uint32_t index = SlotOf(id);
  if (index >= slots_.size()) return nullptr;
  const Slot& slot = slots_[index];
  const bool same = (slot.generation & kGenerationMask) == (id >> kSlotBits);
  return same && slot.task != nullptr ? &slot : nullptr;
}

std::shared_ptr<Task> TaskTable::Find(TaskId id) const {
  const MutexLock lock(mutex_);
  const Slot* slot = FindSlot(id);
  return slot != nullptr ? slot->task : nullptr;
}

bool TaskTable::Remove(TaskId id) {
  std::shared_ptr<Task> last;  // destroyed outside the lock
  const MutexLock lock(mutex_);
  if (FindSlot(id) == nullptr) return false;
  Slot& slot = slots_[SlotOf(id)];
  last = std::move(slot.task);
  slot.task = nullptr;
  ++slot.generation;
  free_.push_back(SlotOf(id));
  return true;
}

Status TaskTable::Check(TaskId id, bool* done) const noexcept {
  const std::shared_ptr<Task> task = Find(id);
  if (task == nullptr) return UnknownTask(id);
  *done = task->Ended();
  return Status::Ok();
}

Status TaskTable::Wait(TaskId id, std::uint32_t timeout_ms) noexcept {
  const std::shared_ptr<Task> task = Find(id);
  if (task == nullptr) return UnknownTask(id);
  const TimePoint until = std::chrono::steady_clock::now() + milliseconds(timeout_ms);
  if (!task->Ended() && (timeout_ms == 0 || !task->AwaitEnd(until))) {
    return Status::Error(Code::kPending, "the task has not ended yet");
  }
  // Of several waiters one retires; to the others the task is gone.
  return Remove(id) ? task->status() : UnknownTask(id);
}

std::vector<std::shared_ptr<Task>> TaskTable::All() const {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Task>> tasks;
  for (const Slot& slot : slots_) {
    if (slot.task != nullptr) tasks.push_back(slot.task);
  }
  return tasks;
}

std::uint32_t TaskTable::size() const {
  const MutexLock lock(mutex_);
  return static_cast<std::uint32_t>(slots_.size() - free_.size());
}

}  // namespace ucmstore
