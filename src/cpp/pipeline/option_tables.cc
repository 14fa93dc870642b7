// SPDX-License-Identifier: Apache-2.0
//
// Copies of the option tables.
#include "pipeline/option_tables.h"

#include "pipeline/plugin_search.h"
#include "pipeline/spec.h"
#include "pipeline/store_options.h"

namespace ucmstore {
namespace {

std::vector<OptionRow> Rows(std::span<const OptionSpecV1> table) {
  std::vector<OptionRow> rows;
  for (const OptionSpecV1& spec : table) {
    rows.push_back({.name = spec.name,
                    .type = spec.type,
                    .default_text = spec.default_text == nullptr
                                        ? std::nullopt
                                        : std::optional<std::string>(spec.default_text),
                    .range = spec.range == nullptr ? "" : spec.range,
                    .help = spec.help});
  }
  return rows;
}

}  // namespace

std::vector<OptionTable> OptionTables(std::span<const std::string> plugin_path) {
  std::vector<OptionTable> tables;
  tables.push_back({.scope = kStoreScope,
                    .stage = "",
                    .version = UCMSTORE_VERSION,
                    .path = "",
                    .is_terminal = false,
                    .options = Rows(StoreOptionTable())});
  for (const PluginPtr& plugin : ListPlugins(plugin_path).plugins) {
    tables.push_back({.scope = LowerCase(plugin->name()),
                      .stage = std::string(plugin->name()),
                      .version = std::string(plugin->version()),
                      .path = plugin->path(),
                      .is_terminal = plugin->is_terminal(),
                      .options = Rows(plugin->options())});
  }
  return tables;
}

}  // namespace ucmstore
