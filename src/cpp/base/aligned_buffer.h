// SPDX-License-Identifier: Apache-2.0
//
// AlignedBuffer: page-aligned memory for direct I/O. Grows on demand and keeps what it has, so one
// per worker thread serves every transfer without allocating. Move-only; not synchronised.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

namespace ucmstore {

inline constexpr std::size_t kPageSize = 4096;

class AlignedBuffer {
 public:
  // At least `size` bytes, contents unspecified. Empty when out of memory.
  [[nodiscard]] std::span<std::byte> Reserve(std::size_t size) noexcept {
    if (size > size_) {
      const std::size_t rounded = (size + kPageSize - 1) / kPageSize * kPageSize;
      data_.reset(static_cast<std::byte*>(std::aligned_alloc(kPageSize, rounded)));
      size_ = data_ ? rounded : 0;
    }
    if (!data_) return {};
    return {data_.get(), size};
  }
  // Gives memory above `keep` bytes back, so that one huge block does not stay for ever.
  void Trim(std::size_t keep) noexcept {
    if (size_ > keep) {
      data_.reset();
      size_ = 0;
    }
  }

 private:
  struct Free {
    void operator()(std::byte* data) const noexcept { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace ucmstore
