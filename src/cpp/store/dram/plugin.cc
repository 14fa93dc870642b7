// SPDX-License-Identifier: Apache-2.0
//
// The plugin of the Dram stage: its table and its one option.
#include "store/dram/dram_stage.h"
#include "task/stage_plugin.h"

extern "C" const ucmstore::PluginV1* ucmstore_plugin_v1() {
  static constexpr ucmstore::OptionSpecV1 kOptions[] = {
      {.name = "capacity",
       .type = ucmstore::OptionType::kSize,
       .flags = 0,
       .default_text = "1GiB",
       .range = "1..1PiB",
       .help = "Memory for blocks; the coldest are evicted to stay below it. Holds whole blocks."},
  };
  static constexpr auto kTable =
      ucmstore::MakePlugin<ucmstore::DramStage>("Dram", UCMSTORE_VERSION, kOptions);
  return &kTable;
}
