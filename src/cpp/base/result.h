// SPDX-License-Identifier: Apache-2.0
//
// Result<T>: a value, or the Status that says why there is none. Plus the ways to make a failed
// Status: from words, and from an errno. Thread-safe (plain values).
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

#include "ucmstore/status.h"

namespace ucmstore {

template <typename T>
using Result = std::expected<T, Status>;

// A failed Result or Status from words.
[[nodiscard]] inline std::unexpected<Status> Failure(Code code, std::string_view text) {
  return std::unexpected(Status::Error(code, text));
}

// A failed Status whose words are made by `words`, for where nothing may throw: if there is no
// memory for them, the bare ones have to do.
template <typename Words>
[[nodiscard]] Status ErrorInWords(Code code, std::string_view bare, Words&& words,
                                  std::int32_t sys_errno = 0) noexcept {
  try {
    return Status::Error(code, words(), sys_errno);
  } catch (...) {  // out of memory
    return Status::Error(code, bare, sys_errno);
  }
}

// A failed Status from an errno: "<text>: <strerror> (errno N)". The code follows from the errno:
// ENOSPC, EDQUOT -> kNoSpace; ENOENT -> kNotFound; EMFILE, ENFILE, ENOMEM, EFBIG -> kLimit, and the
// text goes on with the limit's name, its value and what to do; EINVAL, ENOSYS, EOPNOTSUPP ->
// kUnsupported; everything else -> kIoError.
[[nodiscard]] Status ErrnoStatus(int error, std::string_view text);
[[nodiscard]] Code CodeOfErrno(int error) noexcept;

// "No space left on device (errno 28)". Thread-safe, unlike strerror.
[[nodiscard]] std::string ErrnoText(int error);

}  // namespace ucmstore
