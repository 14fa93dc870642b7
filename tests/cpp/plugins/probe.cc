// SPDX-License-Identifier: Apache-2.0
//
// Probe: a terminal stage for the tests of the pipeline, made from the frozen headers alone. Keeps
// blocks in memory, ends its tasks before Load and Dump return unless they are held, and tells a
// journal what is done to it. Thread-safe by one lock.
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "plugins/probe_v1.h"
#include "ucmstore/plugin_v1.h"

namespace ucmstore::test {
namespace {

class Probe;

// What the plugin's stores share. Never freed: a store that was left alone may use it.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  void* ctx = nullptr;
  void (*event)(void*, const char*) = nullptr;
  bool hold = false;
  bool can_be_cancelled = false;
  bool hold_lookups = false;
  std::uint32_t held_lookups = 0;
  std::uint32_t waiters = 0;
  std::uint32_t alive = 0;
  std::deque<std::pair<Probe*, TaskId>> held;
  bool still_moves = false;
  bool takes_its_time = false;
  std::vector<Probe*> left_alone;  // so that whoever looks for leaks finds them reachable
};
Shared& shared() {
  static auto* instance = std::make_unique<Shared>().release();
  return *instance;
}

void Tell(const std::string& text) {
  const std::scoped_lock lock(shared().mutex);
  if (shared().event != nullptr) shared().event(shared().ctx, text.c_str());
}

Status Wrong(const std::string& text) { return Status::Error(Code::kInvalidArgument, text); }

class Probe final : public StoreV1 {
 public:
  Probe() {
    const std::scoped_lock lock(shared().mutex);
    ++shared().alive;
  }
  virtual ~Probe() {
    const std::scoped_lock lock(shared().mutex);
    --shared().alive;
  }

  Status Setup(const SetupV1& setup) noexcept override {
    shards_ = setup.shards_per_block;
    bool fail = false;
    std::string options;
    for (std::uint32_t i = 0; i < setup.option_count; ++i) {
      const OptionValueV1& value = setup.options[i];
      if (std::string(value.name) == "fail_setup") fail = value.integer != 0;
      options += std::string(" ") + value.name + "=" + std::to_string(value.integer);
    }
    Tell("setup probe shard=" + std::to_string(setup.shard_size) + "x" + std::to_string(shards_) +
         " content=" + setup.content + (setup.below == nullptr ? " terminal" : " has-below") +
         options);
    if (fail) return Status::Error(Code::kIoError, "the probe was told to fail", EIO);
    return Status::Ok();
  }

  Status Lookup(const LookupDesc& desc, std::uint8_t* found) noexcept override {
    std::unique_lock lock(shared().mutex);
    ++shared().held_lookups;
    shared().changed.notify_all();
    shared().changed.wait(lock, [] { return !shared().hold_lookups; });
    --shared().held_lookups;
    if ((desc.flags & ~kLookupFlags) != 0) return Wrong("unknown flags");
    std::memset(found, 0, desc.count);
    for (std::uint32_t i = 0; i < desc.count; ++i) {
      const auto block = blocks_.find(desc.blocks[i]);
      const bool visible = block != blocks_.end() && block->second.size() == shards_;
      found[i] = visible ? kInMemory : kAbsent;
      if (!visible && (desc.flags & kStopAtMiss) != 0) break;
    }
    return Status::Ok();
  }

  Status Load(const TaskDesc& desc, TaskId* task) noexcept override {
    return Begin(desc, task, true);
  }
  Status Dump(const TaskDesc& desc, TaskId* task) noexcept override {
    return Begin(desc, task, false);
  }

  Status Check(TaskId id, bool* done) noexcept override {
    const std::scoped_lock lock(shared().mutex);
    const auto task = tasks_.find(id);
    if (task == tasks_.end()) return Status::Error(Code::kNotFound, "no such task");
    *done = task->second->ended;
    return Status::Ok();
  }

  Status Wait(TaskId id, std::uint32_t timeout_ms) noexcept override {
    std::unique_lock lock(shared().mutex);
    const auto task = tasks_.find(id);
    if (task == tasks_.end()) return Status::Error(Code::kNotFound, "no such task");
    const std::shared_ptr<Task> kept = task->second;
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    ++shared().waiters;
    const bool ended = shared().changed.wait_until(lock, until, [&] { return kept->called_back; });
    --shared().waiters;
    if (!ended) {
      return Status::Error(Code::kPending, "pending");
    }
    if (tasks_.erase(id) == 0) return Status::Error(Code::kNotFound, "no such task");
    return kept->status;
  }

  Status Cancel(TaskId id) {
    {
      const std::scoped_lock lock(shared().mutex);
      if (!tasks_.contains(id)) return Status::Error(Code::kNotFound, "no such task");
      if (!shared().can_be_cancelled) return Status::Ok();  // best effort: it moves already
      if (std::erase(shared().held, std::pair(this, id)) == 0) return Status::Ok();
    }
    End(id, Status::Error(Code::kCancelled, "cancelled"));
    return Status::Ok();
  }

  // Moves the bytes and ends the task.
  void Run(TaskId id) {
    Status status;
    {
      const std::scoped_lock lock(shared().mutex);
      Task& task = *tasks_.at(id);
      for (const Shard& shard : task.shards) {
        auto& block = blocks_[shard.block];
        std::string& bytes = block[shard.index];
        for (std::uint32_t i = 0; i < shard.segment_count; ++i) {
          const Segment& segment = shard.segments[i];
          if (!task.is_load) {
            bytes.append(static_cast<const char*>(segment.data), segment.size);
          } else {
            std::memcpy(segment.data, bytes.data(),
                        std::min<std::size_t>(segment.size, bytes.size()));
          }
        }
      }
    }
    End(id, status);
  }

  // True: nothing is held any more.
  bool Rest(std::uint32_t timeout_ms) {
    std::vector<TaskId> cancelled;
    {
      const std::scoped_lock lock(shared().mutex);
      if (shared().can_be_cancelled) {
        for (const auto& [store, id] : shared().held) {
          if (store == this) cancelled.push_back(id);
        }
      }
    }
    for (const TaskId id : cancelled) {
      if (!Cancel(id).ok()) return false;
    }
    std::unique_lock lock(shared().mutex);
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    return shared().changed.wait_until(lock, until, [this] { return running_ == 0; });
  }

 private:
  struct Task {
    bool is_load = false;
    bool ended = false;
    bool called_back = false;
    std::vector<Shard> shards;  // the tests keep their segments until the task has ended
    void (*on_done)(void*, TaskId) = nullptr;
    void* on_done_ctx = nullptr;
    Status status;
  };

  Status Begin(const TaskDesc& desc, TaskId* id, bool is_load) {
    *id = 0;
    for (std::uint32_t i = 0; i < desc.shard_count; ++i) {
      if (desc.shards[i].index >= shards_) return Wrong("shard index out of range");
    }
    bool held = false;
    {
      const std::scoped_lock lock(shared().mutex);
      *id = ++last_;
      auto task = std::make_shared<Task>();
      task->is_load = is_load;
      task->shards.assign(desc.shards, desc.shards + desc.shard_count);
      task->on_done = desc.on_done;
      task->on_done_ctx = desc.on_done_ctx;
      tasks_.emplace(*id, std::move(task));
      ++running_;
      held = shared().hold;
      if (held) shared().held.emplace_back(this, *id);
      shared().changed.notify_all();
    }
    if (!held) Run(*id);
    return Status::Ok();
  }

  void End(TaskId id, const Status& status) {
    std::shared_ptr<Task> task;
    {
      const std::scoped_lock lock(shared().mutex);
      task = tasks_.at(id);
      task->status = status;
      task->ended = true;
    }
    if (task->on_done != nullptr) task->on_done(task->on_done_ctx, id);
    const std::scoped_lock lock(shared().mutex);
    task->called_back = true;
    --running_;
    shared().changed.notify_all();
  }

  std::uint32_t shards_ = 0;
  TaskId last_ = 1000;
  std::uint32_t running_ = 0;
  std::map<TaskId, std::shared_ptr<Task>> tasks_;
  std::map<BlockId, std::map<std::uint32_t, std::string>> blocks_;
};

StoreV1* Create() { return std::make_unique<Probe>().release(); }

// What may be left alone: rested, late if so told, and denied if so told.
bool ComesToRest(Probe& probe, std::uint32_t timeout_ms) {
  if (!probe.Rest(timeout_ms)) return false;
  std::unique_lock lock(shared().mutex);
  if (shared().takes_its_time) {
    std::condition_variable never;
    (void)never.wait_for(lock, std::chrono::milliseconds(timeout_ms), [] { return false; });
  }
  return !shared().still_moves;
}

bool Destroy(StoreV1* store, std::uint32_t timeout_ms) {
  std::unique_ptr<Probe> probe(static_cast<Probe*>(store));
  Tell("destroy probe");
  if (ComesToRest(*probe, timeout_ms)) return true;
  const std::scoped_lock lock(shared().mutex);
  shared().left_alone.push_back(probe.release());
  return false;
}

constexpr ProbeTableV1 kProbe = {
    .struct_size = sizeof(ProbeTableV1),
    .reserved = 0,
    .reset =
        [] {
          const std::scoped_lock lock(shared().mutex);
          shared().event = nullptr;
          shared().hold = shared().can_be_cancelled = shared().hold_lookups = false;
          shared().still_moves = shared().takes_its_time = false;
        },
    .listen =
        [](void* ctx, void (*event)(void*, const char*)) {
          const std::scoped_lock lock(shared().mutex);
          shared().ctx = ctx;
          shared().event = event;
        },
    .hold =
        [](bool on, bool can_be_cancelled) {
          const std::scoped_lock lock(shared().mutex);
          shared().hold = on;
          shared().can_be_cancelled = can_be_cancelled;
        },
    .release =
        [] {
          std::uint32_t count = 0;
          while (true) {
            std::unique_lock lock(shared().mutex);
            if (shared().held.empty()) return count;
            const auto [store, id] = shared().held.front();
            shared().held.pop_front();
            lock.unlock();
            store->Run(id);
            ++count;
          }
        },
    .hold_lookups =
        [](bool on) {
          const std::scoped_lock lock(shared().mutex);
          shared().hold_lookups = on;
          shared().changed.notify_all();
        },
    .held_lookups =
        [] {
          const std::scoped_lock lock(shared().mutex);
          return shared().held_lookups;
        },
    .held_tasks =
        [] {
          const std::scoped_lock lock(shared().mutex);
          return static_cast<std::uint32_t>(shared().held.size());
        },
    .waiters =
        [] {
          const std::scoped_lock lock(shared().mutex);
          return shared().waiters;
        },
    .alive =
        [] {
          const std::scoped_lock lock(shared().mutex);
          return shared().alive;
        },
    .end_as =
        [](bool still_moves, bool takes_its_time) {
          const std::scoped_lock lock(shared().mutex);
          shared().still_moves = still_moves;
          shared().takes_its_time = takes_its_time;
        },
};

const void* Query(StoreV1* /*store*/, const char* name) {
  static constexpr CancelTableV1 kCancel{sizeof(CancelTableV1), 0, [](StoreV1* store, TaskId task) {
                                           return static_cast<Probe*>(store)->Cancel(task);
                                         }};
  const std::string wanted(name);
  if (wanted == "probe/1") return &kProbe;
  if (wanted == "cancel/1") return &kCancel;
  return nullptr;
}

constexpr OptionSpecV1 kOptions[] = {
    {"fail_setup", OptionType::kBool, 0, "false", "", "Setup fails."},
    {"size_bytes", OptionType::kSize, 0, "4KiB", "1KiB..1MiB", "Does nothing."},
};

}  // namespace
}  // namespace ucmstore::test

extern "C" const ucmstore::PluginV1* ucmstore_plugin_v1() {
  static constexpr ucmstore::PluginV1 kTable = {.abi = ucmstore::kPluginAbi,
                                                .struct_size = sizeof(ucmstore::PluginV1),
                                                .name = "Probe",
                                                .version = "1.0",
                                                .options = ucmstore::test::kOptions,
                                                .option_count = 2,
                                                .is_terminal = 1,
                                                .shard_overhead_bytes = 0,
                                                .content = nullptr,
                                                .create = &ucmstore::test::Create,
                                                .destroy = &ucmstore::test::Destroy,
                                                .query = &ucmstore::test::Query};
  return &kTable;
}
