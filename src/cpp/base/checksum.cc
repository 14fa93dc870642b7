// SPDX-License-Identifier: Apache-2.0
//
// CRC-32C by four paths that give the same value:
// - x86 AVX-512: folds. A message is a polynomial over GF(2); 64 bytes of it, multiplied by x^n
//   modulo the checksum's polynomial (carry-less multiplication) and added to the 64 bytes that lie
//   n bits further on, may be left out. What remains goes through the next path.
// - x86 SSE4.2: the CPU's CRC instruction. Its latency is three cycles, its throughput one, so long
//   inputs are cut into three neighbouring streams that run at once; then the first two checksums
//   are shifted over the bytes that follow them (a multiplication again) and added.
// - ARMv8 CRC: the same with Arm's instruction.
// - tables, eight bytes a step.
// See checksum.h.
#include "base/checksum.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace ucmstore {
namespace {

// Polynomials over GF(2), reflected: bit 31 is the coefficient of x^0.
constexpr std::uint32_t kPolynomial = 0x82F63B78;
constexpr std::uint32_t kOne = 0x80000000;

constexpr std::uint32_t TimesX(std::uint32_t a) {
  return (a >> 1) ^ ((a & 1U) != 0 ? kPolynomial : 0U);
}

// a * b modulo the polynomial.
constexpr std::uint32_t Multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = TimesX(b);
  }
  return product;
}

// x^n modulo the polynomial.
[[maybe_unused]] constexpr std::uint32_t PowerOfX(std::uint64_t n) {
  std::uint32_t result = kOne;
  for (std::uint32_t square = TimesX(kOne); n != 0; n >>= 1) {
    if ((n & 1U) != 0) result = Multiply(result, square);
    square = Multiply(square, square);
  }
  return result;
}

// kTables[0][b] is the checksum step of one byte; kTables[k][b] of a byte followed by k zero bytes.
constexpr auto MakeTables() {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = TimesX(crc);
    tables[0][i] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t i = 0; i < 256; ++i) {
      const std::uint32_t before = tables[k - 1][i];
      tables[k][i] = (before >> 8) ^ tables[0][before & 0xFFU];
    }
  }
  return tables;
}
constexpr auto kTables = MakeTables();

std::uint64_t Load64(const std::byte* data) noexcept {
  std::uint64_t word;
  std::memcpy(&word, data, sizeof(word));
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

// One path. All of them take and give the register itself: the checksum, inverted.
using Step = std::uint32_t (*)(std::uint32_t crc, const std::byte* data, std::size_t size) noexcept;

std::uint32_t StepPortable(std::uint32_t crc, const std::byte* data, std::size_t size) noexcept {
  for (; size >= 8; size -= 8, data += 8) {
    const std::uint64_t word = Load64(data) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xFFU];
  }
  for (; size > 0; --size, ++data) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<std::uint32_t>(*data)) & 0xFFU];
  }
  return crc;
}

constexpr std::size_t kLongStride = 4096;
[[maybe_unused]] constexpr std::size_t kShortStride = 256;

#if defined(__x86_64__)

#define UCMSTORE_TARGET_CRC __attribute__((target("sse4.2,pclmul")))

// The product of `crc` and x^(8 * bytes - 33), unreduced. Fed to the instruction as the next eight
// bytes, which multiplies by the missing x^33 and reduces, it is `crc` moved over `bytes` bytes.
template <std::size_t bytes>
UCMSTORE_TARGET_CRC inline std::uint64_t Shift(std::uint64_t crc) noexcept {
  constexpr std::uint32_t kPower = PowerOfX(8 * bytes - 33);
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(crc)),
                                               _mm_cvtsi64_si128(kPower), 0);
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(product));
}

// Takes all whole groups of three strides from the front.
template <std::size_t stride>
UCMSTORE_TARGET_CRC inline std::uint64_t ThreeStreams(std::uint64_t crc, const std::byte*& data,
                                                      std::size_t& size) noexcept {
  static_assert(stride % 8 == 0);
  for (; size >= 3 * stride; size -= 3 * stride) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (const std::byte* end = data + stride - 8; data < end; data += 8) {
      crc = _mm_crc32_u64(crc, Load64(data));
      second = _mm_crc32_u64(second, Load64(data + stride));
      third = _mm_crc32_u64(third, Load64(data + 2 * stride));
    }
    crc = _mm_crc32_u64(crc, Load64(data));
    second = _mm_crc32_u64(second, Load64(data + stride));
    const std::uint64_t last = Load64(data + 2 * stride);
    crc = _mm_crc32_u64(third, last ^ Shift<2 * stride>(crc) ^ Shift<stride>(second));
    data += 2 * stride + 8;
  }
  return crc;
}

UCMSTORE_TARGET_CRC std::uint32_t StepSse(std::uint32_t begin, const std::byte* data,
                                          std::size_t size) noexcept {
  std::uint64_t crc = begin;
  crc = ThreeStreams<kLongStride>(crc, data, size);
  crc = ThreeStreams<kShortStride>(crc, data, size);
  for (; size >= 8; size -= 8, data += 8) crc = _mm_crc32_u64(crc, Load64(data));
  auto rest = static_cast<std::uint32_t>(crc);
  for (; size > 0; --size, ++data) rest = _mm_crc32_u8(rest, std::to_integer<std::uint8_t>(*data));
  return rest;
}

#define UCMSTORE_TARGET_FOLD __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2")))

// `next` plus `sum` moved over `bytes` bytes, in each of the four lanes of 128 bits. The lower half
// of a lane comes first in the message, so it moves 64 bits further. A product of two reflected
// halves is short of one factor x, hence the - 1.
template <std::size_t bytes>
UCMSTORE_TARGET_FOLD inline __m512i Fold(__m512i sum, __m512i next) noexcept {
  constexpr auto kFirst = static_cast<long long>(std::uint64_t{PowerOfX(8 * bytes + 63)} << 32);
  constexpr auto kSecond = static_cast<long long>(std::uint64_t{PowerOfX(8 * bytes - 1)} << 32);
  const __m512i powers =
      _mm512_set_epi64(kSecond, kFirst, kSecond, kFirst, kSecond, kFirst, kSecond, kFirst);
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(sum, powers, 0x00),
                                   _mm512_clmulepi64_epi128(sum, powers, 0x11), next, kXorOfThree);
}

UCMSTORE_TARGET_FOLD std::uint32_t StepFold(std::uint32_t crc, const std::byte* data,
                                            std::size_t size) noexcept {
  constexpr std::size_t kLane = sizeof(__m512i);
  if (size < 4 * kLane) return StepSse(crc, data, size);
  __m512i sum0 = _mm512_loadu_si512(data);
  __m512i sum1 = _mm512_loadu_si512(data + kLane);
  __m512i sum2 = _mm512_loadu_si512(data + 2 * kLane);
  __m512i sum3 = _mm512_loadu_si512(data + 3 * kLane);
  sum0 = _mm512_xor_si512(
      sum0, _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<std::int32_t>(crc))));
  data += 4 * kLane;
  for (size -= 4 * kLane; size >= 4 * kLane; size -= 4 * kLane, data += 4 * kLane) {
    sum0 = Fold<4 * kLane>(sum0, _mm512_loadu_si512(data));
    sum1 = Fold<4 * kLane>(sum1, _mm512_loadu_si512(data + kLane));
    sum2 = Fold<4 * kLane>(sum2, _mm512_loadu_si512(data + 2 * kLane));
    sum3 = Fold<4 * kLane>(sum3, _mm512_loadu_si512(data + 3 * kLane));
  }
  sum1 = Fold<kLane>(sum0, sum1);
  sum2 = Fold<kLane>(sum1, sum2);
  sum3 = Fold<kLane>(sum2, sum3);
  for (; size >= kLane; size -= kLane, data += kLane) {
    sum3 = Fold<kLane>(sum3, _mm512_loadu_si512(data));
  }
  std::byte rest[kLane];
  _mm512_storeu_si512(rest, sum3);
  return StepSse(StepSse(0, rest, kLane), data, size);
}

bool HasSse() noexcept {
  return __builtin_cpu_supports("sse4.2") != 0 && __builtin_cpu_supports("pclmul") != 0;
}
bool HasFold() noexcept {
  return HasSse() && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("vpclmulqdq") != 0;
}

#elif defined(__aarch64__)

#if defined(__clang__)
#define UCMSTORE_TARGET_CRC __attribute__((target("crc")))
#else
#define UCMSTORE_TARGET_CRC __attribute__((target("+crc")))
#endif

// Carry-less multiplication is another, optional extension of Arm, and one software multiplication
// a stream and 12 KiB is cheap: so only long strides run three at once.
UCMSTORE_TARGET_CRC std::uint32_t StepArm(std::uint32_t crc, const std::byte* data,
                                          std::size_t size) noexcept {
  constexpr std::uint32_t kOver = PowerOfX(8 * kLongStride);
  for (; size >= 3 * kLongStride; size -= 3 * kLongStride, data += 2 * kLongStride) {
    std::uint32_t second = 0;
    std::uint32_t third = 0;
    for (const std::byte* end = data + kLongStride; data < end; data += 8) {
      crc = __crc32cd(crc, Load64(data));
      second = __crc32cd(second, Load64(data + kLongStride));
      third = __crc32cd(third, Load64(data + 2 * kLongStride));
    }
    crc = Multiply(Multiply(crc, kOver) ^ second, kOver) ^ third;
  }
  for (; size >= 8; size -= 8, data += 8) crc = __crc32cd(crc, Load64(data));
  for (; size > 0; --size, ++data) crc = __crc32cb(crc, std::to_integer<std::uint8_t>(*data));
  return crc;
}

bool HasArm() noexcept { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }

#endif

template <Step step>
std::uint32_t Run(std::span<const std::byte> bytes, std::uint32_t crc) noexcept {
  return ~step(~crc, bytes.data(), bytes.size());
}

struct Paths {
  std::array<Crc32cPath, 3> list{};
  std::size_t count = 0;
};

Paths FindPaths() noexcept {
  Paths paths;
#if defined(__x86_64__)
  if (HasFold()) paths.list[paths.count++] = {"avx512", Run<StepFold>};
  if (HasSse()) paths.list[paths.count++] = {"sse4.2", Run<StepSse>};
#elif defined(__aarch64__)
  if (HasArm()) paths.list[paths.count++] = {"armv8", Run<StepArm>};
#endif
  paths.list[paths.count++] = {"portable", Run<StepPortable>};
  return paths;
}

}  // namespace

std::span<const Crc32cPath> Crc32cPaths() noexcept {
  static const Paths kPaths = FindPaths();
  return {kPaths.list.data(), kPaths.count};
}

std::uint32_t Crc32c(std::span<const std::byte> bytes, std::uint32_t crc) noexcept {
  static const auto kRun = Crc32cPaths().front().run;
  return kRun(bytes, crc);
}

}  // namespace ucmstore
