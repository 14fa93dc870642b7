// SPDX-License-Identifier: Apache-2.0
//
// Wrap: a stage that passes everything on, and only declares what it would add to a shard. Compiled
// more than once, under the names WRAP_NAME, with WRAP_OVERHEAD and WRAP_CONTENT.
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "plugins/probe_v1.h"
#include "ucmstore/plugin_v1.h"

namespace ucmstore::test {
namespace {

constexpr const char* kName = WRAP_NAME;

class Wrap;

struct Shared {
  std::mutex mutex;
  void* ctx = nullptr;
  void (*event)(void*, const char*) = nullptr;
  std::uint32_t alive = 0;
  bool still_moves = false;
  std::vector<Wrap*> left_alone;  // so that whoever looks for leaks finds them reachable
};
Shared& shared() {
  static auto* instance = std::make_unique<Shared>().release();
  return *instance;
}

void Tell(const std::string& text) {
  const std::scoped_lock lock(shared().mutex);
  if (shared().event != nullptr) shared().event(shared().ctx, text.c_str());
}

class Wrap final : public StoreV1 {
 public:
  Wrap() {
    const std::scoped_lock lock(shared().mutex);
    ++shared().alive;
  }
  virtual ~Wrap() = default;  // Destroy counts it

  Status Setup(const SetupV1& setup) noexcept override {
    below_ = setup.below;
    const bool knows_below = setup.below_plugin != nullptr && setup.below_plugin->name != nullptr;
    Tell(std::string("setup ") + kName + " shard=" + std::to_string(setup.shard_size) + "x" +
         std::to_string(setup.shards_per_block) + " content=" + setup.content +
         " below=" + (below_ != nullptr && knows_below ? setup.below_plugin->name : "none"));
    // "<stage>: ..." already names the stage; "told to fail" does not.
    if (setup.options[0].integer != 0) {
      return Status::Error(Code::kNoSpace, "this wrap was told to fail");
    }
    return Status::Ok();
  }
  Status Lookup(const LookupDesc& desc, std::uint8_t* found) noexcept override {
    lookups_.fetch_add(1);
    return below_->Lookup(desc, found);
  }
  Status Load(const TaskDesc& desc, TaskId* task) noexcept override {
    return below_->Load(desc, task);
  }
  Status Dump(const TaskDesc& desc, TaskId* task) noexcept override {
    return below_->Dump(desc, task);
  }
  Status Check(TaskId task, bool* done) noexcept override { return below_->Check(task, done); }
  Status Wait(TaskId task, std::uint32_t timeout_ms) noexcept override {
    return below_->Wait(task, timeout_ms);
  }

  std::atomic<std::uint64_t> lookups_{0};

 private:
  StoreV1* below_ = nullptr;
};

bool Destroy(StoreV1* store, std::uint32_t /*timeout_ms*/) {
  std::unique_ptr<Wrap> wrap(static_cast<Wrap*>(store));
  Tell(std::string("destroy ") + kName);
  const std::scoped_lock lock(shared().mutex);
  if (!shared().still_moves) {
    --shared().alive;
    return true;
  }
  shared().left_alone.push_back(wrap.release());
  return false;
}

const void* Query(StoreV1* /*store*/, const char* name) {
  static constexpr ProbeTableV1 kProbe = {
      .struct_size = sizeof(ProbeTableV1),
      .reserved = 0,
      .reset =
          [] {
            const std::scoped_lock lock(shared().mutex);
            shared().event = nullptr;
            shared().still_moves = false;
          },
      .listen =
          [](void* ctx, void (*event)(void*, const char*)) {
            const std::scoped_lock lock(shared().mutex);
            shared().ctx = ctx;
            shared().event = event;
          },
      .hold = nullptr,
      .release = nullptr,
      .hold_lookups = nullptr,
      .held_lookups = nullptr,
      .held_tasks = nullptr,
      .waiters = nullptr,
      .alive =
          [] {
            const std::scoped_lock lock(shared().mutex);
            return shared().alive;
          },
      .end_as =
          [](bool still_moves, bool /*takes_its_time*/) {
            const std::scoped_lock lock(shared().mutex);
            shared().still_moves = still_moves;
          },
  };
  static constexpr StatsTableV1 kStats = {
      sizeof(StatsTableV1), 0,
      [](StoreV1* store, void* ctx, void (*metric)(void*, const MetricV1*)) {
        const double lookups = static_cast<double>(static_cast<Wrap*>(store)->lookups_.load());
        const MetricV1 one{
            .name = "lookups", .kind = MetricKind::kCounter, .reserved = 0, .value = lookups};
        metric(ctx, &one);
      }};
  const std::string wanted(name);
  if (wanted == "probe/1") return &kProbe;
  if (wanted == "stats/1") return &kStats;
  return nullptr;
}

constexpr OptionSpecV1 kOptions[] = {
    {"fail_setup", OptionType::kBool, 0, "false", "", "Setup fails."},
};

}  // namespace
}  // namespace ucmstore::test

extern "C" const ucmstore::PluginV1* ucmstore_plugin_v1() {
  static constexpr ucmstore::PluginV1 kTable = {
      .abi = ucmstore::kPluginAbi,
      .struct_size = sizeof(ucmstore::PluginV1),
      .name = WRAP_NAME,
      .version = "1.0",
      .options = ucmstore::test::kOptions,
      .option_count = 1,
      .is_terminal = 0,
      .shard_overhead_bytes = WRAP_OVERHEAD,
      .content = WRAP_CONTENT,
      .create = []() -> ucmstore::StoreV1* {
        return std::make_unique<ucmstore::test::Wrap>().release();
      },
      .destroy = &ucmstore::test::Destroy,
      .query = &ucmstore::test::Query};
  return &kTable;
}
