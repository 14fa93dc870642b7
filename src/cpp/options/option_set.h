// SPDX-License-Identifier: Apache-2.0
//
// OptionSet: the checked and completed options of one stage. From what the user gave and the
// stage's option table comes exactly one value for each line of the table, in its order, as SetupV1
// wants them. Whatever cannot be is an error that names stage, key, value, rule and the nearest
// right name. Immutable and movable; thread-safe.
//
// A user's value must have the option's type: an integer is no bool, a bool is no integer, "16" is
// no integer. A number may be given as an integer, a size as an integer (bytes) or as a text with a
// unit, a list as one text. A text of bare digits is refused as a size (but for 0): whoever writes
// "100" into a configuration may mean bytes or GiB, and we would never know.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "options/option_input.h"
#include "ucmstore/plugin_v1.h"

namespace ucmstore {

// "bool", "int", "float", "size", "string", "list".
[[nodiscard]] const char* OptionTypeName(OptionType type) noexcept;

// Whether a table is sound: names, types, ranges, and defaults that obey them.
[[nodiscard]] Status CheckOptionTable(std::string_view stage, std::span<const OptionSpecV1> table);

// Reads a text, such as a command line's "posix.workers=4", as a value of the option's type.
[[nodiscard]] Result<OptionInput> ParseOptionText(std::string_view stage, const OptionSpecV1& spec,
                                                  std::string_view text);

class OptionSet {
 public:
  // `stage`: as the user writes it, "posix". The table must outlive the set.
  [[nodiscard]] static Result<OptionSet> Complete(std::string_view stage,
                                                  std::span<const OptionSpecV1> table,
                                                  const OptionMap& given);

  OptionSet(OptionSet&&) = default;
  OptionSet& operator=(OptionSet&&) = default;

  [[nodiscard]] std::span<const OptionValueV1> values() const noexcept { return values_; }

  // Requires: the table has the name, with that type.
  [[nodiscard]] std::int64_t Integer(std::string_view name) const { return At(name).integer; }
  [[nodiscard]] const char* Text(std::string_view name) const { return At(name).text; }
  [[nodiscard]] std::vector<std::string> List(std::string_view name) const;
  [[nodiscard]] bool IsDefault(std::string_view name) const { return At(name).is_default != 0; }

 private:
  struct Owned {  // what a value points to
    std::string text;
    std::vector<std::string> list;
    std::vector<const char*> pointers;
  };
  OptionSet() = default;
  Status Add(std::string_view stage, const OptionSpecV1& spec, const OptionInput* given);
  [[nodiscard]] const OptionValueV1& At(std::string_view name) const;

  std::vector<OptionValueV1> values_;
  std::list<Owned> owned_;  // a list: its nodes stay where they are when the set moves
};

}  // namespace ucmstore
