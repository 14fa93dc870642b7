// SPDX-License-Identifier: Apache-2.0
//
// The entry point of the Null stage. It has no options.
#include "store/null/null_stage.h"
#include "task/stage_plugin.h"

extern "C" const ucmstore::PluginV1* ucmstore_plugin_v1() {
  static constexpr auto kTable =
      ucmstore::MakePlugin<ucmstore::NullStage>("Null", UCMSTORE_VERSION, {});
  return &kTable;
}
