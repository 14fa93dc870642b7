// SPDX-License-Identifier: Apache-2.0
//
// ProcessMark: knows whether its process is still the one it was made in. A forked child has the
// parent's memory but none of its threads, and perhaps its locks, held for ever; so a store that
// was opened before the fork must not be touched there. The question costs one load and takes no
// lock. Thread-safe.
#pragma once

#include <cstdint>

namespace ucmstore {

class ProcessMark {
 public:
  ProcessMark() noexcept;
  // True in a child forked after this was made.
  [[nodiscard]] bool InForkedChild() const noexcept;

 private:
  std::uint64_t generation_;
};

}  // namespace ucmstore
