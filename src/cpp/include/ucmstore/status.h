// SPDX-License-Identifier: Apache-2.0
//
// Status: the outcome of a call, passed by value across the plugin ABI, so it owns no heap memory.
// A failed Status says, in words a stranger can act on, which stage, path, value and rule, and
// the errno. FROZEN (see types.h). Not synchronised; copy it freely.
#pragma once

#include <cstring>
#include <string_view>

#include "ucmstore/types.h"

namespace ucmstore {

struct Status {
  Code code = Code::kOk;
  std::int32_t sys_errno = 0;
  char message[248] = {};  // always terminated; empty when ok

  [[nodiscard]] bool ok() const noexcept { return code == Code::kOk; }
  [[nodiscard]] std::string_view text() const noexcept { return message; }

  [[nodiscard]] static Status Ok() noexcept { return {}; }

  // Builds a failure. A message that does not fit loses its middle, not its end: the beginning
  // says which stage and path, the end says what is wrong.
  [[nodiscard]] static Status Error(Code code, std::string_view text,
                                    std::int32_t sys_errno = 0) noexcept {
    Status status;
    status.code = code;
    status.sys_errno = sys_errno;
    constexpr std::size_t kRoom = sizeof(status.message) - 1;
    if (text.size() <= kRoom) {
      std::memcpy(status.message, text.data(), text.size());
      return status;
    }
    constexpr std::string_view kCut = " ... ";
    constexpr std::size_t kHead = (kRoom - kCut.size()) / 2;
    constexpr std::size_t kTail = kRoom - kCut.size() - kHead;
    std::memcpy(status.message, text.data(), kHead);
    std::memcpy(status.message + kHead, kCut.data(), kCut.size());
    std::memcpy(status.message + kHead + kCut.size(), text.data() + text.size() - kTail, kTail);
    return status;
  }
};

static_assert(sizeof(Status) == 256);

// The stable word for a code, such as "not found". Never null.
[[nodiscard]] constexpr const char* CodeName(Code code) noexcept {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kPending: return "pending";
    case Code::kNotFound: return "not found";
    case Code::kInvalidArgument: return "invalid argument";
    case Code::kUnsupported: return "unsupported";
    case Code::kBusy: return "busy";
    case Code::kNoSpace: return "no space";
    case Code::kTimeout: return "timeout";
    case Code::kCancelled: return "cancelled";
    case Code::kAborted: return "aborted";
    case Code::kCorruption: return "corruption";
    case Code::kIoError: return "i/o error";
    case Code::kLimit: return "system limit";
    case Code::kClosed: return "closed";
    case Code::kInternal: return "internal error";
  }
  return "unknown code";
}

}  // namespace ucmstore
