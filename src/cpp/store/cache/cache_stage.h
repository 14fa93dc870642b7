// SPDX-License-Identifier: Apache-2.0
//
// Cache: the stage in front. Blocks lie in a ring of slots in shared memory (shm/ring.h) that every
// store of the same blocks on the host uses; this class moves them between caller, ring and the
// store below.
//
//   load   hit: copied out of the slot. Miss: one process fills the slot from below, shard by shard
//          as they are asked for, and all who want the shard wait for it. What cannot be had from
//          the ring in time (every slot in use; the filler has stopped) goes past it: straight from
//          below to the caller.
//   dump   copied into a slot that any process may add to; the last shard makes the block visible
//          and dirty, and whoever landed it writes it back.
//   lookup one probe a block; what is not here is asked below.
//
// No call and no worker waits for another process or for I/O: shards that wait for a slot's shard
// are kept by Watch, blocks that wait for the medium by WriteBack, and I/O below comes back by
// callback. Thread-safety: StoreV1's.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "shm/attachment.h"
#include "store/cache/below_answers.h"
#include "store/cache/cache_task.h"
#include "store/cache/leases.h"
#include "store/cache/prefault.h"
#include "store/cache/unfinished.h"
#include "store/cache/uses.h"
#include "store/cache/watch.h"
#include "store/cache/write_back.h"
#include "task/forward_stage.h"
#include "task/stage_figures.h"
#include "task/task_table.h"

namespace ucmstore {

class CacheStage final : public ForwardStage {
 public:
  CacheStage() : ForwardStage("Cache") {}
  ~CacheStage() override;

  Status Lookup(const LookupDesc& desc, std::uint8_t* found) noexcept override;
  Status Load(const TaskDesc& desc, TaskId* task) noexcept override;
  Status Dump(const TaskDesc& desc, TaskId* task) noexcept override;
  Status Check(TaskId task, bool* done) noexcept override;
  Status Wait(TaskId task, std::uint32_t timeout_ms) noexcept override;
  Status Cancel(TaskId task) noexcept override;
  [[nodiscard]] bool Close(std::uint32_t timeout_ms) noexcept override;
  void VisitMetrics(void* ctx, void (*metric)(void* ctx, const MetricV1* metric)) noexcept override;
  // FlushTableV1.
  Status Flush(std::uint32_t timeout_ms) noexcept;
  // LeasesTableV1.
  [[nodiscard]] std::unique_ptr<LeaseBook> OpenLeases();

 protected:
  Status Open(const StageSetup& setup) override;

 private:
  friend class CacheTask;
  friend struct LeaseBook;
  friend class LeaseGate;
  friend class Watch;
  friend class WriteBack;
  class RunJob;
  class TaskJob;
  class MissingJob;
  class Fill;
  class Past;

  // The right to one task below. So many are out at once that the table below never overflows; who
  // gets none is queued, and gets one from whoever is done with his. It passes itself on when it
  // goes, used or not.
  class Turn {
   public:
    Turn() = default;
    explicit Turn(CacheStage* stage) noexcept : stage_(stage) {}
    Turn(Turn&& other) noexcept : stage_(std::exchange(other.stage_, nullptr)) {}
    Turn& operator=(Turn&& other) noexcept {
      std::swap(stage_, other.stage_);
      return *this;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
      if (stage_ != nullptr) stage_->PassTurn();
    }
    explicit operator bool() const noexcept { return stage_ != nullptr; }

   private:
    CacheStage* stage_ = nullptr;
  };

  // Shards of one block, by their positions in the task.
  using Positions = std::vector<std::uint32_t>;

  // ---- cache_stage.cc: calls and tasks ----
  Status LookupHere(const LookupDesc& desc, std::uint8_t* found);
  void TellBelow(std::span<const BlockId> used) noexcept;
  Status LookupBelow(const LookupDesc& desc, std::uint8_t* found);
  void StopTask(const CacheTaskPtr& task, const Status& why);
  void TaskEnded(CacheTask& task) noexcept;
  [[nodiscard]] Status Named(const Status& status) const noexcept;
  // Counts what uses the stage on other threads; Close waits until nobody does.
  void Enter();
  void Leave();
  [[nodiscard]] Ring& ring() noexcept { return attachment_->ring(); }
  [[nodiscard]] bool BelowHas(const BlockId& block);
  // Shards that have waited too long for another process, or for a slot.
  void GiveUp(ShardWait wait) noexcept;
  // Erases the traces of dead processes and takes over what they had not written back. True: there
  // were some.
  bool Reap();
  // Nobody hears a process die; those who are busy anyhow look once a second.
  void ReapNowAndThen();
  void Expire();
  void ScheduleExpiry();

  // ---- cache_jobs.cc: how a task becomes jobs ----
  Status Begin(TaskKind kind, const TaskDesc& desc, TaskId* id);
  [[nodiscard]] std::uint32_t WorkersFor(const CacheTask& task);
  // Takes shares of the task's blocks until none is left. False: others wait for a worker, and it
  // should go on later.
  [[nodiscard]] bool RunShares(const CacheTaskPtr& task, std::uint32_t workers) noexcept;
  template <typename Work>
  static void ForBlock(const CacheTaskPtr& task, std::uint32_t block, Work&& work) noexcept;
  [[nodiscard]] std::optional<BelowAnswers> AnswersFor(
      const CacheTaskPtr& task, std::span<const std::uint32_t> blocks) noexcept;
  void LoadShare(const CacheTaskPtr& task, CacheTask::Share share) noexcept;
  void LoadMissing(const CacheTaskPtr& task, std::span<const std::uint32_t> blocks) noexcept;
  void DumpShare(const CacheTaskPtr& task, CacheTask::Share share) noexcept;
  void WriteBackNow() noexcept;
  void Upkeep() noexcept;
  // Queues shards of one block to be looked at (again). Ends them if there is no worker.
  void Push(const CacheTaskPtr& task, const Positions& positions) noexcept;
  [[nodiscard]] bool TryPush(const CacheTaskPtr& task, const Positions& positions,
                             bool with_turn) noexcept;
  [[nodiscard]] bool PushMissing(const CacheTaskPtr& task,
                                 const std::vector<std::uint32_t>& blocks) noexcept;
  void Again(const CacheTaskPtr& task, const Positions& positions, Turn turn) noexcept;
  void EndAll(const CacheTaskPtr& task, const Positions& positions, const Status& status);

  // ---- load_flow.cc ----
  // A hit. False: the block is not whole in the ring.
  [[nodiscard]] bool LoadIfWhole(const CacheTaskPtr& task, const Positions& positions);
  // Shards of the block that `below` knows as its k-th.
  void LoadRun(const CacheTaskPtr& task, const Positions& positions, Turn turn, BelowAnswers& below,
               std::size_t k);
  [[nodiscard]] Pin FindToLoad(const BlockId& block);
  // Without a turn nothing is filled: the block is whole.
  void LoadFrom(Pin pin, const CacheTaskPtr& task, const Positions& positions, Turn turn);
  void Deliver(const CacheTaskPtr& task, std::uint32_t position, const Pin& pin);
  // Null: these shards are queued and will be looked at again, with a turn.
  [[nodiscard]] Turn TakeTurn(const CacheTaskPtr& task, const Positions& positions);
  [[nodiscard]] Turn TryTurn();  // the same, but nothing is queued
  void PassTurn() noexcept;
  void BeginFill(Pin pin, const CacheTaskPtr& task, const Positions& positions, Turn turn) noexcept;
  void WaitForShard(const CacheTaskPtr& task, std::uint32_t position, const Pin& pin);
  void EndFill(Fill& fill, TaskId below);
  // Past the ring: straight between the caller's memory and the store below.
  void GoPast(const CacheTaskPtr& task, const Positions& positions, Turn turn);
  void EndPast(Past& past, TaskId below);

  // ---- leases.cc ----
  void SetUpLeases(std::uint32_t wanted);  // 0: as many as seems right
  [[nodiscard]] LeaseAllowance AllowLeases();

  // ---- dump_flow.cc ----
  void DumpRun(const CacheTaskPtr& task, const Positions& positions, Turn turn, BelowAnswers& below,
               std::size_t k);
  // True: dealt with. False: look at the slot again.
  bool DumpInto(Pin pin, const CacheTaskPtr& task, const Positions& positions, BelowAnswers& below,
                std::size_t k);
  void DumpIntoVisible(const Pin& pin, const CacheTaskPtr& task, const Positions& positions,
                       BelowAnswers& below, std::size_t k);
  // The block in the slot is visible. If it was removed below since it came here, it is dirty
  // again.
  void SeeThatItGetsBelow(const Pin& pin, const BlockId& block, BelowAnswers& below, std::size_t k);
  void DumpIntoAssembling(Pin pin, const CacheTaskPtr& task, const Positions& positions);
  void DumpWithoutSlot(const CacheTaskPtr& task, const Positions& positions, Turn turn);
  // They are looked at again when something in the ring has changed; in the end they are kBusy.
  void WaitForAChange(const CacheTaskPtr& task, const Positions& positions);
  [[nodiscard]] bool IsWholeBlock(const CacheTask& task, const Positions& positions) const;
  [[nodiscard]] std::vector<std::uint32_t> IndexesOf(const CacheTask& task,
                                                     const Positions& positions) const;

  static constexpr std::uint32_t kMaxTurns = 256;
  static constexpr milliseconds kReapEvery{1'000};

  std::shared_ptr<Attachment> attachment_;
  std::optional<TaskTable> table_;
  std::optional<Unfinished> unfinished_;
  std::optional<Watch> watch_;
  std::optional<WriteBack> write_back_;
  std::optional<Prefault> prefault_;
  std::optional<Uses> uses_;
  std::shared_ptr<LeaseGate> lease_gate_;
  std::uint64_t max_leases_ = 0;
  bool through_ = false;

  Mutex mutex_;
  CondVar left_;
  std::uint64_t inside_ UCMSTORE_GUARDED_BY(mutex_) = 0;
  bool expiry_scheduled_ UCMSTORE_GUARDED_BY(mutex_) = false;
  Timer::EntryId expiry_ UCMSTORE_GUARDED_BY(mutex_) = 0;
  std::uint32_t turns_ UCMSTORE_GUARDED_BY(mutex_) = 0;  // out
  std::uint32_t max_turns_ = 0;
  std::deque<std::pair<CacheTaskPtr, Positions>> want_turns_ UCMSTORE_GUARDED_BY(mutex_);
  std::atomic<bool> closing_{false};
  std::atomic<std::int64_t> last_reap_{0};
  std::atomic<std::uint64_t> orphans_seen_{0};

  StageFigures figures_;
  Counter load_hit_shards_, load_filled_shards_, load_joined_shards_, load_past_shards_;
  Counter dump_past_shards_, dump_waits_for_room_;
};

}  // namespace ucmstore
