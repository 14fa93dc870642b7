// SPDX-License-Identifier: Apache-2.0
//
// Reclaim: what a store does so that its roots stay below their capacity: a collector for each
// root, by its path, and the times of the blocks that are used. A store without a capacity has
// none. Thread-safe after Open.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "store/posix/collector.h"
#include "store/posix/limits.h"
#include "store/posix/root.h"
#include "store/posix/touches.h"

namespace ucmstore {

class Reclaim {
 public:
  Reclaim(const Collector::Services& services, std::span<const std::string> paths,
          const Limits& limits, const Modes& modes, milliseconds touch_interval);

  // Agrees with the other stores of each root, and begins. Not ok: they want another limit, and
  // this store must not be opened.
  [[nodiscard]] Status Open();

  // A dump became visible, or found no room on the disk.
  void Committed(const Root& root, std::uint64_t bytes) noexcept;
  void Full(const Root& root) noexcept;
  [[nodiscard]] Touches& touches() noexcept { return touches_; }

  // Of all roots together, as last measured. Looks at no disk.
  [[nodiscard]] std::uint64_t used_bytes() const noexcept;
  [[nodiscard]] std::uint64_t capacity_bytes() const noexcept;
  void LookForStalls() noexcept;

  // Ends within one folder. False: the disk hangs.
  [[nodiscard]] bool End(TimePoint until);

 private:
  [[nodiscard]] Collector* Of(const Root& root) noexcept;

  std::vector<std::unique_ptr<Collector>> collectors_;
  Touches touches_;
};

}  // namespace ucmstore
