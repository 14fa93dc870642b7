// SPDX-License-Identifier: Apache-2.0
//
// SegmentFolder: the folder that segments lie in, opened, and the lock that lets one process at a
// time make a segment in it: many that start together must not each reserve the memory of a whole
// ring before one of them wins. Nothing depends on the lock but that: a name appears by one link(2)
// of a file that is whole. So the wait for it is bounded, and who waited too long goes on without.
// Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace ucmstore {

class SegmentFolder {
 public:
  [[nodiscard]] static Result<SegmentFolder> Open(const std::string& path);

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::string PathOf(const std::string& file_name) const;

  // Held as long as the descriptor; empty if it was not to be had within `patience`, or as soon as
  // `give_up()` is true, which is asked every few milliseconds.
  [[nodiscard]] UniqueFd Lock(std::chrono::milliseconds patience,
                              const std::function<bool()>& give_up) const;

 private:
  std::string path_;
  UniqueFd fd_;
};

}  // namespace ucmstore
