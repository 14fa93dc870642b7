// SPDX-License-Identifier: Apache-2.0
//
// What there is to know about forks: whether this process is a forked child of the one that made an
// object, and whether a fork fell into a stretch of code. Between the opening of a descriptor and
// the ForkGuard that closes it in children there is a moment: a child born in it keeps a copy, and
// with it its parent's lock, for as long as it lives. Who sees that this happened opens anew.
// Costs nothing but at a fork; thread-safe.
#pragma once

#include <cstdint>

namespace ucmstore {

// Another number in a child than in its parent, and the same as long as the process lives.
[[nodiscard]] std::uint64_t ForkDepth() noexcept;

// Begins where it is made.
class ForkWatch {
 public:
  ForkWatch() noexcept;
  // True: no child was born since, and none that is born from now on has missed what was stored.
  [[nodiscard]] bool Quiet() const noexcept;

 private:
  std::uint64_t begun_;
  bool quiet_;
};

}  // namespace ucmstore
