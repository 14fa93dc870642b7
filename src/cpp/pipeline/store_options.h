// SPDX-License-Identifier: Apache-2.0
//
// The options of the store as a whole, under the key "store": the one table of them, and what they
// mean to the runtime. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "options/option_input.h"
#include "task/runtime.h"
#include "ucmstore/plugin_v1.h"

namespace ucmstore {

inline constexpr const char* kStoreScope = "store";

[[nodiscard]] std::span<const OptionSpecV1> StoreOptionTable() noexcept;

struct StoreOptions {
  RuntimeOptions runtime;  // log_sink and clock are not set
  std::vector<std::string> plugin_path;
  std::string log_level;  // debug, info, warning, error or off
  std::uint32_t close_timeout_ms = 0;

  // From the user's options; `log_level` also from UCMSTORE_LOG_LEVEL if the user did not give it.
  [[nodiscard]] static Result<StoreOptions> FromInput(const OptionMap& given);
};

}  // namespace ucmstore
