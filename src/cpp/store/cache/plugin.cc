// SPDX-License-Identifier: Apache-2.0
//
// The plugin of the Cache stage: its table, and "flush/1", "admin/1" and "leases/1" besides
// what every stage has.
#include "store/cache/admin.h"
#include "store/cache/cache_options.h"
#include "store/cache/cache_stage.h"
#include "task/stage_plugin.h"

namespace ucmstore {
namespace {

Status Flush(StoreV1* store, std::uint32_t timeout_ms) {
  return static_cast<CacheStage*>(store)->Flush(timeout_ms);
}

const void* Query(StoreV1* store, const char* name) {
  static constexpr FlushTableV1 kFlush{sizeof(FlushTableV1), 0, &Flush};
  if (std::string_view(name) == "flush/1") return &kFlush;
  if (std::string_view(name) == "admin/1") return CacheAdmin();
  if (std::string_view(name) == "leases/1") return CacheLeases();
  return StagePlugin<CacheStage>::Query(store, name);
}

}  // namespace
}  // namespace ucmstore

extern "C" const ucmstore::PluginV1* ucmstore_plugin_v1() {
  static const auto kTable = [] {
    auto table = ucmstore::MakePlugin<ucmstore::CacheStage>(
        "Cache", UCMSTORE_VERSION, ucmstore::CacheOptionTable(), {.is_terminal = false});
    table.query = &ucmstore::Query;
    return table;
  }();
  return &kTable;
}
