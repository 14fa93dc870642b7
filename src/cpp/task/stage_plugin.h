// SPDX-License-Identifier: Apache-2.0
//
// MakePlugin<Stage>: the constant table of a stage that is built on the SDK. A plugin's whole entry
// point is then
//
//   extern "C" const ucmstore::PluginV1* ucmstore_plugin_v1() {
//     static constexpr auto kTable = ucmstore::MakePlugin<MyStage>("MyStage", "1.0", kOptions);
//     return &kTable;
//   }
//
// Stage must be default-constructible, derive from StoreV1, and have Close, Cancel, VisitMetrics
// and Identity as TerminalStage and ForwardStage have. No exception crosses the table.
#pragma once

#include <new>
#include <span>
#include <string>
#include <string_view>

#include "ucmstore/plugin_v1.h"

namespace ucmstore {

struct PluginTraits {
  bool is_terminal = true;
  std::uint64_t shard_overhead_bytes = 0;
  const char* content = nullptr;
};

template <typename Stage>
struct StagePlugin {
  static StoreV1* Create() noexcept {
    try {
      return new (std::nothrow) Stage;  // owned by the host through Destroy
    } catch (...) {                     // the ABI's edge
      return nullptr;
    }
  }
  static bool Destroy(StoreV1* store, std::uint32_t timeout_ms) noexcept {
    auto* stage = static_cast<Stage*>(store);
    if (!stage->Close(timeout_ms)) return false;
    delete stage;
    return true;
  }
  static Status Cancel(StoreV1* store, TaskId task) noexcept {
    return static_cast<Stage*>(store)->Cancel(task);
  }
  static void Visit(StoreV1* store, void* ctx,
                    void (*metric)(void* ctx, const MetricV1* metric)) noexcept {
    static_cast<Stage*>(store)->VisitMetrics(ctx, metric);
  }
  static void Identify(StoreV1* store, void* ctx,
                       void (*text)(void* ctx, const char* text)) noexcept {
    try {
      const std::string identity = static_cast<Stage*>(store)->Identity();
      if (!identity.empty()) text(ctx, identity.c_str());
    } catch (...) {  // the ABI's edge; no text: nothing is shared
    }
  }
  static const void* Query(StoreV1* /*store*/, const char* name) noexcept {
    static constexpr CancelTableV1 kCancel{sizeof(CancelTableV1), 0, &Cancel};
    static constexpr StatsTableV1 kStats{sizeof(StatsTableV1), 0, &Visit};
    static constexpr IdentityTableV1 kIdentity{sizeof(IdentityTableV1), 0, &Identify};
    const std::string_view wanted(name);
    if (wanted == "cancel/1") return &kCancel;
    if (wanted == "stats/1") return &kStats;
    if (wanted == "identity/1") return &kIdentity;
    return nullptr;
  }
};

template <typename Stage>
constexpr PluginV1 MakePlugin(const char* name, const char* version,
                              std::span<const OptionSpecV1> options, PluginTraits traits = {}) {
  return {.abi = kPluginAbi,
          .struct_size = sizeof(PluginV1),
          .name = name,
          .version = version,
          .options = options.data(),
          .option_count = static_cast<std::uint32_t>(options.size()),
          .is_terminal = traits.is_terminal ? 1U : 0U,
          .shard_overhead_bytes = traits.shard_overhead_bytes,
          .content = traits.content,
          .create = &StagePlugin<Stage>::Create,
          .destroy = &StagePlugin<Stage>::Destroy,
          .query = &StagePlugin<Stage>::Query};
}

}  // namespace ucmstore
