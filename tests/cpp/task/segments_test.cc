// SPDX-License-Identifier: Apache-2.0
//
// Copies between shards and lists of segments, against the simplest model there is.
#include "task/segments.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/batch.h"

namespace ucmstore::test {
namespace {

std::vector<std::byte> Numbered(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return bytes;
}

TEST(Segments, TotalBytesSeesOverflow) {
  std::byte byte{};
  EXPECT_EQ(TotalBytes({}), 0U);
  const std::vector<Segment> two = {{&byte, 3}, {nullptr, 4}};
  EXPECT_EQ(TotalBytes(two), 7U);
  for (const std::vector<Segment>& over :
       {std::vector<Segment>{{&byte, ~0ULL}, {&byte, 1}},
        std::vector<Segment>{{&byte, 1ULL << 63}, {&byte, 1ULL << 63}},
        std::vector<Segment>{{&byte, 1}, {&byte, ~0ULL}, {&byte, ~0ULL}}}) {
    EXPECT_EQ(TotalBytes(over), ~0ULL);
  }
}

TEST(Segments, SkipsAreNullWithASize) {
  std::byte byte{};
  const std::vector<Segment> none = {{&byte, 1}, {nullptr, 0}};
  const std::vector<Segment> one = {{&byte, 1}, {nullptr, 1}};
  EXPECT_FALSE(HasSkips(none));
  EXPECT_TRUE(HasSkips(one));
  EXPECT_FALSE(HasSkips({}));
}

TEST(Segments, GatherIsTheConcatenation) {
  Random random;
  for (int round = 0; round < 200; ++round) {
    const std::size_t size = random.Between(1, 300);
    std::vector<std::byte> source = Numbered(size);
    std::vector<Segment> segments;
    std::size_t at = 0;
    for (const Piece& piece : CutAtRandom(size, 8, random)) {
      segments.push_back({source.data() + at, piece.size});
      at += piece.size;
    }
    std::vector<std::byte> to(size + 2, kSentinel);
    EXPECT_EQ(Gather(segments, std::span(to).subspan(1, size)), size);
    EXPECT_TRUE(std::equal(source.begin(), source.end(), to.begin() + 1));
    EXPECT_EQ(to.front(), kSentinel);
    EXPECT_EQ(to.back(), kSentinel);
  }
}

TEST(Segments, ScatterStopsAtTheShorterEnd) {
  Random random;
  for (int round = 0; round < 300; ++round) {
    const std::size_t room = random.Between(1, 200);
    const std::vector<std::byte> from = Numbered(random.Between(0, 220));
    std::vector<std::byte> to(room + 64, kSentinel);
    std::vector<std::byte> want = to;
    std::vector<Segment> segments;
    std::size_t at = 0;
    for (const Piece& piece : CutAtRandom(room, 8, random)) {
      const bool skip = random.OneIn(4);
      segments.push_back({skip ? nullptr : to.data() + at, piece.size});
      for (std::size_t i = 0; !skip && i < piece.size && at + i < from.size(); ++i) {
        want[at + i] = from[at + i];
      }
      at += piece.size;
    }
    Scatter(from, segments);
    EXPECT_EQ(to, want);
  }
}

TEST(Segments, CheckTaskNamesThePositionAndTheRule) {
  std::byte byte{};
  const Segment one{&byte, 1};
  const std::vector<Shard> shards = {{MakeId(1, 1), &one, 1, 0}, {MakeId(1, 2), &one, 1, 9}};
  TaskDesc desc;
  desc.shards = shards.data();
  desc.shard_count = 2;
  const Status status = CheckTask(desc, TaskKind::kLoad, 1, 4);
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_NE(status.text().find("shard 1"), std::string_view::npos) << status.message;
  EXPECT_NE(status.text().find('9'), std::string_view::npos) << status.message;
  EXPECT_NE(status.text().find('3'), std::string_view::npos) << status.message;
  EXPECT_TRUE(CheckTask(desc, TaskKind::kLoad, 1, 10).ok());
}

}  // namespace
}  // namespace ucmstore::test
