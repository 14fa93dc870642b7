// SPDX-License-Identifier: Apache-2.0
//
// The entry point of the Posix stage.
#include "store/posix/admin.h"
#include "store/posix/posix_stage.h"
#include "task/stage_plugin.h"

namespace {

const void* Query(ucmstore::StoreV1* store, const char* name) {
  if (std::string_view(name) == "admin/1") return &ucmstore::PosixAdmin();
  return ucmstore::StagePlugin<ucmstore::PosixStage>::Query(store, name);
}

}  // namespace

extern "C" const ucmstore::PluginV1* ucmstore_plugin_v1() {
  static const ucmstore::PluginV1 kTable = [] {
    ucmstore::PluginV1 table = ucmstore::MakePlugin<ucmstore::PosixStage>("Posix", UCMSTORE_VERSION,
                                                                          ucmstore::PosixOptions());
    table.query = &Query;
    return table;
  }();
  return &kTable;
}
