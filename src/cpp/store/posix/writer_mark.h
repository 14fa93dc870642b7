// SPDX-License-Identifier: Apache-2.0
//
// WriterMark: how a store that writes says that it lives. A file writers/<writer> with an exclusive
// open-file-description lock: the kernel lets go of it when the process is gone, however it went,
// and not before. A stopped process (SIGSTOP) holds it, so its half-written blocks are left alone.
// No pids, times or heartbeats decide. What is in the file is for people, and for one question: on
// a file system with a server behind it, locks of another machine may not be seen here, so there
// only marks of this machine's present boot are judged; others count as alive.
//
// The races, and why they end well:
//  - A mark is made before it is locked. A reaper in between finds a lock to take and thinks it
//  dead.
//    It then erases what that writer has written (nothing, for it writes only behind its lock) and
//    unlinks the mark. The writer finds the lock taken, or, after locking, a file without a name:
//    either way it begins again under a new id.
//  - Two reapers: the lock is also theirs. Who does not get it goes on.
//  - A reaper is killed half-way: its lock ends with it; the mark is still there for the next.
//  - A writer closes properly: it removes its files, then its mark, then the lock ends. A reaper
//  that
//    had opened the mark before finds a file without a name and leaves.
//  - Ids are random and never used twice, so a name always means the same writer.
//  - fork: the child closes the inherited descriptor at once (io/fork_guard.h).
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "io/file_system.h"
#include "io/fork_guard.h"
#include "store/posix/names.h"

namespace ucmstore {

// What new files and folders may be used by.
struct Modes {
  std::uint32_t file = 0600;
  std::uint32_t folder = 0700;
  bool exact = false;  // set after creation, so that the umask has no say

  [[nodiscard]] static Modes FromWord(std::string_view word) noexcept;  // private, group, world
};

class WriterMark {
 public:
  // Makes and locks a mark in `folder`/writers, which exists.
  [[nodiscard]] static Result<std::unique_ptr<WriterMark>> Create(FileSystem& fs, int folder,
                                                                  const Modes& modes);
  WriterMark(const WriterMark&) = delete;
  WriterMark& operator=(const WriterMark&) = delete;
  ~WriterMark();  // removes the mark, unless Keep was called

  [[nodiscard]] WriterId id() const noexcept { return id_; }
  [[nodiscard]] std::uint64_t NextAttempt() noexcept { return attempts_.fetch_add(1); }
  // Some file could not be removed: leave the mark, so that somebody reaps it later.
  void Keep() noexcept { keep_.store(true); }
  // False: this file system has no locks, so nobody will ever reap this writer.
  [[nodiscard]] bool locked() const noexcept { return locked_; }

 private:
  WriterMark(FileSystem& fs, int folder, WriterId id, File file, bool locked);

  FileSystem& fs_;
  const int folder_;
  const WriterId id_;
  File file_;
  std::optional<ForkGuard> guard_;  // ends before file_ is closed
  const bool locked_;
  std::atomic<std::uint64_t> attempts_{1};
  std::atomic<bool> keep_{false};
};

enum class Life : std::uint8_t { kAlive, kDead, kGone };

struct MarkVerdict {
  Life life = Life::kAlive;
  File lock;         // if dead: holds the mark's lock, so that nobody else reaps it
  std::string text;  // what the writer said of itself; may be empty
};

// `local`: see IsLocal. Everything uncertain is alive.
[[nodiscard]] MarkVerdict JudgeMark(FileSystem& fs, int folder, WriterId writer, bool local);

}  // namespace ucmstore
