// SPDX-License-Identifier: Apache-2.0
//
// The store's own options: defaults, mapping, and the two sources of the log level.
#include "pipeline/store_options.h"

#include <gtest/gtest.h>

#include <string>

#include "options/option_set.h"
#include "pipeline/log_sink.h"
#include "pipeline/probe_store.h"

namespace ucmstore::test {
namespace {

TEST(StoreOptions, TableIsSound) {
  const Status status = CheckOptionTable(kStoreScope, StoreOptionTable());
  EXPECT_TRUE(status.ok()) << status.text();
}

TEST(StoreOptions, DefaultsAreTheRuntimes) {
  const Result<StoreOptions> options = StoreOptions::FromInput({});
  ASSERT_TRUE(options) << options.error().text();
  const RuntimeOptions defaults;
  EXPECT_EQ(options->runtime.workers, defaults.workers);
  EXPECT_EQ(options->runtime.max_tasks, defaults.max_tasks);
  EXPECT_EQ(options->runtime.max_incomplete_blocks, defaults.max_incomplete_blocks);
  EXPECT_EQ(options->runtime.incomplete_age, defaults.incomplete_age);
  EXPECT_EQ(options->close_timeout_ms, 5000U);
  EXPECT_TRUE(options->plugin_path.empty());
  EXPECT_EQ(options->log_level, "warning");
}

TEST(StoreOptions, M01_AFolderOfPluginsThatIsNotThereIsRefused) {
  const auto options = StoreOptions::FromInput(
      {{"plugin_path", std::vector<std::string>{"/usr", "/nowhere/at/all"}}});
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().code, Code::kInvalidArgument);
  EXPECT_NE(options.error().text().find("plugin_path: /nowhere/at/all"), std::string_view::npos)
      << options.error().message;
}

TEST(StoreOptions, EachOptionReachesItsPlace) {
  const Result<StoreOptions> options =
      StoreOptions::FromInput({{"workers", std::int64_t{3}},
                               {"max_tasks", std::int64_t{7}},
                               {"max_incomplete_blocks", std::int64_t{9}},
                               {"incomplete_age_ms", std::int64_t{11}},
                               {"close_timeout_ms", std::int64_t{0}},
                               {"plugin_path", std::vector<std::string>{"/", "/usr"}},
                               {"log_level", std::string("off")}});
  ASSERT_TRUE(options) << options.error().text();
  EXPECT_EQ(options->runtime.workers, 3U);
  EXPECT_EQ(options->runtime.max_tasks, 7U);
  EXPECT_EQ(options->runtime.max_incomplete_blocks, 9U);
  EXPECT_EQ(options->runtime.incomplete_age, milliseconds(11));
  EXPECT_EQ(options->close_timeout_ms, 0U);
  EXPECT_EQ(options->plugin_path, (std::vector<std::string>{"/", "/usr"}));
  EXPECT_EQ(options->log_level, "off");
}

// M02, M03: one name for the level, and the same words from both sources.
TEST(StoreOptionFaults, M02_LogLevelFromTheEnvironment) {
  constexpr const char* kName = "UCMSTORE_LOG_LEVEL";
  for (const char* level : {"debug", "info", "warning", "error", "off"}) {
    const Variable variable(kName, level);
    EXPECT_EQ(StoreOptions::FromInput({})->log_level, level);
    EXPECT_EQ(StoreOptions::FromInput({{"log_level", std::string("info")}})->log_level, "info");
  }
  {
    const Variable variable(kName, "Warn");
    const Result<StoreOptions> wrong = StoreOptions::FromInput({});
    ASSERT_FALSE(wrong);
    EXPECT_TRUE(Says(wrong.error().text(), {"UCMSTORE_LOG_LEVEL = \"Warn\"", "debug|info|warning",
                                            "did you mean \"warning\"?"}));
  }
  const Variable variable(kName, "");
  EXPECT_EQ(StoreOptions::FromInput({})->log_level, "warning");
}

TEST(LogSinkTest, WritesFromItsLevelOnToStderr) {
  EXPECT_EQ(StderrLogSink("off"), nullptr);
  LogSink* sink = StderrLogSink("warning");
  ASSERT_NE(sink, nullptr);
  EXPECT_EQ(StderrLogSink("warning"), sink);
  EXPECT_NE(StderrLogSink("debug"), sink);
  testing::internal::CaptureStderr();
  sink->Write(LogLevel::kInfo, "not this");
  sink->Write(LogLevel::kWarning, "this {} %s");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(Says(text, {"ucmstore[", "warning: this {} %s\n"}));
  EXPECT_EQ(text.find("not this"), std::string::npos);
}

}  // namespace
}  // namespace ucmstore::test
