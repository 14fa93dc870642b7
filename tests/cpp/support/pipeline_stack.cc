// SPDX-License-Identifier: Apache-2.0
//
// OpenPipeline: the same stacks as an engine opens them.
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "options/option_set.h"
#include "pipeline/pipeline.h"
#include "support/test_store.h"

namespace ucmstore::test {
namespace {

class PipelineStack final : public TestStore {
 public:
  explicit PipelineStack(std::unique_ptr<Pipeline> pipeline) : pipeline_(std::move(pipeline)) {}

  Status Lookup(const LookupDesc& desc, std::uint8_t* found) override {
    return pipeline_->Lookup(desc, found);
  }
  Status Load(const TaskDesc& desc, TaskId* task) override {
    return Unpack(pipeline_->Load(desc), task);
  }
  Status Dump(const TaskDesc& desc, TaskId* task) override {
    return Unpack(pipeline_->Dump(desc), task);
  }
  Status Check(TaskId task, bool* done) override { return Unpack(pipeline_->Check(task), done); }
  Status Wait(TaskId task, std::uint32_t ms) override { return pipeline_->Wait(task, ms); }
  Status Cancel(TaskId task) override { return pipeline_->Cancel(task); }
  bool Close(std::uint32_t timeout_ms) override { return pipeline_->Close(timeout_ms).ok(); }

  std::map<std::string, double> Stats() override {
    std::map<std::string, double> stats;
    for (const StageMetric& metric : pipeline_->Stats()) {
      stats[metric.stage + "." + metric.name] = metric.value;
    }
    return stats;
  }

 private:
  template <typename T>
  static Status Unpack(const Result<T>& result, T* value) {
    *value = result.value_or(T{});
    return result ? Status::Ok() : result.error();
  }

  std::unique_ptr<Pipeline> pipeline_;
};

// As a command line would: "posix.roots=/tmp/x", typed by the plugin's own table.
OptionInput Typed(const std::string& label, const std::string& option, const std::string& text,
                  const std::vector<std::string>& stages) {
  const std::string name = label.substr(0, label.find('#'));
  for (const std::string& stage : stages) {
    const bool same = std::ranges::equal(
        stage, name, [](unsigned char a, unsigned char b) { return std::tolower(a) == b; });
    if (!same) continue;
    const PluginV1& plugin = PluginOf(stage);
    for (const OptionSpecV1& spec : std::span(plugin.options, plugin.option_count)) {
      if (option == spec.name) return ParseOptionText(label, spec, text).value();
    }
  }
  throw std::invalid_argument("no option " + label + "." + option);
}

}  // namespace

std::unique_ptr<TestStore> OpenPipeline(const StackConfig& config) {
  PipelineConfig pipeline;
  pipeline.spec = config.spec;
  pipeline.shard_size = config.geometry.shard_size;
  pipeline.shards_per_block = config.geometry.shards_per_block;
  OptionMap& store = pipeline.options["store"];
  store["plugin_path"] = std::vector<std::string>{UCMSTORE_TEST_STAGES_DIR};
  store["workers"] = std::int64_t{config.workers};
  store["max_tasks"] = std::int64_t{config.max_tasks};
  store["max_incomplete_blocks"] = std::int64_t{config.max_incomplete_blocks};
  store["incomplete_age_ms"] = std::int64_t{config.incomplete_age.count()};
  for (const auto& [key, text] : config.options) {
    const std::size_t dot = key.find('.');
    const std::string label = key.substr(0, dot);
    const std::string option = key.substr(dot + 1);
    pipeline.options[label][option] = Typed(label, option, text, StagesOf(config.spec));
  }
  const auto name_space = Namespace::FromFields({{"model", "contract"}});
  auto opened = Pipeline::Open(pipeline, name_space.value());
  EXPECT_TRUE(opened.has_value()) << config.spec << ": " << opened.error().message;
  if (!opened) return nullptr;
  return std::make_unique<PipelineStack>(std::move(*opened));
}

}  // namespace ucmstore::test
