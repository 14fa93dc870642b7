// SPDX-License-Identifier: Apache-2.0
//
// Every option there is, as data: what `ucmstore options` prints, docs/options.md is generated from
// and options.py is checked against. Thread-safe.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ucmstore/plugin_v1.h"

namespace ucmstore {

struct OptionRow {
  std::string name;
  OptionType type;
  std::optional<std::string> default_text;  // nothing: it must be given
  std::string range;                        // "" : any value of the type
  std::string help;
};

struct OptionTable {
  std::string scope;    // the key in StageOptions: "store", "posix"
  std::string stage;    // the name in a spec: "Posix"; "" for the store itself
  std::string version;  // of the plugin
  std::string path;     // of the plugin
  bool is_terminal = false;
  std::vector<OptionRow> options;
};

// The store's own table first, then one for each plugin that is found, by name.
[[nodiscard]] std::vector<OptionTable> OptionTables(std::span<const std::string> plugin_path = {});

}  // namespace ucmstore
