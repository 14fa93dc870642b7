// SPDX-License-Identifier: Apache-2.0
//
// Printer and parser of the footer.
#include "store/posix/footer.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "base/checksum.h"

namespace ucmstore {
namespace {

constexpr std::array<char, 8> kMagic{'U', 'C', 'M', 'B', 'L', 'O', 'C', 'K'};
constexpr std::uint32_t kSomeShardIsShort = 1;

// The drawing in footer.h, held by the compiler.
constexpr std::size_t kVersionAt = kMagic.size();
constexpr std::size_t kSizeAt = kVersionAt + 4;
constexpr std::size_t kIdAt = kSizeAt + 4;
constexpr std::size_t kFingerprintAt = kIdAt + sizeof(BlockId);
constexpr std::size_t kShardSizeAt = kFingerprintAt + 32;
constexpr std::size_t kShardsAt = kShardSizeAt + 8;
constexpr std::size_t kFlagsAt = kShardsAt + 4;
constexpr std::size_t kContentAt = kFlagsAt + 4;
constexpr std::size_t kEntriesAt = kContentAt + kMaxContentSize + 1;
static_assert(kVersionAt == 8 && kSizeAt == 12 && kIdAt == 16 && kFingerprintAt == 32);
static_assert(kShardSizeAt == 64 && kShardsAt == 72 && kFlagsAt == 76 && kContentAt == 80);
static_assert(kEntriesAt == 112 && kEntriesAt == BlockLayout::kFooterHeader);

static_assert(std::endian::native == std::endian::little,
              "the numbers below are copied as they lie in memory");

template <typename T>
void Put(std::span<std::byte> out, std::size_t at, T value) noexcept {
  std::memcpy(out.data() + at, &value, sizeof(T));
}

template <typename T>
T Get(std::span<const std::byte> in, std::size_t at) noexcept {
  T value;
  std::memcpy(&value, in.data() + at, sizeof(T));
  return value;
}

bool HasMagic(std::span<const std::byte> in) noexcept {
  return in.size() >= kEntriesAt && std::memcmp(in.data(), kMagic.data(), kMagic.size()) == 0;
}

// Reads and checks the fixed part, content included. "" if all is in range.
std::string ParseHeader(std::span<const std::byte> in, Footer* footer) {
  std::memcpy(footer->id.bytes.data(), in.data() + kIdAt, sizeof(BlockId));
  std::memcpy(footer->fingerprint.data(), in.data() + kFingerprintAt, footer->fingerprint.size());
  footer->layout.shard_size = Get<std::uint64_t>(in, kShardSizeAt);
  footer->layout.shards_per_block = Get<std::uint32_t>(in, kShardsAt);
  if (!footer->layout.valid()) {
    return fmt::format("the footer names an impossible geometry: {} shards of {} bytes",
                       footer->layout.shards_per_block, footer->layout.shard_size);
  }
  if (footer->layout.footer_size() != in.size()) {
    return fmt::format("the footer is {} bytes long, {} shards make {}", in.size(),
                       footer->layout.shards_per_block, footer->layout.footer_size());
  }
  std::array<char, kMaxContentSize + 1> content{};
  std::memcpy(content.data(), in.data() + kContentAt, content.size());
  if (content.back() != '\0') return "the footer's content is not terminated";
  footer->content = content.data();
  return "";
}

std::string ParseEntries(std::span<const std::byte> in, Footer* footer) {
  const BlockLayout& layout = footer->layout;
  footer->shards.resize(layout.shards_per_block);
  for (std::uint32_t i = 0; i < layout.shards_per_block; ++i) {
    const std::size_t at = kEntriesAt + i * BlockLayout::kFooterEntry;
    StoredShard& shard = footer->shards[i];
    shard.length = Get<std::uint32_t>(in, at + 8);
    shard.crc = Get<std::uint32_t>(in, at + 12);
    if (Get<std::uint64_t>(in, at) != layout.ShardOffset(i)) {
      return fmt::format("the footer puts shard {} at another offset than the layout", i);
    }
    if (shard.length == 0 || shard.length > layout.shard_size) {
      return fmt::format("the footer gives shard {} {} bytes of {}", i, shard.length,
                         layout.shard_size);
    }
  }
  const std::uint32_t flags = footer->full() ? 0 : kSomeShardIsShort;
  return Get<std::uint32_t>(in, kFlagsAt) == flags ? "" : "the footer's flags and lengths disagree";
}

}  // namespace

bool Footer::full() const noexcept {
  return std::ranges::all_of(
      shards, [this](const StoredShard& shard) { return shard.length == layout.shard_size; });
}

void PrintFooter(const Footer& footer, std::span<std::byte> out) noexcept {
  const BlockLayout& layout = footer.layout;
  assert(out.size() == layout.footer_size());
  assert(footer.shards.size() == layout.shards_per_block);
  assert(footer.content.size() <= kMaxContentSize);
  std::ranges::fill(out, std::byte{0});
  std::memcpy(out.data(), kMagic.data(), kMagic.size());
  Put(out, kVersionAt, kFooterVersion);
  Put(out, kSizeAt, static_cast<std::uint32_t>(out.size()));
  std::memcpy(out.data() + kIdAt, footer.id.bytes.data(), sizeof(BlockId));
  std::memcpy(out.data() + kFingerprintAt, footer.fingerprint.data(), footer.fingerprint.size());
  Put(out, kShardSizeAt, layout.shard_size);
  Put(out, kShardsAt, layout.shards_per_block);
  Put(out, kFlagsAt, footer.full() ? 0 : kSomeShardIsShort);
  std::memcpy(out.data() + kContentAt, footer.content.data(), footer.content.size());
  for (std::uint32_t i = 0; i < layout.shards_per_block; ++i) {
    const std::size_t at = kEntriesAt + i * BlockLayout::kFooterEntry;
    Put(out, at, layout.ShardOffset(i));
    Put(out, at + 8, footer.shards[i].length);
    Put(out, at + 12, footer.shards[i].crc);
  }
  const std::size_t crc_at = out.size() - BlockLayout::kFooterCrc;
  Put(out, crc_at, Crc32c(out.first(crc_at)));
}

Result<Footer> ParseFooter(std::span<const std::byte> bytes) {
  if (!HasMagic(bytes)) return Failure(Code::kCorruption, "there is no footer");
  const auto version = Get<std::uint32_t>(bytes, kVersionAt);
  // The checksum first: a flipped bit in the version is corruption, not a newer version. Each
  // version keeps size and checksum where they are.
  const std::size_t crc_at = bytes.size() - BlockLayout::kFooterCrc;
  if (Get<std::uint32_t>(bytes, kSizeAt) != bytes.size() ||
      Get<std::uint32_t>(bytes, crc_at) != Crc32c(bytes.first(crc_at))) {
    return Failure(Code::kCorruption, "the footer's checksum differs");
  }
  if (version > kFooterVersion) {
    return Failure(Code::kUnsupported,
                   fmt::format("the block has format {}, this program knows up to {}", version,
                               kFooterVersion));
  }
  Footer footer;
  std::string wrong = version == 0 ? "the footer has version 0" : ParseHeader(bytes, &footer);
  if (wrong.empty()) wrong = ParseEntries(bytes, &footer);
  if (!wrong.empty()) return Failure(Code::kCorruption, wrong);
  return footer;
}

std::uint64_t PeekFooterSize(std::span<const std::byte> page) noexcept {
  if (!HasMagic(page)) return 0;
  const std::uint64_t size = Get<std::uint32_t>(page, kSizeAt);
  constexpr std::uint64_t kMost = BlockLayout{1, BlockLayout::kMaxShards}.footer_size();
  return size % kPageSize == 0 && size <= kMost ? size : 0;
}

}  // namespace ucmstore
