// SPDX-License-Identifier: Apache-2.0
//
// Deciding, top-down, and the words when it cannot be.
#include "pipeline/stage_plan.h"

#include <algorithm>
#include <utility>

#include "options/size.h"
#include "options/words.h"
#include "pipeline/plugin_search.h"
#include "pipeline/store_options.h"

namespace ucmstore {
namespace {

std::unexpected<Status> Wrong(const SpecStage& stage, std::string_view rule,
                              Code code = Code::kInvalidArgument) {
  return Failure(code, SpecPosition(stage) + ": " + std::string(rule));
}

std::string TerminalNames(std::span<const std::string> plugin_path) {
  std::vector<std::string> names;
  for (const PluginPtr& plugin : ListPlugins(plugin_path).plugins) {
    if (plugin->is_terminal()) names.emplace_back(plugin->name());
  }
  return Join(names);
}

Status CheckGeometry(const PipelineConfig& config) {
  if (config.shard_size == 0 || config.shard_size > kMaxShardSize) {
    return Status::Error(Code::kInvalidArgument,
                         "store: shard_size = " + std::to_string(config.shard_size) +
                             ": outside the allowed 1 .. 4GiB - 1 bytes");
  }
  if (config.shards_per_block == 0 || config.shards_per_block > kMaxShardsPerBlock) {
    return Status::Error(Code::kInvalidArgument,
                         "store: shards_per_block = " + std::to_string(config.shards_per_block) +
                             ": outside the allowed 1 .. " + std::to_string(kMaxShardsPerBlock));
  }
  return Status::Ok();
}

// For a key such as "posix_capacity": " as an option of posix". "" if it is nothing like that.
std::string MeantAsOption(std::string_view key, std::span<const SpecStage> stages,
                          std::span<const PluginPtr> plugins) {
  constexpr std::size_t kNear = 2;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (!key.starts_with(stages[i].label + "_")) continue;
    const std::string_view rest = key.substr(stages[i].label.size() + 1);
    for (const OptionSpecV1& spec : plugins[i]->options()) {
      if (NameDistance(rest, spec.name) <= kNear) {
        return "option " + Quote(spec.name) + " of " + Quote(stages[i].label);
      }
    }
  }
  return {};
}

}  // namespace

Status CheckTerminal(std::span<const SpecStage> stages, std::span<const PluginPtr> plugins) {
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const bool is_last = i + 1 == stages.size();
    if (plugins[i]->is_terminal() && !is_last) {
      return Wrong(stages[i],
                   "it keeps the blocks itself, so it can only be the last stage; here " +
                       Quote(stages[i + 1].name) + " follows")
          .error();
    }
    if (!plugins[i]->is_terminal() && is_last) {
      return Wrong(stages[i], "it keeps no blocks itself, so a stage must follow").error();
    }
  }
  return Status::Ok();
}

Result<std::vector<StageShape>> ComputeShapes(std::span<const SpecStage> stages,
                                              std::span<const PluginPtr> plugins,
                                              std::uint64_t shard_size) {
  std::vector<StageShape> shapes;
  StageShape shape{.shard_size = shard_size, .content = "raw"};
  for (std::size_t i = 0; i < stages.size(); ++i) {
    shapes.push_back(shape);
    const PluginV1& table = plugins[i]->table();
    shape.shard_size += table.shard_overhead_bytes;  // both below 2^32
    if (shape.shard_size > kMaxShardSize) {
      return Wrong(stages[i], "with the " + FormatSize(table.shard_overhead_bytes) +
                                  " that it adds, a shard of " +
                                  std::to_string(shapes.back().shard_size) +
                                  " bytes would exceed 4GiB - 1");
    }
    if (table.content != nullptr) shape.content = table.content;
  }
  return shapes;
}

Status CheckScopes(std::string_view spec, std::span<const SpecStage> stages,
                   std::span<const PluginPtr> plugins, const StageOptions& options) {
  std::vector<std::string> scopes;
  for (const SpecStage& stage : stages) scopes.push_back(stage.label);
  scopes.emplace_back(kStoreScope);
  for (const auto& [key, values] : options) {
    if (std::ranges::find(scopes, key) != scopes.end()) continue;
    const std::string meant = MeantAsOption(key, stages, plugins);
    return Status::Error(
        Code::kInvalidArgument,
        "options for " + Quote(key) + ": no such stage in the spec " + Quote(spec) +
            "; options may be for " + Join(scopes) +
            (meant.empty() ? DidYouMean(key, scopes) : "; did you mean " + meant + "?"));
  }
  return Status::Ok();
}

Result<std::vector<StagePlan>> PlanStages(const PipelineConfig& config,
                                          std::span<const std::string> plugin_path) {
  Status status = CheckGeometry(config);
  if (!status.ok()) return std::unexpected(status);
  const Result<std::vector<SpecStage>> stages = ParseSpec(config.spec);
  if (!stages) return std::unexpected(stages.error());

  std::vector<PluginPtr> plugins;
  for (const SpecStage& stage : *stages) {
    if (stage.is_url) {
      return Wrong(stage,
                   "a url as the last stage is not supported yet; end the spec with " +
                       TerminalNames(plugin_path),
                   Code::kUnsupported);
    }
    Result<PluginPtr> plugin = FindPlugin(stage.name, plugin_path);
    if (!plugin) {
      return Failure(plugin.error().code, "spec column " + std::to_string(stage.column) + ": " +
                                              std::string(plugin.error().text()));
    }
    plugins.push_back(*std::move(plugin));
  }
  status = CheckTerminal(*stages, plugins);
  if (!status.ok()) {
    if (!plugins.back()->is_terminal()) {
      return Failure(status.code, std::string(status.text()) + ": " + TerminalNames(plugin_path));
    }
    return std::unexpected(status);
  }
  status = CheckScopes(config.spec, *stages, plugins, config.options);
  if (!status.ok()) return std::unexpected(status);
  Result<std::vector<StageShape>> shapes = ComputeShapes(*stages, plugins, config.shard_size);
  if (!shapes) return std::unexpected(shapes.error());

  static const OptionMap kNone;
  std::vector<StagePlan> plans;
  for (std::size_t i = 0; i < stages->size(); ++i) {
    const SpecStage& stage = (*stages)[i];
    const auto given = config.options.find(stage.label);
    Result<OptionSet> options = OptionSet::Complete(
        stage.label, plugins[i]->options(), given == config.options.end() ? kNone : given->second);
    if (!options) return std::unexpected(options.error());
    plans.push_back({.spec = stage,
                     .plugin = plugins[i],
                     .shard_size = (*shapes)[i].shard_size,
                     .content = (*shapes)[i].content,
                     .options = *std::move(options)});
  }
  return plans;
}

}  // namespace ucmstore
