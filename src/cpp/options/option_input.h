// SPDX-License-Identifier: Apache-2.0
//
// Options as a user gives them, before any check: by stage, by name, a value of whatever type the
// user's language had. Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace ucmstore {

using OptionInput = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>>;
using OptionMap = std::map<std::string, OptionInput>;
// Key: a stage's name in lower case ("posix"; the n-th of a name that occurs again: "fault#2"), or
// "store" for what belongs to the whole pipeline.
using StageOptions = std::map<std::string, OptionMap>;

}  // namespace ucmstore
