// SPDX-License-Identifier: Apache-2.0
//
// Plugin: a shared object that provides one stage, opened and checked. Nothing in its table is
// trusted before it was looked at: the abi number first, then the size, then each field.
// A plugin, once loaded, stays for the life of the process. Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ucmstore/admin_v1.h"
#include "ucmstore/plugin_v1.h"

namespace ucmstore {

class Plugin;
using PluginPtr = std::shared_ptr<const Plugin>;

class Plugin {
 public:
  // Opens the object at `path` (with a slash in it). `wanted`: the name it must have; "": any. The
  // message is the reason alone, without the path.
  [[nodiscard]] static Result<PluginPtr> Load(const std::string& path, std::string_view wanted);

  // Checks a table as a plugin returned it (null allowed).
  [[nodiscard]] static Result<PluginPtr> FromTable(const PluginV1* table, std::string path,
                                                   std::string_view wanted);

  // The host's copy: what an older, shorter table lacks is null.
  [[nodiscard]] const PluginV1& table() const noexcept { return table_; }
  [[nodiscard]] std::string_view name() const noexcept { return table_.name; }
  [[nodiscard]] std::string_view version() const noexcept { return table_.version; }
  [[nodiscard]] bool is_terminal() const noexcept { return table_.is_terminal != 0; }
  [[nodiscard]] std::span<const OptionSpecV1> options() const noexcept {
    return {table_.options, table_.option_count};
  }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  // An optional table of a stage, such as Query<StatsTableV1>(store, "stats/1"); with a null store
  // one of the plugin itself, such as Query<AdminTableV1>(nullptr, "admin/1"). Null: it has none.
  template <typename Table>
  [[nodiscard]] const Table* Query(StoreV1* store, const char* name) const noexcept {
    return static_cast<const Table*>(QueryRaw(store, name, sizeof(Table)));
  }

 private:
  Plugin(const PluginV1& table, std::string path);
  [[nodiscard]] const void* QueryRaw(StoreV1* store, const char* name,
                                     std::size_t size) const noexcept;

  PluginV1 table_;
  std::string path_;
};

}  // namespace ucmstore
