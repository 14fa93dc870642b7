// SPDX-License-Identifier: Apache-2.0
//
// Guarded: runs what may throw at the ABI's edge, where nothing may.
#pragma once

#include <exception>
#include <string_view>

#include "ucmstore/status.h"

namespace ucmstore {

template <typename Function>
[[nodiscard]] Status Guarded(Function&& function) noexcept {
  try {
    return function();
  } catch (const std::exception& error) {
    return Status::Error(Code::kInternal, std::string_view(error.what()));
  } catch (...) {  // the ABI's edge
    return Status::Error(Code::kInternal, "an unknown exception");
  }
}

}  // namespace ucmstore
