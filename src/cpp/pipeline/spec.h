// SPDX-License-Identifier: Apache-2.0
//
// The spec of a pipeline: its stages, topmost first, written as one text: "Cache|Compress|Posix".
// Pure functions; thread-safe.
//
//   spec   = stage *( "|" stage )              at most 16 stages, 4096 characters
//   stage  = spaces ( name | url ) spaces      a url only as the last stage
//   name   = letter *( letter | digit )        at most 64 characters; letter case matters
//   url    = scheme "://" 1*( any printable ASCII character but space and "|" )
//   scheme = letter *( letter | digit | "+" | "-" | "." )
//   spaces = *( space | tab )
//
// Which stages there are, and which of them end a pipeline, is not the grammar's business.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ucmstore {

inline constexpr std::size_t kMaxSpecLength = 4096;
inline constexpr std::size_t kMaxStages = 16;
inline constexpr std::size_t kMaxStageName = 64;

struct SpecStage {
  std::string name;          // as written: "Posix", or the whole url
  std::uint32_t column = 1;  // of its first character in the spec, from 1
  bool is_url = false;
  // How options and figures name it: the name in lower case; of one that occurs again, "fault#2".
  std::string label;
};

// Errors name the column and quote the piece.
[[nodiscard]] Result<std::vector<SpecStage>> ParseSpec(std::string_view spec);

// "spec column 7, stage "Posixx"": how an error about a stage begins.
[[nodiscard]] std::string SpecPosition(const SpecStage& stage);

[[nodiscard]] std::string LowerCase(std::string_view text);  // ASCII

}  // namespace ucmstore
