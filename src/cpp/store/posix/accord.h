// SPDX-License-Identifier: Apache-2.0
//
// Accord: the stores that live on one root agree on its limits. `<root>/.capacity` says what they
// are, and each store holds a shared open-file-description lock on it as long as it is open.
// Whoever gets the exclusive lock is alone, and writes what he wants; whoever does not must want
// what is written. One limit for all: the smaller of two would otherwise remove the other's blocks.
//
// Text and lock are one file, so nothing can come between them:
//  - The text is written in place under the exclusive lock, which then becomes a shared one in one
//    step. Nobody reads without a lock, so nobody reads half a text of somebody who lives.
//  - Killed before or in the middle of writing: the lock ends with the process. The next one finds
//    nobody, and writes anew, whatever is there. Two that come at once and find half a text: both
//    let go and try again; one of them is first.
//  - Removed by hand: who holds the nameless file is asked (`StillNamed`) before each cycle, and
//    agrees again. A newcomer that opened it before it went looks at its links after locking.
//  - A power cut may leave any bytes; nobody lives then, so nobody reads them.
//  - A stopped process holds its lock: it lives. fork: the child closes it (io/fork_guard.h).
// Thread-safe once made.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "io/file_system.h"
#include "io/fork_guard.h"
#include "store/posix/limits.h"
#include "store/posix/writer_mark.h"

namespace ucmstore {

inline constexpr const char* kCapacityName = ".capacity";
inline constexpr const char* kCollectorName = ".collector";  // collector.h

// Removes both files from an open root folder in which nothing else is left, where no store holds
// them.
void RemoveUnheld(FileSystem& fs, int root);

class Accord {
 public:
  // `root`: the open root folder; `path`: how it is called. kInvalidArgument: others who live want
  // other limits, in words with both. kBusy: somebody has been agreeing for kPatience. Where there
  // can be no such file or lock, an accord that is not `held`.
  [[nodiscard]] static Result<std::unique_ptr<Accord>> Join(FileSystem& fs, int root,
                                                            const std::string& path,
                                                            const Limits& limits,
                                                            const Modes& modes);

  // False: this store relies on others wanting the same; `why_not` says why.
  [[nodiscard]] bool held() const noexcept { return static_cast<bool>(file_); }
  [[nodiscard]] const std::string& why_not() const noexcept { return why_not_; }
  // Whether newcomers will see this accord.
  [[nodiscard]] bool StillNamed() const noexcept;

  static constexpr int kMaxTries = 100;
  static constexpr int kPauseMs = 20;  // between two of them

 private:
  explicit Accord(FileSystem& fs) noexcept : fs_(fs) {}

  FileSystem& fs_;
  File file_;
  std::optional<ForkGuard> guard_;  // ends before file_ is closed
  std::string why_not_;
};

}  // namespace ucmstore
