// SPDX-License-Identifier: Apache-2.0
//
// TestStore: an open stack as the contract tests see it, however it was opened: stage by stage
// through the frozen plugin tables alone (OpenRaw), or by the Pipeline (OpenPipeline). Also the
// description of what to open. Thread-safety: that of StoreV1.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "task/thread_starter.h"
#include "ucmstore/plugin_v1.h"

namespace ucmstore::test {

struct Geometry {
  std::uint64_t shard_size;
  std::uint32_t shards_per_block;
};

// "posix.roots" -> "/tmp/x": an option of a stage, as text. The second stage of a name is
// "fault#2".
using OptionTexts = std::map<std::string, std::string>;

struct StackConfig {
  std::string spec;  // "Fault|Dram", topmost first
  Geometry geometry{};
  OptionTexts options;
  std::uint32_t workers = 8;
  std::uint32_t max_tasks = 16384;
  std::uint32_t max_incomplete_blocks = 4096;
  milliseconds incomplete_age{600'000};
  const Clock* clock = nullptr;     // OpenRaw only
  bool no_runtime = false;          // OpenRaw only: the stages must make their own
  ThreadStarter start_thread = {};  // OpenRaw only
};

class TestStore {
 public:
  virtual ~TestStore() = default;
  virtual Status Lookup(const LookupDesc& desc, std::uint8_t* found) = 0;
  virtual Status Load(const TaskDesc& desc, TaskId* task) = 0;
  virtual Status Dump(const TaskDesc& desc, TaskId* task) = 0;
  virtual Status Check(TaskId task, bool* done) = 0;
  virtual Status Wait(TaskId task, std::uint32_t timeout_ms) = 0;
  virtual Status Cancel(TaskId task) = 0;
  // Ends the store; it may be called once more. False: something still moved after the timeout.
  virtual bool Close(std::uint32_t timeout_ms) = 0;
  // "dram.load_bytes" -> value; the n-th stage of a name that occurs again is "fault#2".
  [[nodiscard]] virtual std::map<std::string, double> Stats() = 0;
};

// Null, and a test failure, if it could not be opened.
[[nodiscard]] std::unique_ptr<TestStore> OpenRaw(const StackConfig& config);
[[nodiscard]] std::unique_ptr<TestStore> OpenPipeline(const StackConfig& config);
// The Status that opening ends with, for tests of refusals.
[[nodiscard]] Status TryOpenRaw(const StackConfig& config, std::unique_ptr<TestStore>* store);

// The plugin of a stage, from the build's stages directory. Throws if it cannot be loaded.
[[nodiscard]] const PluginV1& PluginOf(const std::string& stage);

// "Fault|Dram" -> {"Fault", "Dram"}.
[[nodiscard]] std::vector<std::string> StagesOf(const std::string& spec);

}  // namespace ucmstore::test
