// SPDX-License-Identifier: Apache-2.0
//
// StagePlan: everything that is decided about a stage before any stage exists. All that can be
// wrong with a configuration is found here, before anything has been touched: the spec, the
// plugins, which of them is terminal, geometry and content from the top down, options. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "options/option_set.h"
#include "pipeline/pipeline.h"
#include "pipeline/plugin.h"
#include "pipeline/spec.h"

namespace ucmstore {

inline constexpr std::uint64_t kMaxShardSize = UINT32_MAX;  // ShardResult::bytes holds it
inline constexpr std::uint32_t kMaxShardsPerBlock = 65536;

struct StagePlan {
  SpecStage spec;
  PluginPtr plugin;
  std::uint64_t shard_size;  // of what it gets from above
  std::string content;       // how the stages above transformed it
  OptionSet options;
};

// Topmost first, at least one.
[[nodiscard]] Result<std::vector<StagePlan>> PlanStages(const PipelineConfig& config,
                                                        std::span<const std::string> plugin_path);

// A plugin for each stage of the spec, in its order; the last and only the last is terminal.
[[nodiscard]] Status CheckTerminal(std::span<const SpecStage> stages,
                                   std::span<const PluginPtr> plugins);

// Size and content of what each plugin gets from above, the first from the engine.
struct StageShape {
  std::uint64_t shard_size;
  std::string content;
};
[[nodiscard]] Result<std::vector<StageShape>> ComputeShapes(std::span<const SpecStage> stages,
                                                            std::span<const PluginPtr> plugins,
                                                            std::uint64_t shard_size);

// Whether every key of the user's options is a stage of the spec, or the store.
[[nodiscard]] Status CheckScopes(std::string_view spec, std::span<const SpecStage> stages,
                                 std::span<const PluginPtr> plugins, const StageOptions& options);

}  // namespace ucmstore
