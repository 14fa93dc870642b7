// SPDX-License-Identifier: Apache-2.0
//
// Sweep: goes over all prefix folders of all namespaces of a root, one at a time, and removes what
// is older than the cut: blocks, what was set aside, and what dead writers left. It asks for each
// file's time just before, so a block used meanwhile stays. What is gone already is done. Foreign
// names, links, folders and what a live writer writes are never touched. A prefix folder that is
// left empty goes, too. Not synchronised; any number may sweep one root at once, in any number of
// processes: each removes less than it might.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/file_system.h"
#include "store/posix/age_sample.h"
#include "store/posix/counters.h"
#include "store/posix/reaper.h"
#include "store/posix/root_walk.h"

namespace ucmstore {

class Sweep {
 public:
  struct Plan {
    std::vector<std::string> labels;  // of the namespaces
    Cut cut;
    std::uint64_t need_bytes = 0;  // so many that went for their age are enough
    std::uint64_t seed = 0;
  };
  // `root`: an open folder, until the end.
  Sweep(FileSystem& fs, int root, Plan plan, PosixCounters& counters)
      : fs_(fs), root_(root), plan_(std::move(plan)), counters_(counters) {}

  // Takes the next folder. False: there is none left, or enough is freed.
  [[nodiscard]] bool Step(const std::atomic<bool>& stop);

  // By age, and in all: with leftovers and empty folders.
  [[nodiscard]] std::uint64_t aged_bytes() const noexcept { return aged_bytes_; }
  [[nodiscard]] std::uint64_t freed_bytes() const noexcept { return freed_bytes_; }
  [[nodiscard]] std::uint64_t removed_blocks() const noexcept { return removed_blocks_; }
  // What should have gone, and could not be removed.
  [[nodiscard]] std::uint64_t stuck_bytes() const noexcept { return stuck_bytes_; }
  [[nodiscard]] std::uint64_t failures() const noexcept { return failures_; }
  [[nodiscard]] int first_error() const noexcept { return first_error_; }
  [[nodiscard]] const std::string& first_path() const noexcept { return first_path_; }

 private:
  void BeginNamespace();
  void StepPrefix(const std::atomic<bool>& stop);
  void EndNamespace();
  [[nodiscard]] bool enough() const noexcept { return aged_bytes_ >= plan_.need_bytes; }
  [[nodiscard]] bool IsToGo(const PrefixEntry& entry);
  // True: it is gone.
  bool Remove(int folder, const std::string& prefix, const PrefixEntry& entry);

  FileSystem& fs_;
  const int root_;
  Plan plan_;
  PosixCounters& counters_;

  NamespaceFolder now_;
  std::string label_;
  std::unique_ptr<WriterCensus> census_;
  bool reaped_all_ = true;  // nothing of a dead writer is left in it
  std::vector<std::string> prefixes_;

  std::uint64_t aged_bytes_ = 0;
  std::uint64_t freed_bytes_ = 0;
  std::uint64_t removed_blocks_ = 0;
  std::uint64_t stuck_bytes_ = 0;
  std::uint64_t failures_ = 0;
  int first_error_ = 0;
  std::string first_path_;
};

}  // namespace ucmstore
