// SPDX-License-Identifier: Apache-2.0
//
// ForkGuard: while it lives, a forked child closes the descriptor before fork returns there. An
// open-file-description lock is inherited by a forked child: without this, a child that never
// heard of the store would keep its dead parent's locks, and so look alive in its place.
// (A child that runs another program is no problem: O_CLOEXEC.) Thread-safe.
#pragma once

#include <cstddef>

namespace ucmstore {

class ForkGuard {
 public:
  explicit ForkGuard(int fd) noexcept;
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
  // Must end before the descriptor is closed: its number may be somebody else's afterwards.
  ~ForkGuard();

 private:
  std::size_t slot_;
};

}  // namespace ucmstore
