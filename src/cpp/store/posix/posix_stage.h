// SPDX-License-Identifier: Apache-2.0
//
// Posix: the terminal stage that keeps blocks in files, one each, named by their ids. The file is
// the index: nothing is kept in memory but a few footers. Layout and names: docs/format.md.
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "io/file_system.h"
#include "store/posix/counters.h"
#include "store/posix/finder.h"
#include "store/posix/footer_cache.h"
#include "store/posix/prober.h"
#include "store/posix/reclaim.h"
#include "store/posix/roots.h"
#include "task/in_time.h"
#include "task/terminal_stage.h"

namespace ucmstore {

class PosixStage final : public TerminalStage {
 public:
  // `fs` must outlive the stage. Tests give one that fails, waits or kills.
  explicit PosixStage(FileSystem& fs = FileSystem::Real());
  ~PosixStage() override;

  // By the roots' ids, which are the same wherever they are mounted, and in any order.
  [[nodiscard]] std::string Identity() override;

 protected:
  Status Open(const StageSetup& setup) override;
  Status Find(std::span<const BlockId> blocks, std::uint32_t flags, std::uint8_t* found) override;
  Status FindUntil(std::span<const BlockId> blocks, std::uint32_t flags, TimePoint until,
                   std::uint8_t* found) override;
  void Read(const BlockId& block, std::span<ShardIo> shards) override;
  Result<std::unique_ptr<BlockWriter>> Create(const BlockId& block) override;
  bool Shut(TimePoint until) override;
  void VisitOwnMetrics(const std::function<void(const MetricV1&)>& metric) override;

 private:
  class ReapJob;

  void Announce();
  Status OpenReclaim(const StageSetup& setup);
  void ReapInBackground();
  // What is in use now; who is dead may be tried again.
  std::shared_ptr<const RootSet> InUse();
  [[nodiscard]] bool IsRemote(const RootSet& roots) const noexcept;

  FileSystem& fs_;
  PosixCounters counters_;
  std::vector<std::shared_ptr<Breaker>> breakers_;  // of the roots, as they are configured
  std::optional<Roots> roots_;
  std::optional<FooterCache> footers_;
  std::optional<Reclaim> reclaim_;  // none: no capacity
  std::optional<Finder> finder_;
  std::optional<Prober> prober_;
  enum class Network : std::uint8_t { kAuto, kYes, kNo } network_ = Network::kAuto;
  std::vector<std::unique_ptr<ReapJob>> reaping_;
  // While it closes: the roots that were written to, and the removal of this writer's marks there.
  std::vector<std::shared_ptr<Root>> writing_;
  std::optional<InTime> unmarking_;
};

// The stage's options, for its plugin table.
[[nodiscard]] std::span<const OptionSpecV1> PosixOptions() noexcept;

}  // namespace ucmstore
