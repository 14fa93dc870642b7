// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the pipeline have in common: opening stacks of the stages in tests/cpp/plugins,
// the journal of what happens to those, and one-line loads and dumps. Not synchronised, but for the
// journal.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/pipeline.h"
#include "plugins/probe_v1.h"

namespace ucmstore::test {

// The valves of a stage of tests/cpp/plugins.
[[nodiscard]] const ProbeTableV1& Valves(std::string_view stage);

// Hears of everything that is done to those stages while it lives; opens all valves at its end.
class Journal {
 public:
  Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  ~Journal();
  [[nodiscard]] std::vector<std::string> Lines() const;

 private:
  static void Write(void* ctx, const char* text);
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

// An environment variable, for as long as this lives. Before other threads, or without them.
class Variable {
 public:
  Variable(const char* name, const std::string& value);
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable();

 private:
  const char* name_;
};

[[nodiscard]] Namespace TestNamespace();
// shard_size 64, 2 shards a block, plugins from tests/cpp/plugins, nothing logged.
[[nodiscard]] PipelineConfig Config(std::string spec, StageOptions options = {});
[[nodiscard]] std::unique_ptr<Pipeline> MustOpen(const PipelineConfig& config);
// The error that opening ends with; a test failure if it succeeds.
[[nodiscard]] Status OpenError(const PipelineConfig& config);

[[nodiscard]] BlockId Id(std::uint64_t number);

// One task of one whole block of two shards, with its memory.
struct BlockTask {
  explicit BlockTask(std::uint64_t block, char fill = 'x');
  BlockTask(const BlockTask&) = delete;
  BlockTask& operator=(const BlockTask&) = delete;
  TaskDesc desc;
  std::string bytes;
  Segment segments[2];
  Shard shards[2];
};
// Dumps blocks and waits for each.
void DumpBlocks(Pipeline& store, std::uint64_t first, std::uint64_t count);

[[nodiscard]] testing::AssertionResult Says(std::string_view text,
                                            const std::vector<std::string>& all);

}  // namespace ucmstore::test
