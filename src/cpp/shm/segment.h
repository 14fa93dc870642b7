// SPDX-License-Identifier: Apache-2.0
//
// RingSegment: the file that holds a ring, mapped. A segment with a name is always whole: its
// creator reserves every byte and writes the header before the name appears, so whoever finds the
// name may attach, whoever was killed when. Attaching compares everything and refuses in words; it
// never changes, and nothing here ever removes, a file that is not a segment of ours.
//
// Where a named segment finds no room, a private one takes its place: same layout, in anonymous
// memory, seen by nobody else, gone with its process.
//
// The object is constant once opened; Unlink may run at any time. What lies in the mapping is
// shared by processes: see layout.h and ring.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "shm/layout.h"

namespace ucmstore {

struct SegmentRequest {
  std::string directory = "/dev/shm";  // must exist
  std::string name;                    // [A-Za-z0-9._-]{1,80}
  std::uint64_t capacity_bytes = 0;    // of the whole file, metadata included; 0: auto (room.h)
  std::uint64_t shard_size = 0;
  std::uint32_t shards_per_block = 0;
  // Whose blocks these are, in words; an attaching process must say the same, byte by byte.
  std::string identity;
  // Exactly this, whatever the umask; the owner always reads and writes. Bits for group or others
  // also say that a segment of another user may be attached to.
  std::uint32_t mode = 0600;
  // Not to be shared: makes a private one, whatever the room.
  bool only_private = false;
};

inline constexpr std::size_t kMaxIdentityBytes = kIdentityRoom - 64;  // the rest: segment_file.h

// "ucmstore.<name>.r<kRingVersion>"
[[nodiscard]] std::string SegmentFileName(const std::string& name);

class RingSegment {
 public:
  // Attaches to the named segment, or creates it, or makes a private one (see why_private). The
  // capacity counts at creation only. Refused:
  //   kInvalidArgument  a malformed request; a capacity above this machine's memory or the
  //                     cgroup's limit, or below one slot (both numbers are said); a segment of
  //                     that name that is of another user, geometry, identity or mode
  //   kCorruption       a file of that name that is no segment, or a damaged one
  //   kNoSpace          memory: anonymous or not, these pages are not to be had now
  //   else              from an errno
  [[nodiscard]] static Result<std::unique_ptr<RingSegment>> Open(const SegmentRequest& request);

  RingSegment(const RingSegment&) = delete;
  RingSegment& operator=(const RingSegment&) = delete;
  ~RingSegment();

  // Valid as long as this object.
  [[nodiscard]] const RingHeader& header() const noexcept { return header_; }
  [[nodiscard]] RingShared& shared() const noexcept { return *At<RingShared>(kSharedAt); }
  [[nodiscard]] ProcessEntry* processes() const noexcept { return At<ProcessEntry>(kProcessesAt); }
  [[nodiscard]] Bucket* buckets() const noexcept { return At<Bucket>(header_.buckets_at); }
  [[nodiscard]] Slot* slots() const noexcept { return At<Slot>(header_.slots_at); }
  // Of slot s, shard i: [s * PaddedShards() + i].
  [[nodiscard]] std::atomic<std::uint8_t>* states() const noexcept {
    return At<std::atomic<std::uint8_t>>(header_.states_at);
  }
  [[nodiscard]] std::uint32_t PaddedShards() const noexcept {
    return (header_.shards_per_block + 7) / 8 * 8;
  }
  // Of slot s, shard i: [s * shards_per_block + i].
  [[nodiscard]] std::atomic<std::uint32_t>* lengths() const noexcept {
    return At<std::atomic<std::uint32_t>>(header_.lengths_at);
  }
  // Of slot s, shard i: (s * shards_per_block + i) * shard_stride further on.
  [[nodiscard]] std::byte* data() const noexcept { return base_ + header_.data_at; }

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  // Of the file; for a private segment what the kernel calls it.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] bool created() const noexcept { return created_; }  // and not attached to
  [[nodiscard]] bool is_private() const noexcept { return !why_private_.empty(); }
  // A sentence for the log: what was needed, what there is, where, and what to do. "": it is not.
  [[nodiscard]] const std::string& why_private() const noexcept { return why_private_; }
  // What the user may want to know though nothing is wrong: attached to a segment of another
  // capacity or mode than asked for. "": nothing.
  [[nodiscard]] const std::string& note() const noexcept { return note_; }

  // False: somebody has removed the name. A process that joined after that is alone with those that
  // were there before; it opens the segment anew instead.
  [[nodiscard]] bool HasName() const noexcept;

  // Removes the name if it still is the name of this file. The segment lives on until nobody has
  // it mapped; who comes later makes a new one. False: the name is gone, or another file's.
  bool Unlink() const;

 private:
  RingSegment() = default;

  [[nodiscard]] Status Map();
  template <typename T>
  [[nodiscard]] T* At(std::uint64_t offset) const noexcept {
    return reinterpret_cast<T*>(base_ + offset);
  }

  RingHeader header_{};  // a copy: that in the file could be overwritten by a broken process
  std::byte* base_ = nullptr;
  UniqueFd fd_;
  std::string directory_;
  std::string file_name_;
  std::string path_;
  std::string why_private_;
  std::string note_;
  bool created_ = false;
};

}  // namespace ucmstore
