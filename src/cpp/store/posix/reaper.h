// SPDX-License-Identifier: Apache-2.0
//
// Reaping: erasing what dead writers left behind. A cheap look at open finds their marks; only if
// there are some, one sweep over the prefix folders removes their activated files and then the
// marks. What a live writer owns is never touched (writer_mark.h). Any number may reap at once, in
// any number of processes. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "io/file_system.h"
#include "store/posix/names.h"
#include "store/posix/writer_mark.h"

namespace ucmstore {

// Judges writers by their marks, each once, and keeps the dead ones' locks while it lives.
class WriterCensus {
 public:
  WriterCensus(FileSystem& fs, int folder, bool local) noexcept
      : fs_(fs), folder_(folder), local_(local) {}

  // Before a sweep: looks at every mark, at most kMaxDead dead ones (each costs a descriptor), and
  // with `tidy` removes temporary files. Requires for that: UCMSTORE exists (who makes one
  // tolerates the loss only then). 0 or an errno.
  int Take(bool tidy = true);
  [[nodiscard]] bool found_dead() const noexcept { return !dead_.empty(); }

  // Whether a file of this writer may be removed: its mark is dead, or there is none at all.
  [[nodiscard]] bool MayReap(WriterId writer);
  // Removes the marks of those that Take found dead. Requires: nothing of theirs is left. Who was
  // found dead later may have written behind the sweep's back before: its mark stays, or nobody
  // would look for the rest.
  void RemoveMarks();
  // What the writer said of itself; "" if unknown.
  [[nodiscard]] std::string TextOf(WriterId writer) const;

 private:
  static constexpr std::size_t kMaxDead = 64;
  struct Known {
    Life life;
    std::string text;
  };

  Life Judge(WriterId writer, std::map<WriterId, File>* dead);

  FileSystem& fs_;
  const int folder_;
  const bool local_;
  std::map<WriterId, Known> known_;
  std::map<WriterId, File> dead_;
  std::map<WriterId, File> dead_later_;
};

// Calls `file` for each activated file of a writer that is certainly dead, and removes it. Stops
// early when `stop` says so. Returns the number removed; the marks go only after a whole sweep.
[[nodiscard]] std::uint64_t ReapDead(FileSystem& fs, int folder, std::uint32_t prefix_digits,
                                     WriterCensus& census, const std::function<bool()>& stop);

}  // namespace ucmstore
