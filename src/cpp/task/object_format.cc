// SPDX-License-Identifier: Apache-2.0
//
// Printing and parsing.
#include "task/object_format.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "base/checksum.h"

namespace ucmstore {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are stored as they are");

constexpr std::string_view kMagic = "UCMOBJCT";
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kHeaderSizeAt = 12;
constexpr std::size_t kIdAt = 16;
constexpr std::size_t kFingerprintAt = 32;
constexpr std::size_t kShardSizeAt = 64;
constexpr std::size_t kShardsAt = 72;
constexpr std::size_t kContentAt = 80;
constexpr std::size_t kContentSize = 32;
constexpr std::size_t kEntriesAt = kContentAt + kContentSize;
constexpr std::size_t kEntry = 8;
constexpr std::size_t kCrc = 4;
constexpr std::uint32_t kMaxShards = 65536;
static_assert(kEntriesAt == 112);

template <typename T>
void Put(std::span<std::byte> out, std::size_t at, T value) noexcept {
  std::memcpy(out.data() + at, &value, sizeof(value));
}

template <typename T>
T Get(std::span<const std::byte> in, std::size_t at) noexcept {
  T value;
  std::memcpy(&value, in.data() + at, sizeof(value));
  return value;
}

std::array<char, kContentSize> Padded(const std::string& content) noexcept {
  std::array<char, kContentSize> padded{};
  std::copy_n(content.begin(), std::min(content.size(), kContentSize - 1), padded.begin());
  return padded;
}

// The header as far as its checksum says that it is one: kCorruption, in words, if not.
Result<std::span<const std::byte>> Header(std::span<const std::byte> object) {
  if (object.size() < kEntriesAt + kCrc ||
      std::memcmp(object.data(), kMagic.data(), kMagic.size()) != 0) {
    return Failure(Code::kCorruption, "what is stored is no block");
  }
  const std::size_t size = Get<std::uint32_t>(object, kHeaderSizeAt);
  if (size < kEntriesAt + kCrc || size > object.size()) {
    return Failure(Code::kCorruption, "the object is cut off in its header");
  }
  const auto header = object.first(size);
  if (Get<std::uint32_t>(header, size - kCrc) != Crc32c(header.first(size - kCrc))) {
    return Failure(Code::kCorruption, "the header's checksum differs");
  }
  return header;
}

// A whole header of ours: is it that of this block?
Status CheckHeader(const ObjectKind& kind, const BlockId& id, std::span<const std::byte> header) {
  const auto version = Get<std::uint32_t>(header, kVersionAt);
  if (version > kObjectVersion) {
    return Status::Error(Code::kUnsupported,
                         fmt::format("the object has format {}, this program knows up to {}",
                                     version, kObjectVersion));
  }
  if (std::memcmp(header.data() + kIdAt, id.bytes.data(), sizeof(id)) != 0) {
    return Status::Error(Code::kCorruption, "the object is another block's");
  }
  if (std::memcmp(header.data() + kFingerprintAt, kind.fingerprint.data(),
                  kind.fingerprint.size()) != 0) {
    return Status::Error(Code::kCorruption, "the object is of another namespace");
  }
  const auto shard_size = Get<std::uint64_t>(header, kShardSizeAt);
  const auto shards = Get<std::uint32_t>(header, kShardsAt);
  if (shard_size != kind.shard_size || shards != kind.shards_per_block) {
    return Status::Error(
        Code::kInvalidArgument,
        fmt::format("the object has {} shards of {} bytes, this store's blocks {} of {}", shards,
                    shard_size, kind.shards_per_block, kind.shard_size));
  }
  if (std::memcmp(header.data() + kContentAt, Padded(kind.content).data(), kContentSize) != 0) {
    return Status::Error(
        Code::kInvalidArgument,
        fmt::format("the object's content is not {}, which this store's is", kind.content));
  }
  if (version == 0 || header.size() != kind.header_size()) {
    return Status::Error(Code::kCorruption, "the header contradicts itself");
  }
  return Status::Ok();
}

}  // namespace

std::string CheckObjectKind(const ObjectKind& kind) {
  if (kind.shards_per_block == 0 || kind.shards_per_block > kMaxShards) {
    return fmt::format("a block of {} shards cannot be an object: at most {}",
                       kind.shards_per_block, kMaxShards);
  }
  if (kind.shard_size == 0 || kind.shard_size > UINT32_MAX) {
    return fmt::format("a shard of {} bytes cannot be part of an object", kind.shard_size);
  }
  if (kind.content.empty() || kind.content.size() >= kContentSize) {
    return fmt::format("content '{}' must have 1 to {} characters", kind.content, kContentSize - 1);
  }
  return {};
}

void PrintObjectHeader(const ObjectKind& kind, const BlockId& id,
                       std::span<const std::uint32_t> lengths,
                       std::span<std::byte> object) noexcept {
  const std::size_t size = kind.header_size();
  assert(lengths.size() == kind.shards_per_block && object.size() >= size);
  const auto header = object.first(size);
  std::ranges::fill(header, std::byte{0});
  std::memcpy(header.data(), kMagic.data(), kMagic.size());
  Put(header, kVersionAt, kObjectVersion);
  Put(header, kHeaderSizeAt, static_cast<std::uint32_t>(size));
  std::memcpy(header.data() + kIdAt, id.bytes.data(), sizeof(id));
  std::memcpy(header.data() + kFingerprintAt, kind.fingerprint.data(), kind.fingerprint.size());
  Put(header, kShardSizeAt, kind.shard_size);
  Put(header, kShardsAt, kind.shards_per_block);
  std::memcpy(header.data() + kContentAt, Padded(kind.content).data(), kContentSize);
  std::span<const std::byte> data = object.subspan(size);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    Put(header, kEntriesAt + i * kEntry, lengths[i]);
    Put(header, kEntriesAt + i * kEntry + 4, Crc32c(data.first(lengths[i])));
    data = data.subspan(lengths[i]);
  }
  assert(data.empty());
  Put(header, size - kCrc, Crc32c(header.first(size - kCrc)));
}

Result<ParsedObject> ParsedObject::Parse(const ObjectKind& kind, const BlockId& id,
                                         std::span<const std::byte> object) {
  const Result<std::span<const std::byte>> header = Header(object);
  if (!header) return std::unexpected(header.error());
  if (const Status status = CheckHeader(kind, id, *header); !status.ok()) {
    return std::unexpected(status);
  }
  ParsedObject parsed;
  parsed.shards_.reserve(kind.shards_per_block);
  std::span<const std::byte> data = object.subspan(header->size());
  for (std::uint32_t i = 0; i < kind.shards_per_block; ++i) {
    const auto length = Get<std::uint32_t>(*header, kEntriesAt + i * kEntry);
    if (length == 0 || length > kind.shard_size || length > data.size()) {
      return Failure(Code::kCorruption,
                     fmt::format("the object ends in shard {}, or gives it an impossible length of "
                                 "{} bytes",
                                 i, length));
    }
    parsed.shards_.push_back(
        {data.first(length), Get<std::uint32_t>(*header, kEntriesAt + i * kEntry + 4)});
    data = data.subspan(length);
  }
  if (!data.empty()) {
    return Failure(Code::kCorruption,
                   fmt::format("{} bytes follow behind the object's end", data.size()));
  }
  return parsed;
}

Result<std::span<const std::byte>> ParsedObject::Shard(std::uint32_t index) const {
  const Entry& entry = shards_.at(index);
  if (Crc32c(entry.bytes) == entry.crc) return entry.bytes;
  return Failure(Code::kCorruption, fmt::format("the checksum of shard {} differs", index));
}

}  // namespace ucmstore
