// SPDX-License-Identifier: Apache-2.0
//
// Finding plugins. The stage "Posix" is in libucmstore_posix.so, in the first of these folders that
// has such a file:
//   1. the folders of the store option `plugin_path`,
//   2. those of the environment variable UCMSTORE_PLUGIN_PATH, with colons between them,
//   3. ucmstore_stages/ beside the core library, wherever that was loaded from.
// A file that is there but bad ends the search: to take another one in its place would be a
// surprise. Thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/plugin.h"

namespace ucmstore {

// The folders, in order.
[[nodiscard]] std::vector<std::string> PluginDirectories(
    std::span<const std::string> plugin_path = {});

// Errors list every path tried, with the reason, and the nearest name that there is.
[[nodiscard]] Result<PluginPtr> FindPlugin(std::string_view name,
                                           std::span<const std::string> plugin_path = {});

struct PluginList {
  std::vector<PluginPtr> plugins;     // by name
  std::vector<std::string> problems;  // "path: reason" of each file that is no good plugin
};

// All plugins that FindPlugin could find.
[[nodiscard]] PluginList ListPlugins(std::span<const std::string> plugin_path = {});

}  // namespace ucmstore
