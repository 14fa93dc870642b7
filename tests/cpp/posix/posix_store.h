// SPDX-License-Identifier: Apache-2.0
//
// PosixStore: a PosixStage opened directly, over any FileSystem, as a TestStore. So tests stand on
// the seam to the disk, which a plugin's table does not show. Thread-safety: that of StoreV1.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "options/option_set.h"
#include "store/posix/posix_stage.h"
#include "support/batch.h"
#include "support/test_store.h"
#include "task/runtime.h"
#include "task/stage_plugin.h"

namespace ucmstore::test {

struct PosixConfig {
  std::vector<std::string> roots;
  Geometry geometry{.shard_size = 8192, .shards_per_block = 4};
  OptionMap options;  // besides roots
  std::string content = "raw";
  std::string namespace_text = "model: test\n";
  std::string label = "test-0123456789abcdef";
  std::uint8_t fingerprint = 7;               // each of its bytes, if there is no
  std::vector<std::uint8_t> own_fingerprint;  // 32 of them
  std::uint32_t workers = 4;
  FileSystem* fs = &FileSystem::Real();
  const Clock* clock = nullptr;
  milliseconds relief_after{1'000};
};

// Keeps the lines that a store logs.
class KeepingSink final : public LogSink {
 public:
  void Write(LogLevel level, std::string_view text) noexcept override {
    const MutexLock lock(mutex_);
    lines_.emplace_back(level, text);
  }
  [[nodiscard]] bool Has(LogLevel level, std::string_view part) const {
    const MutexLock lock(mutex_);
    for (const auto& [each, text] : lines_) {
      if (each == level && text.find(part) != std::string::npos) return true;
    }
    return false;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::pair<LogLevel, std::string>> lines_ UCMSTORE_GUARDED_BY(mutex_);
};

class PosixStore final : public TestStore {
 public:
  // What opening ends with; the store is usable if that is ok.
  [[nodiscard]] static std::unique_ptr<PosixStore> Try(const PosixConfig& config, Status* status) {
    std::unique_ptr<PosixStore> store(new PosixStore(config));
    *status = store->Setup(config);
    return store;
  }
  [[nodiscard]] static std::unique_ptr<PosixStore> Open(const PosixConfig& config) {
    Status status;
    auto store = Try(config, &status);
    EXPECT_TRUE(status.ok()) << status.message;
    return store;
  }
  ~PosixStore() override { (void)Close(10'000); }

  Status Lookup(const LookupDesc& desc, std::uint8_t* found) override {
    return stage_->Lookup(desc, found);
  }
  Status Load(const TaskDesc& desc, TaskId* task) override { return stage_->Load(desc, task); }
  Status Dump(const TaskDesc& desc, TaskId* task) override { return stage_->Dump(desc, task); }
  Status Check(TaskId task, bool* done) override { return stage_->Check(task, done); }
  Status Wait(TaskId task, std::uint32_t ms) override { return stage_->Wait(task, ms); }
  Status Cancel(TaskId task) override { return stage_->Cancel(task); }
  bool Close(std::uint32_t timeout_ms) override {
    if (stage_ == nullptr) return true;
    const bool closed = stage_->Close(timeout_ms);
    if (!closed) {
      // Something still moves in them: they are left alone for ever.
      [[maybe_unused]] const auto* stage = stage_.release();
      [[maybe_unused]] const auto* runtime = runtime_.release();
      return false;
    }
    stage_.reset();
    return runtime_->Shutdown(timeout_ms);
  }
  [[nodiscard]] std::map<std::string, double> Stats() override {
    std::map<std::string, double> stats;
    stage_->VisitMetrics(&stats, [](void* ctx, const MetricV1* metric) {
      (*static_cast<std::map<std::string, double>*>(ctx))[metric->name] = metric->value;
    });
    return stats;
  }
  [[nodiscard]] double Stat(const std::string& name) { return Stats().at(name); }
  [[nodiscard]] PosixStage& stage() { return *stage_; }
  [[nodiscard]] const KeepingSink& log() const { return sink_; }

 private:
  explicit PosixStore(const PosixConfig& config)
      : runtime_(std::make_unique<Runtime>(RuntimeOptions{.workers = config.workers,
                                                          .log_sink = &sink_,
                                                          .clock = config.clock,
                                                          .relief_after = config.relief_after})),
        stage_(std::make_unique<PosixStage>(*config.fs)) {}

  Status Setup(const PosixConfig& config) {
    OptionMap given = config.options;
    given["roots"] = config.roots;
    // A clock that jumps makes everything in flight look slow.
    if (config.clock != nullptr) given.try_emplace("rest_after_ms", std::int64_t{0});
    given.try_emplace("capacity", std::int64_t{0});  // unless reclaim is what is tested
    Result<OptionSet> options = OptionSet::Complete("posix", PosixOptions(), given);
    if (!options) return options.error();
    SetupV1 setup;
    setup.shard_size = config.geometry.shard_size;
    setup.shards_per_block = config.geometry.shards_per_block;
    setup.options = options->values().data();
    setup.option_count = static_cast<std::uint32_t>(options->values().size());
    setup.namespace_text = config.namespace_text.c_str();
    setup.namespace_label = config.label.c_str();
    std::memset(setup.fingerprint, config.fingerprint, sizeof(setup.fingerprint));
    std::ranges::copy(config.own_fingerprint, std::begin(setup.fingerprint));
    setup.content = config.content.c_str();
    setup.runtime = runtime_.get();
    return stage_->Setup(setup);
  }

  KeepingSink sink_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<PosixStage> stage_;
};

// Every regular file below a folder, relative to it, whose name ends as given; "" for all.
[[nodiscard]] inline std::vector<std::string> FilesBelow(const std::filesystem::path& folder,
                                                         std::string_view ending = "") {
  std::vector<std::string> files;
  std::error_code error;
  std::filesystem::recursive_directory_iterator at(folder, error);
  for (; !error && at != end(at); at.increment(error)) {  // others may remove what it stands on
    if (!at->is_regular_file(error)) continue;
    const std::string path = at->path().lexically_relative(folder).string();
    if (path.ends_with(ending)) files.push_back(path);
  }
  return files;
}

}  // namespace ucmstore::test
