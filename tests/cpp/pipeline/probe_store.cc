// SPDX-License-Identifier: Apache-2.0
//
// The common parts of the tests of the pipeline.
#include "pipeline/probe_store.h"

#include <cstdlib>
#include <cstring>

#include "pipeline/plugin_search.h"

namespace ucmstore::test {
namespace {

constexpr const char* kStages[] = {"Probe", "Wrap", "Deep", "Plain"};

class NoLog final : public LogSink {
 public:
  void Write(LogLevel /*level*/, std::string_view /*text*/) noexcept override {}
};

}  // namespace

const ProbeTableV1& Valves(std::string_view stage) {
  const std::vector<std::string> path = {UCMSTORE_TEST_PLUGINS_DIR};
  const Result<PluginPtr> plugin = FindPlugin(stage, path);
  if (!plugin) throw std::runtime_error(std::string(plugin.error().text()));
  const auto* table = (*plugin)->Query<ProbeTableV1>(nullptr, "probe/1");
  if (table == nullptr) throw std::runtime_error("no probe/1");
  return *table;  // lives as long as the process
}

Journal::Journal() {
  for (const char* stage : kStages) Valves(stage).listen(this, &Write);
}

Journal::~Journal() {
  for (const char* stage : kStages) Valves(stage).reset();
}

std::vector<std::string> Journal::Lines() const {
  const std::scoped_lock lock(mutex_);
  return lines_;
}

void Journal::Write(void* ctx, const char* text) {
  auto& journal = *static_cast<Journal*>(ctx);
  const std::scoped_lock lock(journal.mutex_);
  journal.lines_.emplace_back(text);
}

Variable::Variable(const char* name, const std::string& value) : name_(name) {
  ::setenv(name, value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): see the header
}

Variable::~Variable() { ::unsetenv(name_); }  // NOLINT(concurrency-mt-unsafe)

Namespace TestNamespace() {
  return Namespace::FromFields({{"model", "test"}, {"dtype", "bfloat16"}}).value();
}

PipelineConfig Config(std::string spec, StageOptions options) {
  static NoLog no_log;
  if (!options["store"].contains("plugin_path")) {
    options["store"]["plugin_path"] = std::string(UCMSTORE_TEST_PLUGINS_DIR);
  }
  return {.spec = std::move(spec),
          .shard_size = 64,
          .shards_per_block = 2,
          .options = std::move(options),
          .log_sink = &no_log};
}

std::unique_ptr<Pipeline> MustOpen(const PipelineConfig& config) {
  Result<std::unique_ptr<Pipeline>> store = Pipeline::Open(config, TestNamespace());
  if (!store) throw std::runtime_error(std::string(store.error().text()));
  return *std::move(store);
}

Status OpenError(const PipelineConfig& config) {
  const Result<std::unique_ptr<Pipeline>> store = Pipeline::Open(config, TestNamespace());
  if (!store) return store.error();
  ADD_FAILURE() << config.spec << " was opened";
  return Status::Ok();
}

BlockId Id(std::uint64_t number) {
  BlockId id{};
  std::memcpy(id.bytes.data(), &number, sizeof(number));
  return id;
}

BlockTask::BlockTask(std::uint64_t block, char fill) : bytes(128, fill) {
  for (std::uint32_t i = 0; i < 2; ++i) {
    segments[i] = {.data = bytes.data() + std::size_t{64} * i, .size = 64};
    shards[i] = {.block = Id(block), .segments = &segments[i], .segment_count = 1, .index = i};
  }
  desc.shards = shards;
  desc.shard_count = 2;
}

void DumpBlocks(Pipeline& store, std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t block = first; block < first + count; ++block) {
    const BlockTask dump(block);
    const Result<TaskId> task = store.Dump(dump.desc);
    ASSERT_TRUE(task) << task.error().text();
    const Status status = store.Wait(*task, 10'000);
    ASSERT_TRUE(status.ok()) << status.text();
  }
}

testing::AssertionResult Says(std::string_view text, const std::vector<std::string>& all) {
  for (const std::string& part : all) {
    if (text.find(part) == std::string_view::npos) {
      return testing::AssertionFailure() << "\"" << text << "\" does not say \"" << part << "\"";
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace ucmstore::test
