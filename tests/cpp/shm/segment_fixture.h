// SPDX-License-Identifier: Apache-2.0
//
// Segments in a folder of the test's own, and how to look at that folder. Not synchronised.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shm/segment.h"
#include "support/temp_dir.h"

namespace ucmstore::test {

inline constexpr std::uint64_t kSmallCapacity = 1U << 20;

[[nodiscard]] inline SegmentRequest SmallRequest(const std::string& directory,
                                                 std::uint64_t capacity = kSmallCapacity) {
  SegmentRequest request;
  request.directory = directory;
  request.name = "test";
  request.capacity_bytes = capacity;
  request.shard_size = 4096;
  request.shards_per_block = 4;
  request.identity = "namespace llama fingerprint 0123 below posix";
  return request;
}

// The segment, or nothing and why.
struct Opened {
  std::unique_ptr<RingSegment> segment;
  Status status;
};
[[nodiscard]] inline Opened OpenSegment(const SegmentRequest& request) {
  Result<std::unique_ptr<RingSegment>> result = RingSegment::Open(request);
  if (!result) return {.segment = nullptr, .status = result.error()};
  return {.segment = std::move(*result), .status = Status::Ok()};
}

[[nodiscard]] inline std::vector<std::string> NamesIn(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

// The first of the words that the text lacks; "" if it has all.
[[nodiscard]] inline std::string Lacks(std::string_view text,
                                       const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (text.find(word) == std::string_view::npos) {
      return "'" + word + "' is not in: " + std::string(text);
    }
  }
  return {};
}

// Writes and reads every byte of the slots' memory.
[[nodiscard]] inline bool EveryByteHolds(const RingSegment& segment, std::byte value) {
  const RingHeader& header = segment.header();
  const std::uint64_t bytes = header.segment_bytes - header.data_at;
  std::fill_n(segment.data(), bytes, value);
  return std::all_of(segment.data(), segment.data() + bytes,
                     [value](std::byte byte) { return byte == value; });
}

// In memory, as segments are, where there is room for it.
class SegmentTest : public ::testing::Test {
 protected:
  [[nodiscard]] SegmentRequest Request(std::uint64_t capacity = kSmallCapacity) const {
    return SmallRequest(dir_.string(), capacity);
  }
  [[nodiscard]] std::filesystem::path FilePath() const { return dir_.path() / "ucmstore.test.r1"; }

  TempDir dir_{TempDir::Memory()};
};

}  // namespace ucmstore::test
