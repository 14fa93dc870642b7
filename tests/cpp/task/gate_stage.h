// SPDX-License-Identifier: Apache-2.0
//
// GateStage: a terminal stage in memory whose medium does what a test says: each of its calls
// passes a hook that may block, throw or answer with an error. For the races that no real medium
// shows on demand. Thread-safe; hooks are set before the calls they act on.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <semaphore>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "support/batch.h"
#include "task/runtime.h"
#include "task/terminal_stage.h"

namespace ucmstore::test {

class GateStage final : public TerminalStage {
 public:
  using Hook = std::function<Status(const BlockId&)>;
  struct Hooks {
    Hook find, read, create, write, commit;
    Hook remove;                   // of what an aborted writer wrote
    bool reaps = false;            // what is abandoned need not be removed
    bool forgets_results = false;  // the medium ends no shard
  };

  GateStage() : TerminalStage("Gate") {}

  Hooks hooks;
  std::atomic<int> writers{0};  // alive
  std::atomic<int> writes{0};   // calls
  std::atomic<int> commits{0};
  std::atomic<int> abandoned{0};
  std::atomic<bool> shut{false};

 protected:
  Status Open(const StageSetup& /*setup*/) override { return Status::Ok(); }
  bool Shut(TimePoint /*until*/) override { return shut = true; }

  Status Find(std::span<const BlockId> blocks, std::uint32_t /*flags*/,
              std::uint8_t* found) override {
    if (const Status status = Pass(hooks.find, blocks.front()); !status.ok()) return status;
    const MutexLock lock(mutex_);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (blocks_.contains(blocks[i])) found[i] = kInMemory;
    }
    return Status::Ok();
  }

  void Read(const BlockId& block, std::span<ShardIo> shards) override {
    const Status status = Pass(hooks.read, block);
    if (hooks.forgets_results) return;
    const MutexLock lock(mutex_);
    const auto found = blocks_.find(block);
    for (ShardIo& shard : shards) {
      if (!status.ok()) {
        shard.Fail(status);
      } else if (found == blocks_.end()) {
        shard.Fail(Status::Error(Code::kNotFound, "no such block"));
      } else {
        shard.Deliver(found->second.at(shard.index()));
      }
    }
  }

  Result<std::unique_ptr<BlockWriter>> Create(const BlockId& block) override {
    if (const Status status = Pass(hooks.create, block); !status.ok()) {
      return std::unexpected(status);
    }
    return std::make_unique<Writer>(*this, block);
  }

 private:
  using Shards = std::map<std::uint32_t, std::vector<std::byte>>;

  class Writer final : public BlockWriter {
   public:
    Writer(GateStage& stage, const BlockId& block) : stage_(stage), block_(block) {
      ++stage_.writers;
    }
    ~Writer() override {
      if (!done_) (void)Pass(stage_.hooks.remove, block_);
      --stage_.writers;
    }
    void Abandon() noexcept override {
      ++stage_.abandoned;
      done_ = done_ || stage_.hooks.reaps;
    }
    void Write(std::span<ShardIo> shards, bool /*last*/) override {
      ++stage_.writes;
      const Status status = Pass(stage_.hooks.write, block_);
      if (stage_.hooks.forgets_results) return;
      for (ShardIo& shard : shards) {
        if (!status.ok()) {
          shard.Fail(status);
          continue;
        }
        std::vector<std::byte> bytes(shard.bytes());
        (void)Gather(shard.segments(), bytes);
        const MutexLock lock(mutex_);
        shards_[shard.index()] = std::move(bytes);
        shard.Succeed(static_cast<std::uint32_t>(shard.bytes()));
      }
    }
    Status Commit() override {
      ++stage_.commits;
      if (const Status status = Pass(stage_.hooks.commit, block_); !status.ok()) return status;
      const MutexLock lock(stage_.mutex_);
      stage_.blocks_[block_] = std::move(shards_);
      done_ = true;
      return Status::Ok();
    }

   private:
    GateStage& stage_;
    const BlockId block_;
    std::atomic<bool> done_{false};  // nothing is to be removed
    Mutex mutex_;
    Shards shards_;
  };

  static Status Pass(const Hook& hook, const BlockId& block) {
    return hook ? hook(block) : Status::Ok();
  }

  Mutex mutex_;
  std::map<BlockId, Shards> blocks_ UCMSTORE_GUARDED_BY(mutex_);
};

// A gate for a hook: whoever passes says so and waits to be let through.
class Gate {
 public:
  Status Pass() {
    arrived_.release();
    open_.acquire();
    return Status::Ok();
  }
  void AwaitArrival() { ASSERT_TRUE(arrived_.try_acquire_for(milliseconds(kPatienceMs))); }
  void LetThrough(int count = 1) { open_.release(count); }
  [[nodiscard]] GateStage::Hook hook() {
    return [this](const BlockId&) { return Pass(); };
  }

 private:
  std::counting_semaphore<> arrived_{0};
  std::counting_semaphore<> open_{0};
};

// The stage with a runtime of its own, as a TestStore.
class GateStore final : public TestStore {
 public:
  explicit GateStore(const Geometry& geometry, const RuntimeOptions& options = {.workers = 2})
      : runtime_(std::make_unique<Runtime>(options)), stage_(std::make_unique<GateStage>()) {
    SetupV1 setup;
    setup.shard_size = geometry.shard_size;
    setup.shards_per_block = geometry.shards_per_block;
    setup.runtime = runtime_.get();
    const Status status = stage_->Setup(setup);
    EXPECT_TRUE(status.ok()) << status.message;
  }
  ~GateStore() override {
    if (stage_ != nullptr) {
      EXPECT_TRUE(Close(kPatienceMs));
    }
  }

  Status Lookup(const LookupDesc& desc, std::uint8_t* found) override {
    return stage_->Lookup(desc, found);
  }
  Status Load(const TaskDesc& desc, TaskId* task) override { return stage_->Load(desc, task); }
  Status Dump(const TaskDesc& desc, TaskId* task) override { return stage_->Dump(desc, task); }
  Status Check(TaskId task, bool* done) override { return stage_->Check(task, done); }
  Status Wait(TaskId task, std::uint32_t ms) override { return stage_->Wait(task, ms); }
  Status Cancel(TaskId task) override { return stage_->Cancel(task); }
  // As a host does, but a store that could not be closed may be tried again.
  bool Close(std::uint32_t timeout_ms) override {
    if (!stage_->Close(timeout_ms)) return false;
    stage_.reset();
    return runtime_->Shutdown(timeout_ms);
  }
  std::map<std::string, double> Stats() override {
    std::map<std::string, double> stats;
    stage_->VisitMetrics(&stats, [](void* ctx, const MetricV1* metric) {
      (*static_cast<std::map<std::string, double>*>(ctx))[metric->name] = metric->value;
    });
    return stats;
  }

  [[nodiscard]] GateStage& stage() { return *stage_; }
  [[nodiscard]] Runtime& runtime() { return *runtime_; }

 private:
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<GateStage> stage_;
};

}  // namespace ucmstore::test
