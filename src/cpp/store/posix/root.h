// SPDX-License-Identifier: Apache-2.0
//
// Root: one namespace's folder below one root, opened and checked: its UCMSTORE made or compared,
// direct I/O tried out, dead writers looked for. What the rest of the stage needs to reach files.
// Immutable after Open but for the writer's mark, which is made at the first dump. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/mutex.h"
#include "base/result.h"
#include "io/file_system.h"
#include "io/fork_guard.h"
#include "store/posix/breaker.h"
#include "store/posix/names.h"
#include "store/posix/root_file.h"
#include "store/posix/writer_mark.h"

namespace ucmstore {

enum class IoMode : std::uint8_t { kAuto, kDirect, kBuffered };

struct RootOptions {
  std::string path;
  std::string label;  // of the namespace
  RootFile wanted;    // root_id is ignored
  // What the root is to be called if it is made now. Empty: by a new id.
  std::optional<std::array<std::uint8_t, 16>> root_id;
  IoMode io = IoMode::kAuto;
  bool create_root = true;
  // Stays the root's own when it is made again. Null: it never rests.
  std::shared_ptr<Breaker> breaker;
  bool durable = false;  // durability = data
  Modes modes;
};

class Root {
 public:
  // kInvalidArgument, kUnsupported and kCorruption: this folder must not be used as asked. Other
  // codes: the disk cannot be reached now.
  [[nodiscard]] static Result<std::unique_ptr<Root>> Open(FileSystem& fs, RootOptions options);
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  [[nodiscard]] FileSystem& fs() const noexcept { return fs_; }
  [[nodiscard]] int folder() const noexcept { return folder_.get(); }
  [[nodiscard]] const RootOptions& options() const noexcept { return options_; }
  [[nodiscard]] const RootFile& file() const noexcept { return file_; }
  [[nodiscard]] const BlockLayout& layout() const noexcept { return file_.layout; }
  [[nodiscard]] std::uint32_t prefix_digits() const noexcept { return file_.prefix_digits; }
  [[nodiscard]] bool local() const noexcept { return local_; }
  [[nodiscard]] bool direct() const noexcept { return direct_; }
  // What transfers must keep to; {1, 1} if they are buffered.
  [[nodiscard]] const DirectAlignment& alignment() const noexcept { return alignment_; }
  // Why not direct, in words; "" if direct, or never asked for.
  [[nodiscard]] const std::string& buffered_reason() const noexcept { return buffered_reason_; }

  // This store's mark as a writer, made now if there is none yet.
  [[nodiscard]] Result<WriterMark*> Writer();
  [[nodiscard]] bool HasWriter();
  // Whether UCMSTORE is still the one that was adopted. kUnknown: it cannot be read now.
  enum class Marking : std::uint8_t { kOurs, kMissing, kAnothers, kUnknown };
  [[nodiscard]] Marking LookAtRootFile() const;
  // Removes the mark. Requires: nothing is being written. A later Writer makes a new one.
  void RemoveWriter();
  // The same, but leaves the mark's file to whoever reaps it, and touches no disk.
  void LeaveWriter();

  [[nodiscard]] Breaker& breaker() const noexcept { return *options_.breaker; }
  // Why it is not used while it rests.
  [[nodiscard]] Status Resting() const;
  // Lets the disk itself answer: looks for a file, writes a page and reads it. What comes of it
  // does not matter, only how long it takes.
  void TryDisk() const;

  // Says, once, that direct I/O was refused although it works here.
  void SayFallback(Log& log) noexcept;

  // "<root>/<label>/<name>", for messages.
  [[nodiscard]] std::string PathOf(std::string_view name) const;

 private:
  Root(FileSystem& fs, RootOptions options);

  Status OpenFolder();
  Result<File> OpenRootFolder();
  Status AdoptRootFile(bool* vanished);
  Result<std::string> ReadRootFile(File* file) const;
  Status MakeRootFile();
  Status LockRootFile(File* file, bool* vanished);
  Status CheckRootFile(std::string_view text);
  Status TryDirect();
  Status MakeFolder(int folder, const char* name, std::string_view shown);

  FileSystem& fs_;
  RootOptions options_;
  File root_folder_;
  File folder_;
  File root_file_;                  // holds a shared lock: the folder is in use
  std::optional<ForkGuard> guard_;  // ends before root_file_ is closed
  RootFile file_;
  bool local_ = false;
  bool direct_ = false;
  DirectAlignment alignment_;
  std::string buffered_reason_;
  std::atomic<bool> said_fallback_{false};

  Mutex mutex_;
  std::unique_ptr<WriterMark> writer_ UCMSTORE_GUARDED_BY(mutex_);
};

// "" if the label may name a folder; else the rule it breaks.
[[nodiscard]] std::string CheckLabel(std::string_view label);

}  // namespace ucmstore
