// SPDX-License-Identifier: Apache-2.0
//
// Measure: what a root takes on disk, and how old its blocks are, one folder at a time. Counted is
// what the disk says, of everything: all namespaces, foreign and half-written files, folders. What
// lies outside of prefix folders is counted wholly; of a namespace's prefix folders a random sample
// stands for all.
//
// How large the sample is: ids are uniform, so a folder is a random draw of the blocks. From n
// blocks seen, in m of M folders, the total N is known to sqrt(N M / m) = N / sqrt(n), one standard
// deviation. n >= 16384 gives 0.8 %; between the high mark (97 %) and the capacity lie nearly four
// of them. A namespace with fewer blocks is listed whole, and the sum is exact. Costs 16384 stats
// and 64 listings, or 1/64 of all; of 8 million blocks, 125,000 stats (0.3 %).
// Not synchronised.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "io/file_system.h"
#include "store/posix/age_sample.h"
#include "store/posix/root_walk.h"

namespace ucmstore {

class Measure {
 public:
  // `root`: an open folder, until the end.
  Measure(FileSystem& fs, int root, std::uint64_t seed)
      : fs_(fs), root_(root), seed_(seed), ages_(seed) {}

  // Takes the next folder. False: there is none left. A slow one ends early once `stop` is set.
  [[nodiscard]] bool Step(const std::atomic<bool>& stop);

  // After the last step.
  [[nodiscard]] std::uint64_t used_bytes() const noexcept { return used_bytes_; }
  [[nodiscard]] const AgeSample& ages() const noexcept { return ages_; }
  // Some folder could not be looked at; the sum is too low. 0 or a negative errno.
  [[nodiscard]] int error() const noexcept { return error_; }
  // The folders that hold blocks.
  [[nodiscard]] const std::vector<std::string>& labels() const noexcept { return labels_; }

  static constexpr std::size_t kMinFolders = 64;
  static constexpr std::size_t kMinShare = 64;  // one in so many
  static constexpr std::size_t kMinFiles = 16384;
  static constexpr std::size_t kMaxForeignFolders = 65536;  // waiting to be gone through, at once

 private:
  void StepRoot();
  void BeginNamespace(const std::string& label);
  void StepPrefix(const std::atomic<bool>& stop);
  void EndNamespace();
  void StepForeign(const std::atomic<bool>& stop);
  // Adds what has this path; a folder is also gone through later.
  void Count(int folder, const std::string& name, const std::string& path);
  void Note(int error) noexcept {
    if (error < 0) error_ = error;
  }

  FileSystem& fs_;
  const int root_;
  std::uint64_t seed_;
  bool begun_ = false;
  std::uint64_t device_ = 0;          // what is mounted below the root is another's
  std::vector<std::string> folders_;  // of the root, that may be namespaces
  std::vector<std::string> labels_;
  std::vector<std::string> foreign_;  // paths below the root

  NamespaceFolder now_;  // the namespace that is being sampled
  std::vector<std::string> prefixes_;
  std::size_t sampled_folders_ = 0;
  std::size_t sampled_files_ = 0;
  std::uint64_t sampled_bytes_ = 0;

  AgeSample ages_;
  std::uint64_t used_bytes_ = 0;
  int error_ = 0;
};

}  // namespace ucmstore
