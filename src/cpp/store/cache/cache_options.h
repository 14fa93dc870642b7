// SPDX-License-Identifier: Apache-2.0
//
// The options of the Cache stage: their table, and what they mean for the segment.
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "shm/segment.h"
#include "store/cache/write_back.h"
#include "task/terminal_stage.h"

namespace ucmstore {

struct CacheOptions {
  SegmentRequest segment;
  WriteBack::Limits write_back;
  std::uint32_t max_leases = 0;  // 0: a part of the ring
  bool through = false;          // a dump is confirmed when the store below has the block
  bool prefault = true;          // map all of the ring in the background
  bool unlink = false;           // the last process takes the segment with it

  // `below`: who the store below is, in words; "": known to nobody else, so the ring is private.
  [[nodiscard]] static Result<CacheOptions> From(const StageSetup& setup, const std::string& below);
};

[[nodiscard]] std::span<const OptionSpecV1> CacheOptionTable() noexcept;

}  // namespace ucmstore
