// SPDX-License-Identifier: Apache-2.0
//
// ProcessTable: who uses a segment, and who has died. Each process takes one of 128 places by an
// exclusive open-file-description lock on the place's own byte, far past the file's end. The kernel
// drops it when the last descriptor of that opening is gone: at any death, however sudden, but not
// while the process is merely stopped. Nothing here looks at pids or clocks to judge that.
//
// The lock is never lost because some other descriptor of the file is closed, and never inherited:
// not across exec (O_CLOEXEC), not by a forked child (ForkGuard), in which every call below says
// or does nothing. If the descriptor is made a registered file of an io_uring, the process counts
// as alive until the last of its direct I/O has ended, too.
//
// What a dead process left in the ring is erased by whoever finds it, under the dead one's lock, so
// by one process at a time; `taken` goes to 0 afterwards, so if the eraser dies on the way, the
// next one does it again. Erasing must bear being repeated. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "base/result.h"
#include "io/fork_guard.h"
#include "shm/layout.h"
#include "shm/segment.h"

namespace ucmstore {

// A place's lock is one byte of the segment's file, far past its end: this offset and the place.
inline constexpr off_t kPlaceLocksAt = off_t{1} << 40;

class ProcessTable {
 public:
  // Erases all traces of the process in this place from the ring. It may be called
  // again for the same death, and may call IsAlive and Others, nothing else of the table.
  using EraseTraces = std::function<void(std::uint32_t place)>;

  // The segment must outlive the table.
  [[nodiscard]] static Result<std::unique_ptr<ProcessTable>> Open(RingSegment& segment);

  ProcessTable(const ProcessTable&) = delete;
  ProcessTable& operator=(const ProcessTable&) = delete;
  // Leaves, if still joined, with the `erase` that Join was given: it must live as long.
  ~ProcessTable();

  // Takes a place; a dead predecessor's traces are erased first. kLimit: all are held by live
  // processes. Once only.
  [[nodiscard]] Status Join(const EraseTraces& erase);
  // Requires: joined.
  [[nodiscard]] std::uint32_t place() const noexcept {
    return place_.load(std::memory_order_relaxed);
  }

  // Erases the traces of each process that has died and frees its place. Gives their number.
  std::uint32_t ReapDead(const EraseTraces& erase);

  // False: nobody holds the place. True as well while another process erases a dead one's traces
  // there. Waits for nothing.
  [[nodiscard]] bool IsAlive(std::uint32_t place) const;
  // How many places are held but this one.
  [[nodiscard]] std::uint32_t Others() const;

  // Up to `wanted` leases more in this process, as many as all processes together may have if their
  // limit is `limit`. Gives their number. Requires: joined.
  [[nodiscard]] std::uint64_t TakeLeases(std::uint64_t wanted, std::uint64_t limit) noexcept;
  void ReturnLeases(std::uint64_t count) noexcept;
  // Of all processes together, those of the dead included that are not reaped yet.
  [[nodiscard]] std::uint64_t Leases() const noexcept;

  // Erases this process's own traces and gives up the place. Nothing if not joined.
  void Leave(const EraseTraces& erase);

  // The opening that carries the lock, for I/O that may outlive the process: see above.
  [[nodiscard]] int lock_fd() const noexcept { return fd_; }

 private:
  enum class Take : std::uint8_t { kTaken, kHeld, kFailed };
  static constexpr std::uint32_t kNoPlace = UINT32_MAX;

  ProcessTable(RingSegment& segment, int fd);

  [[nodiscard]] bool InForkedChild() const noexcept;
  [[nodiscard]] Take TryTake(std::uint32_t place) const noexcept;  // kFailed: see errno
  void Drop(std::uint32_t place) const noexcept;
  void EraseDead(std::uint32_t place, const EraseTraces& erase) UCMSTORE_REQUIRES(mutex_);
  void Publish(std::uint32_t place, const EraseTraces& erase) UCMSTORE_REQUIRES(mutex_);

  ProcessEntry* entries_;
  std::string path_;
  int fd_;  // no UniqueFd: in a forked child the number may be somebody else's
  std::uint64_t fork_depth_;
  std::unique_ptr<ForkGuard> guard_;  // ends before fd_ is closed

  std::atomic<std::uint32_t> place_{kNoPlace};
  // Locks of one opening do not exclude each other: one thread at a time takes and drops them.
  Mutex mutex_;
  EraseTraces erase_ UCMSTORE_GUARDED_BY(mutex_);
};

}  // namespace ucmstore
