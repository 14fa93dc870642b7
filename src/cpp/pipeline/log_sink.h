// SPDX-License-Identifier: Apache-2.0
//
// The default log sink: spdlog to stderr. One for each level, made when first asked for and never
// freed, since a stage that was left alone at Close may log for as long as the process lives.
// Thread-safe.
#pragma once

#include <string_view>

#include "base/log.h"

namespace ucmstore {

// `level`: debug, info, warning or error; anything less is not written. "off": null.
[[nodiscard]] LogSink* StderrLogSink(std::string_view level);

}  // namespace ucmstore
