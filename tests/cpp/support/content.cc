// SPDX-License-Identifier: Apache-2.0
//
// The layout of a cell, the only place that knows it:
//   [nonce u64][block id 16][offset u64][shard u32][check u32][filler u64 x 3]
#include "support/content.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <random>

#include "base/hex.h"

namespace ucmstore::test {
namespace {

struct Cell {
  std::uint64_t nonce;
  BlockId block;
  std::uint64_t offset;
  std::uint32_t shard;
  std::uint32_t check;
  std::array<std::uint64_t, 3> filler;
};
static_assert(sizeof(Cell) == kCellBytes);

// SplitMix64: a bijection that spreads every bit.
std::uint64_t Mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

Cell MakeCell(const BlockId& block, std::uint32_t shard, std::uint64_t nonce,
              std::uint64_t offset) {
  std::array<std::uint64_t, 2> words{};
  std::memcpy(words.data(), block.bytes.data(), sizeof(words));
  const std::uint64_t all = Mix(nonce ^ Mix(words[0] ^ Mix(words[1] ^ Mix(offset ^ shard))));
  Cell cell{nonce, block, offset, shard, static_cast<std::uint32_t>(all), {}};
  for (std::size_t i = 0; i < cell.filler.size(); ++i) cell.filler[i] = Mix(all + i);
  return cell;
}

// What differs, in words, when `got` is a whole cell.
std::string Explain(const Cell& got, const Cell& want) {
  if (std::memcmp(&got, &want, sizeof(Cell)) == 0) return {};
  if (got.block != want.block) return "another block's bytes, or none: id " + ToHex(got.block);
  if (got.shard != want.shard) return "bytes of shard " + std::to_string(got.shard);
  if (got.offset != want.offset) return "bytes of offset " + std::to_string(got.offset);
  if (got.nonce != want.nonce) {
    return "bytes of another dump: nonce " + std::to_string(got.nonce) + ", not " +
           std::to_string(want.nonce);
  }
  return "a torn or damaged cell";
}

}  // namespace

std::uint64_t NextNonce() {
  static const std::uint64_t base = [] {
    std::random_device device;
    return Mix((std::uint64_t{device()} << 32U) ^ device());
  }();
  static std::atomic<std::uint64_t> next{0};
  const auto pid = static_cast<std::uint64_t>(::getpid());  // differs in a forked child
  return Mix(base ^ (pid << 40U) ^ next.fetch_add(1)) | 1U;
}

BlockId MakeId(std::uint64_t family, std::uint64_t i) {
  const std::array<std::uint64_t, 2> words{Mix(family ^ Mix(i)), Mix(Mix(family) + i)};
  BlockId id{};
  std::memcpy(id.bytes.data(), words.data(), sizeof(words));
  return id;
}

void Fill(std::span<std::byte> out, const BlockId& block, std::uint32_t shard,
          std::uint64_t nonce) {
  for (std::size_t at = 0; at < out.size(); at += kCellBytes) {
    const Cell cell = MakeCell(block, shard, nonce, at);
    std::memcpy(out.data() + at, &cell, std::min(kCellBytes, out.size() - at));
  }
}

Verdict Inspect(std::span<const std::byte> bytes, const BlockId& block, std::uint32_t shard,
                std::optional<std::uint64_t> nonce) {
  Verdict verdict;
  if (bytes.size() >= sizeof(verdict.nonce)) {
    std::memcpy(&verdict.nonce, bytes.data(), sizeof(verdict.nonce));
  } else if (!nonce) {
    return verdict;
  }
  const std::uint64_t want_nonce = nonce.value_or(verdict.nonce);
  for (std::size_t at = 0; at < bytes.size(); at += kCellBytes) {
    const Cell want = MakeCell(block, shard, want_nonce, at);
    const std::size_t size = std::min(kCellBytes, bytes.size() - at);
    if (std::memcmp(bytes.data() + at, &want, size) == 0) continue;
    Cell got = want;
    std::memcpy(&got, bytes.data() + at, size);
    verdict.why = "block " + ToHex(block) + " shard " + std::to_string(shard) + " byte " +
                  std::to_string(at) + " of " + std::to_string(bytes.size()) + ": " +
                  Explain(got, want);
    return verdict;
  }
  return verdict;
}

}  // namespace ucmstore::test
