// SPDX-License-Identifier: Apache-2.0
//
// The table of the store's own options. A new one: a line here, a field of StoreOptions or
// RuntimeOptions, a line in FromInput.
#include "pipeline/store_options.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "options/option_set.h"
#include "options/range.h"
#include "options/words.h"

namespace ucmstore {
namespace {

constexpr const char* kLogLevels = "debug|info|warning|error|off";
constexpr const char* kLogLevelVariable = "UCMSTORE_LOG_LEVEL";

constexpr OptionSpecV1 kTable[] = {
    {.name = "workers",
     .type = OptionType::kInt,
     .flags = 0,
     .default_text = "16",
     .range = "1..1024",
     .help = "Threads that move bytes, at most; started when first needed."},
    {.name = "max_tasks",
     .type = OptionType::kInt,
     .flags = 0,
     .default_text = "16384",
     .range = "1..16777216",
     .help =
         "Loads and dumps that have not been waited for, at most; one more is refused as busy."},
    {.name = "max_incomplete_blocks",
     .type = OptionType::kInt,
     .flags = 0,
     .default_text = "4096",
     .range = "1..16777216",
     .help = "Blocks of which only some shards have come, at most, but more than workers; above it "
             "the oldest is given up."},
    {.name = "incomplete_age_ms",
     .type = OptionType::kInt,
     .flags = 0,
     .default_text = "600000",
     .range = "1..2147483647",
     .help = "A block of which no shard has come for so long is given up."},
    {.name = "close_timeout_ms",
     .type = OptionType::kInt,
     .flags = 0,
     .default_text = "5000",
     .range = "0..2147483647",
     .help = "How long a store that is closed without a time-out waits for what moves."},
    {.name = "plugin_path",
     .type = OptionType::kList,
     .flags = 0,
     .default_text = "",
     .range = "",
     .help = "Folders searched for stages, before UCMSTORE_PLUGIN_PATH and the package's own."},
    {.name = "log_level",
     .type = OptionType::kString,
     .flags = 0,
     .default_text = "warning",
     .range = kLogLevels,
     .help = "The least that is logged to stderr; its default can be set by UCMSTORE_LOG_LEVEL."},
};

// The level from the environment, or `fallback`.
Result<std::string> LogLevelFromEnvironment(std::string fallback) {
  const char* variable = std::getenv(kLogLevelVariable);
  if (variable == nullptr || *variable == '\0') return fallback;
  const Result<Range> range = Range::Parse(OptionType::kString, kLogLevels);
  if (!range) return std::unexpected(range.error());
  const std::string rule = range->Check(std::string_view(variable));
  if (rule.empty()) return variable;
  return Failure(Code::kInvalidArgument, std::string("environment: ") + kLogLevelVariable + " = " +
                                             Quote(variable) + ": " + rule);
}

}  // namespace

std::span<const OptionSpecV1> StoreOptionTable() noexcept { return kTable; }

Result<StoreOptions> StoreOptions::FromInput(const OptionMap& given) {
  const Result<OptionSet> set = OptionSet::Complete(kStoreScope, kTable, given);
  if (!set) return std::unexpected(set.error());
  const auto number = [&set](const char* name) {
    return static_cast<std::uint32_t>(set->Integer(name));
  };
  StoreOptions options;
  options.runtime.workers = number("workers");
  options.runtime.max_tasks = number("max_tasks");
  options.runtime.max_incomplete_blocks = number("max_incomplete_blocks");
  options.runtime.incomplete_age = milliseconds(set->Integer("incomplete_age_ms"));
  options.close_timeout_ms = number("close_timeout_ms");
  options.plugin_path = set->List("plugin_path");
  for (const std::string& folder : options.plugin_path) {
    std::error_code error;
    if (std::filesystem::is_directory(folder, error)) continue;
    return Failure(Code::kInvalidArgument,
                   "store: plugin_path: " + folder + ": there is no such folder");
  }
  options.log_level = set->Text("log_level");
  if (set->IsDefault("log_level")) {
    Result<std::string> level = LogLevelFromEnvironment(std::move(options.log_level));
    if (!level) return std::unexpected(level.error());
    options.log_level = *std::move(level);
  }
  return options;
}

}  // namespace ucmstore
