// SPDX-License-Identifier: Apache-2.0
//
// Range: what OptionSpecV1::range allows, parsed once: "MIN..MAX" for numbers and sizes, "a|b|c"
// for texts, nothing for any value of the type. A size may also be a word, "auto|MIN..MAX": the
// stage gets it as 0, or, where 0 lies within the bounds, as -1. Plain data; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ucmstore/plugin_v1.h"

namespace ucmstore {

struct Range {
  // The message is a rule without its subject. `text` null or "": no bounds.
  [[nodiscard]] static Result<Range> Parse(OptionType type, const char* text);

  // The rule that a value breaks, or "" if it breaks none.
  [[nodiscard]] std::string Check(std::int64_t value) const;
  [[nodiscard]] std::string Check(double value) const;
  [[nodiscard]] std::string Check(std::string_view value) const;

  OptionType type = OptionType::kString;
  bool bounded = false;
  std::int64_t min = 0;  // kInt, kSize
  std::int64_t max = 0;
  double min_number = 0;  // kFloat
  double max_number = 0;
  std::vector<std::string> words;  // kString, kList
  std::string word;                // kSize: stands for no number; "": none
  std::int64_t word_value = 0;     // what the stage gets for it
  std::string text;                // as written
};

// Whole texts only, no spaces, no sign but '-': what tables and command lines hold.
[[nodiscard]] Result<std::int64_t> ParseInt(std::string_view text);
[[nodiscard]] Result<double> ParseFloat(std::string_view text);  // finite

}  // namespace ucmstore
