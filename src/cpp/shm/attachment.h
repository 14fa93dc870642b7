// SPDX-License-Identifier: Apache-2.0
//
// Attachment: this process's hold on one segment: the mapping, its place among the processes, and
// the ring. One per process and segment, however many stores use it: the last store that lets go
// leaves. A process forked from one that holds it opens its own. Thread-safe.
#pragma once

#include <memory>

#include "base/clock.h"
#include "shm/held_shards.h"
#include "shm/process_table.h"
#include "shm/ring.h"
#include "shm/segment.h"

namespace ucmstore {

class Attachment {
 public:
  [[nodiscard]] static Result<std::shared_ptr<Attachment>> Open(const SegmentRequest& request,
                                                                milliseconds incomplete_age);
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;
  ~Attachment();  // requires: no pin is left

  [[nodiscard]] const RingSegment& segment() const noexcept { return *segment_; }
  [[nodiscard]] Ring& ring() noexcept { return *ring_; }
  [[nodiscard]] ProcessTable& processes() noexcept { return *processes_; }
  [[nodiscard]] HeldShards& held_shards() noexcept { return held_shards_; }
  // Erases the traces of processes that have died; their number. Their dirty blocks are ours then.
  std::uint32_t Reap();
  // True for the first of this process's stores that asks: one prefaults for all.
  [[nodiscard]] bool TakePrefault() noexcept { return !prefault_taken_.exchange(true); }
  // Removes the segment's name when the last process leaves.
  void UnlinkAtEnd() noexcept { unlink_.store(true, std::memory_order_relaxed); }

 private:
  Attachment() = default;
  [[nodiscard]] Status Join(std::unique_ptr<RingSegment> segment, milliseconds incomplete_age);

  std::unique_ptr<RingSegment> segment_;
  std::unique_ptr<ProcessTable> processes_;
  std::unique_ptr<Ring> ring_;
  HeldShards held_shards_;
  std::atomic<bool> unlink_{false};
  std::atomic<bool> prefault_taken_{false};
  std::uint64_t fork_depth_ = 0;  // of the process that made it
};

}  // namespace ucmstore
