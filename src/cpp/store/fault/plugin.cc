// SPDX-License-Identifier: Apache-2.0
//
// The entry point of the Fault stage: its options, and the table through which tests steer it.
#include <exception>
#include <string_view>

#include "store/fault/fault_stage.h"
#include "task/stage_plugin.h"

namespace ucmstore {
namespace {

constexpr OptionSpecV1 kOptions[] = {
    {"rules", OptionType::kList, 0, "", "",
     "what to spoil, one rule each: see store/fault/rules.h"},
    {"seed", OptionType::kInt, 0, "1", "", "of the rules that act by chance"},
    {"name", OptionType::kString, 0, "", "", "by which tests find the open stage"}};

FaultStage& Of(StoreV1* store) { return *static_cast<FaultStage*>(store); }

StoreV1* Find(const char* name) noexcept { return FaultStage::Find(name); }

Status Arm(StoreV1* store, const char* text, std::uint64_t* rule) noexcept {
  try {
    return Of(store).Arm(text, rule);
  } catch (...) {  // the ABI's edge
    return Status::Error(Code::kInternal, "Fault: out of memory for a rule");
  }
}

constexpr FaultTableV1 kFault = {
    .struct_size = sizeof(FaultTableV1),
    .reserved = 0,
    .find = &Find,
    .arm = &Arm,
    .disarm = [](StoreV1* store, std::uint64_t rule) { Of(store).Disarm(rule); },
    .wait_held =
        [](StoreV1* store, std::uint64_t rule, std::uint32_t count, std::uint32_t timeout_ms) {
          return Of(store).WaitHeld(rule, count, timeout_ms);
        },
    .release = [](StoreV1* store, std::uint64_t rule,
                  std::uint32_t count) { return Of(store).Release(rule, count); },
    .hits = [](StoreV1* store, std::uint64_t rule) { return Of(store).Hits(rule); }};

const void* Query(StoreV1* store, const char* name) {
  if (std::string_view(name) == "fault/1") return &kFault;
  return StagePlugin<FaultStage>::Query(store, name);
}

constexpr PluginV1 MakeTable() {
  PluginV1 table =
      MakePlugin<FaultStage>("Fault", UCMSTORE_VERSION, kOptions, {.is_terminal = false});
  table.query = &Query;
  return table;
}

}  // namespace
}  // namespace ucmstore

extern "C" const ucmstore::PluginV1* ucmstore_plugin_v1() {
  static constexpr auto kTable = ucmstore::MakeTable();
  return &kTable;
}
