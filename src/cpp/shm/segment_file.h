// SPDX-License-Identifier: Apache-2.0
//
// The file of a segment before it is mapped: three ways to come by one, each its own code path.
// Pure functions over the file system; thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "shm/layout.h"
#include "shm/segment.h"
#include "shm/segment_folder.h"

namespace ucmstore {

struct SegmentFile {
  UniqueFd fd;  // for reading and writing
  RingHeader header{};
  std::string note;
};

// Opens the named segment if it is what the request asks for; else says in words what is not. It
// changes nothing, with one exception: a segment on a disk that an earlier start of this machine
// left, so that nobody knows how much of it was written, is removed if `folder_locked`.
// kNotFound: there is none, or none that can be used (that exception). Never kNotFound else.
[[nodiscard]] Result<SegmentFile> AttachSegment(const SegmentFolder& folder,
                                                const SegmentRequest& request, bool folder_locked);

// How a new file is kept out of sight until it is whole: without any name, or where the file system
// cannot do that, under one of its own, which a killed creator leaves for the next to remove.
enum class Staging : std::uint8_t { kUnnamed, kNamed };

// Makes the named segment, whole. kBusy: the name is in use by now. kNoSpace, kUnsupported: this
// mount will not do.
[[nodiscard]] Result<SegmentFile> CreateSegment(const SegmentFolder& folder,
                                                const SegmentRequest& request, std::uint32_t slots,
                                                bool outlives_boot,
                                                Staging staging = Staging::kUnnamed);

// The same without a name, in anonymous memory.
[[nodiscard]] Result<SegmentFile> CreatePrivateSegment(const SegmentRequest& request,
                                                       std::uint32_t slots);

// What the header's identity says. On a file system that outlives the machine's memory it ends
// with the id of this start of the machine: bytes of an earlier one may never have reached the
// disk.
[[nodiscard]] std::string IdentityText(const std::string& identity, bool outlives_boot);
inline constexpr std::string_view kBootMark = "\nboot ";

// Of everything in the header but the checksum itself.
[[nodiscard]] std::uint32_t HeaderChecksum(const RingHeader& header) noexcept;

}  // namespace ucmstore
