// SPDX-License-Identifier: Apache-2.0
//
// OpenRaw: stacks plugins with nothing but the frozen tables: dlopen, setup bottom-up, destroy
// top-down. So the contract is tested at the very interface that a foreign host would use.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <stdexcept>

#include "options/option_set.h"
#include "support/lease_client.h"
#include "support/test_store.h"
#include "task/runtime.h"

namespace ucmstore::test {
namespace {

std::string Lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// How options and figures name the i-th stage: "fault", and "fault#2" where the name occurs again.
std::string LabelOf(const std::vector<std::string>& names, std::size_t i) {
  const auto nth =
      std::count(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i) + 1, names[i]);
  return Lower(names[i]) + (nth > 1 ? "#" + std::to_string(nth) : "");
}

// Lines go to the test's output only when it is asked for.
class QuietSink final : public LogSink {
 public:
  void Write(LogLevel /*level*/, std::string_view text) noexcept override {
    if (std::getenv("UCMSTORE_TEST_LOG") != nullptr) {
      std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
    }
  }
};

class RawStack final : public TestStore {
 public:
  explicit RawStack(const StackConfig& config) : config_(config) {
    if (config.no_runtime) return;
    runtime_ = std::make_unique<Runtime>(
        RuntimeOptions{.workers = config.workers,
                       .max_tasks = config.max_tasks,
                       .max_incomplete_blocks = config.max_incomplete_blocks,
                       .incomplete_age = config.incomplete_age,
                       .log_sink = &sink_,
                       .clock = config.clock,
                       .start_thread = config.start_thread});
  }
  ~RawStack() override { (void)Close(kCloseMs); }

  // Builds the stages from the lowest up.
  Status Open() {
    const std::vector<std::string> names = StagesOf(config_.spec);
    std::vector<SetupV1> setups(names.size());
    std::uint64_t shard_size = config_.geometry.shard_size;
    const char* content = "raw";
    for (std::size_t i = 0; i < names.size(); ++i) {
      const PluginV1& plugin = PluginOf(names[i]);
      setups[i].shard_size = shard_size;
      setups[i].content = content;
      shard_size += plugin.shard_overhead_bytes;
      if (plugin.content != nullptr) content = plugin.content;
    }
    for (std::size_t i = names.size(); i-- > 0;) {
      if (Status status = Add(names[i], LabelOf(names, i), setups[i]); !status.ok()) return status;
    }
    return Status::Ok();
  }

  Status Lookup(const LookupDesc& desc, std::uint8_t* found) override {
    return top().Lookup(desc, found);
  }
  Status Load(const TaskDesc& desc, TaskId* task) override { return top().Load(desc, task); }
  Status Dump(const TaskDesc& desc, TaskId* task) override { return top().Dump(desc, task); }
  Status Check(TaskId task, bool* done) override { return top().Check(task, done); }
  Status Wait(TaskId task, std::uint32_t ms) override { return top().Wait(task, ms); }

  Status Cancel(TaskId task) override {
    const auto* table =
        static_cast<const CancelTableV1*>(stages_.front().plugin->query(&top(), "cancel/1"));
    if (table == nullptr) return Status::Error(Code::kUnsupported, "no cancel/1");
    return table->cancel(&top(), task);
  }

  bool Close(std::uint32_t timeout_ms) override {
    // What still moves may use all that is below it, for ever.
    bool at_rest = std::ranges::all_of(stages_, [timeout_ms](const Stage& stage) {
      return stage.plugin->destroy(stage.store, timeout_ms);
    });
    if (at_rest && runtime_ != nullptr) at_rest = runtime_->Shutdown(timeout_ms);
    if (!at_rest) {
      using LeftAlone = std::vector<std::pair<std::vector<Stage>, std::unique_ptr<Runtime>>>;
      static LeftAlone* const left_alone = std::make_unique<LeftAlone>().release();  // for ever
      left_alone->emplace_back(std::move(stages_), std::move(runtime_));
    }
    stages_.clear();
    runtime_.reset();
    return at_rest;
  }

  std::map<std::string, double> Stats() override {
    std::map<std::string, double> stats;
    for (const Stage& stage : stages_) {
      struct Context {
        std::map<std::string, double>& stats;
        std::string prefix;
      } context{stats, stage.label + "."};
      const auto* table =
          static_cast<const StatsTableV1*>(stage.plugin->query(stage.store, "stats/1"));
      if (table == nullptr) continue;
      table->visit(stage.store, &context, [](void* ctx, const MetricV1* metric) {
        auto& into = *static_cast<Context*>(ctx);
        into.stats[into.prefix + metric->name] = metric->value;
      });
    }
    return stats;
  }

  StoreV1& top() { return *stages_.front().store; }

 private:
  static constexpr std::uint32_t kCloseMs = 5000;
  struct Stage {
    std::string label;
    const PluginV1* plugin;
    StoreV1* store;
  };

  Status Add(const std::string& name, const std::string& label, SetupV1 setup) {
    const PluginV1& plugin = PluginOf(name);
    const std::span table(plugin.options, plugin.option_count);
    OptionMap given;
    for (const auto& [key, text] : config_.options) {
      const std::string prefix = label + ".";
      if (!key.starts_with(prefix)) continue;
      const std::string option = key.substr(prefix.size());
      const auto spec = std::ranges::find_if(
          table, [&](const OptionSpecV1& each) { return option == each.name; });
      if (spec == table.end()) throw std::invalid_argument("no option " + key);
      given[option] = ParseOptionText(label, *spec, text).value();
    }
    Result<OptionSet> options = OptionSet::Complete(label, table, given);
    if (!options) return options.error();
    setup.shards_per_block = config_.geometry.shards_per_block;
    setup.options = options->values().data();
    setup.option_count = static_cast<std::uint32_t>(options->values().size());
    setup.namespace_text = "model: contract\n";
    setup.namespace_label = "contract-0000000000000000";
    std::memset(setup.fingerprint, 7, sizeof(setup.fingerprint));
    setup.runtime = runtime_.get();
    if (!stages_.empty()) {
      setup.below = stages_.front().store;
      setup.below_plugin = stages_.front().plugin;
    }
    StoreV1* store = plugin.create();
    if (store == nullptr) throw std::runtime_error(name + ": create gave null");
    stages_.insert(stages_.begin(), {label, &plugin, store});
    return store->Setup(setup);
  }

  QuietSink sink_;
  const StackConfig config_;
  std::unique_ptr<Runtime> runtime_;
  std::vector<Stage> stages_;  // topmost first
};

}  // namespace

std::vector<std::string> StagesOf(const std::string& spec) {
  std::vector<std::string> stages(1);
  for (const char c : spec) {
    if (c == '|') {
      stages.emplace_back();
    } else {
      stages.back() += c;
    }
  }
  return stages;
}

StoreV1& TopOf(TestStore& store) { return dynamic_cast<RawStack&>(store).top(); }

const PluginV1& PluginOf(const std::string& stage) {
  const std::string path =
      std::string(UCMSTORE_TEST_STAGES_DIR) + "/libucmstore_" + Lower(stage) + ".so";
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) throw std::runtime_error(::dlerror());
  void* symbol = ::dlsym(handle, kPluginSymbol);
  if (symbol == nullptr) throw std::runtime_error(path + ": no " + kPluginSymbol);
  const PluginV1& plugin = *reinterpret_cast<PluginEntryV1>(symbol)();
  if (plugin.abi != kPluginAbi) throw std::runtime_error(path + ": another ABI");
  return plugin;
}

Status TryOpenRaw(const StackConfig& config, std::unique_ptr<TestStore>* store) {
  auto stack = std::make_unique<RawStack>(config);
  Status status = stack->Open();
  if (status.ok()) *store = std::move(stack);
  return status;
}

std::unique_ptr<TestStore> OpenRaw(const StackConfig& config) {
  std::unique_ptr<TestStore> store;
  const Status status = TryOpenRaw(config, &store);
  EXPECT_TRUE(status.ok()) << config.spec << ": " << status.message;
  return store;
}

}  // namespace ucmstore::test
