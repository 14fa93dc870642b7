// SPDX-License-Identifier: Apache-2.0
//
// SHA-256 (FIPS 180-4), the hash behind fingerprints and block ids. Uses the CPU's instructions
// where there are some, found at run time; every path gives the same value. A Sha256 that has
// taken a common beginning can be copied, and each copy goes on by itself. Not synchronised.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ucmstore {

using Sha256Digest = std::array<std::uint8_t, 32>;

// The ways to compute it that this CPU has, fastest first, "portable" last. For tests.
struct Sha256Path {
  const char* name;
  // Takes `count` blocks of 64 bytes into the state.
  void (*compress)(std::uint32_t* state, const std::byte* blocks, std::size_t count) noexcept;
};
[[nodiscard]] std::span<const Sha256Path> Sha256Paths() noexcept;

class Sha256 {
 public:
  Sha256() noexcept : Sha256(Sha256Paths().front()) {}
  explicit Sha256(const Sha256Path& path) noexcept : compress_(path.compress) {}

  void Update(std::span<const std::byte> bytes) noexcept;
  void Update(std::string_view text) noexcept { Update(std::as_bytes(std::span(text))); }
  // The digest of all that was taken. Called once, last.
  [[nodiscard]] Sha256Digest Finish() noexcept;

 private:
  static constexpr std::size_t kBlockSize = 64;

  decltype(Sha256Path::compress) compress_;
  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::uint64_t taken_ = 0;                    // bytes
  std::array<std::byte, kBlockSize> pending_;  // the first taken_ % 64 are filled
};

[[nodiscard]] Sha256Digest Sha256Of(std::span<const std::byte> bytes) noexcept;
[[nodiscard]] Sha256Digest Sha256Of(std::string_view text) noexcept;

}  // namespace ucmstore
