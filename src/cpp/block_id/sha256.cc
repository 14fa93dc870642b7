// SPDX-License-Identifier: Apache-2.0
//
// SHA-256 by three paths that give the same value: the SHA instructions of x86 and of Arm, and
// plain integers. See sha256.h.
#include "block_id/sha256.h"

#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace ucmstore {
namespace {

constexpr std::size_t kBlock = 64;

alignas(16) constexpr std::array<std::uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t LoadBigEndian32(const std::byte* data) noexcept {
  std::uint32_t word;
  std::memcpy(&word, data, sizeof(word));
  if constexpr (std::endian::native == std::endian::little) word = __builtin_bswap32(word);
  return word;
}

void StoreBigEndian32(std::uint32_t word, void* out) noexcept {
  if constexpr (std::endian::native == std::endian::little) word = __builtin_bswap32(word);
  std::memcpy(out, &word, sizeof(word));
}

void CompressPortable(std::uint32_t* state, const std::byte* blocks, std::size_t count) noexcept {
  for (; count > 0; --count, blocks += kBlock) {
    std::array<std::uint32_t, 64> w;
    for (std::size_t i = 0; i < 16; ++i) w[i] = LoadBigEndian32(blocks + 4 * i);
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t a = w[i - 15];
      const std::uint32_t b = w[i - 2];
      w[i] = w[i - 16] + w[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
    }
    std::uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    std::uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const std::uint32_t choice = (e & f) ^ (~e & g);
      const std::uint32_t t1 = h + sum1 + choice + kRound[i] + w[i];
      const std::uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const std::uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + sum0 + majority;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
  }
}

#if defined(__x86_64__)

#define UCMSTORE_TARGET_SHA __attribute__((target("sha,sse4.1,ssse3")))

// Rounds 4 * i to the last. From round 16 on, each four words of the schedule follow from the
// sixteen before them. A template, so that `w` is indexed by constants and lives in registers.
template <std::size_t i>
UCMSTORE_TARGET_SHA [[gnu::always_inline]] inline void RoundsFrom(__m128i (&w)[4], __m128i& abef,
                                                                  __m128i& cdgh) noexcept {
  if constexpr (i >= 4) {
    const __m128i last = w[(i + 3) % 4];
    const __m128i seven_back = _mm_alignr_epi8(last, w[(i + 2) % 4], 4);
    const __m128i sum = _mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]);
    w[i % 4] = _mm_sha256msg2_epu32(_mm_add_epi32(sum, seven_back), last);
  }
  const auto* round = reinterpret_cast<const __m128i*>(kRound.data() + 4 * i);
  const __m128i input = _mm_add_epi32(w[i % 4], _mm_load_si128(round));
  cdgh = _mm_sha256rnds2_epu32(cdgh, abef, input);
  abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(input, 0x0E));
  if constexpr (i < 15) RoundsFrom<i + 1>(w, abef, cdgh);
}

// The instruction keeps the eight words in two registers, as ABEF and CDGH.
UCMSTORE_TARGET_SHA void CompressSha(std::uint32_t* state, const std::byte* blocks,
                                     std::size_t count) noexcept {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  auto* words = reinterpret_cast<__m128i*>(state);
  const __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xB1);
  const __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1B);
  __m128i abef = _mm_alignr_epi8(badc, hgfe, 8);
  __m128i cdgh = _mm_blend_epi16(hgfe, badc, 0xF0);

  for (; count > 0; --count, blocks += kBlock) {
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    __m128i w[4];
    for (std::size_t i = 0; i < 4; ++i) {
      const auto* data = reinterpret_cast<const __m128i*>(blocks + 16 * i);
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(data), swap);
    }
    RoundsFrom<0>(w, abef, cdgh);
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }

  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(words, _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(words + 1, _mm_alignr_epi8(dchg, feba, 8));
}

// cpuid, since __builtin_cpu_supports of older compilers does not know the name.
bool HasSha() noexcept {
  unsigned int a = 0, b = 0, c = 0, d = 0;
  if (__builtin_cpu_supports("sse4.1") == 0 || __builtin_cpu_supports("ssse3") == 0) return false;
  asm("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(0), "c"(0));
  if (a < 7) return false;
  asm("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
  constexpr unsigned int kShaBit = 1U << 29;
  return (b & kShaBit) != 0;
}

#elif defined(__aarch64__)

#if defined(__clang__)
#define UCMSTORE_TARGET_SHA __attribute__((target("sha2")))
#else
#define UCMSTORE_TARGET_SHA __attribute__((target("+crypto")))
#endif

// As above; here the instruction keeps the words in their order, ABCD and EFGH.
template <std::size_t i>
UCMSTORE_TARGET_SHA inline void RoundsFrom(uint32x4_t (&w)[4], uint32x4_t& abcd,
                                           uint32x4_t& efgh) noexcept {
  if constexpr (i >= 4) {
    w[i % 4] =
        vsha256su1q_u32(vsha256su0q_u32(w[i % 4], w[(i + 1) % 4]), w[(i + 2) % 4], w[(i + 3) % 4]);
  }
  const uint32x4_t input = vaddq_u32(w[i % 4], vld1q_u32(kRound.data() + 4 * i));
  const uint32x4_t abcd_before = abcd;
  abcd = vsha256hq_u32(abcd, efgh, input);
  efgh = vsha256h2q_u32(efgh, abcd_before, input);
  if constexpr (i < 15) RoundsFrom<i + 1>(w, abcd, efgh);
}

UCMSTORE_TARGET_SHA void CompressSha(std::uint32_t* state, const std::byte* blocks,
                                     std::size_t count) noexcept {
  uint32x4_t abcd = vld1q_u32(state);
  uint32x4_t efgh = vld1q_u32(state + 4);
  for (; count > 0; --count, blocks += kBlock) {
    const uint32x4_t abcd_before = abcd;
    const uint32x4_t efgh_before = efgh;
    uint32x4_t w[4];
    for (std::size_t i = 0; i < 4; ++i) {
      const auto* data = reinterpret_cast<const std::uint8_t*>(blocks + 16 * i);
      w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(data)));
    }
    RoundsFrom<0>(w, abcd, efgh);
    abcd = vaddq_u32(abcd, abcd_before);
    efgh = vaddq_u32(efgh, efgh_before);
  }
  vst1q_u32(state, abcd);
  vst1q_u32(state + 4, efgh);
}

bool HasSha() noexcept { return (getauxval(AT_HWCAP) & HWCAP_SHA2) != 0; }

#endif

struct Paths {
  std::array<Sha256Path, 2> list{};
  std::size_t count = 0;
};

Paths FindPaths() noexcept {
  Paths paths;
#if defined(__x86_64__) || defined(__aarch64__)
  if (HasSha()) paths.list[paths.count++] = {"sha", CompressSha};
#endif
  paths.list[paths.count++] = {"portable", CompressPortable};
  return paths;
}

}  // namespace

std::span<const Sha256Path> Sha256Paths() noexcept {
  static const Paths kPaths = FindPaths();
  return {kPaths.list.data(), kPaths.count};
}

void Sha256::Update(std::span<const std::byte> bytes) noexcept {
  if (bytes.empty()) return;
  const std::size_t filled = taken_ % kBlockSize;
  taken_ += bytes.size();
  if (filled != 0) {
    const std::size_t room = kBlockSize - filled;
    const std::size_t part = bytes.size() < room ? bytes.size() : room;
    std::memcpy(pending_.data() + filled, bytes.data(), part);
    bytes = bytes.subspan(part);
    if (part < room) return;
    compress_(state_.data(), pending_.data(), 1);
  }
  const std::size_t whole = bytes.size() / kBlockSize;
  if (whole != 0) compress_(state_.data(), bytes.data(), whole);
  bytes = bytes.subspan(whole * kBlockSize);
  if (!bytes.empty()) std::memcpy(pending_.data(), bytes.data(), bytes.size());
}

Sha256Digest Sha256::Finish() noexcept {
  constexpr std::size_t kLengthAt = kBlockSize - 8;
  std::size_t filled = taken_ % kBlockSize;
  pending_[filled++] = std::byte{0x80};
  if (filled > kLengthAt) {
    std::memset(pending_.data() + filled, 0, kBlockSize - filled);
    compress_(state_.data(), pending_.data(), 1);
    filled = 0;
  }
  std::memset(pending_.data() + filled, 0, kLengthAt - filled);
  const std::uint64_t bits = taken_ * 8;
  StoreBigEndian32(static_cast<std::uint32_t>(bits >> 32), pending_.data() + kLengthAt);
  StoreBigEndian32(static_cast<std::uint32_t>(bits), pending_.data() + kLengthAt + 4);
  compress_(state_.data(), pending_.data(), 1);

  Sha256Digest digest;
  for (std::size_t i = 0; i < state_.size(); ++i) StoreBigEndian32(state_[i], &digest[4 * i]);
  return digest;
}

Sha256Digest Sha256Of(std::span<const std::byte> bytes) noexcept {
  Sha256 hash;
  hash.Update(bytes);
  return hash.Finish();
}

Sha256Digest Sha256Of(std::string_view text) noexcept {
  return Sha256Of(std::as_bytes(std::span(text)));
}

}  // namespace ucmstore
