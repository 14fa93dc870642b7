// SPDX-License-Identifier: Apache-2.0
//
// Plugins: where they are looked for, and everything that can be wrong with one. The bad ones are
// real shared objects (tests/cpp/plugins/bad.cc).
#include "pipeline/plugin.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pipeline/option_tables.h"
#include "pipeline/plugin_search.h"
#include "pipeline/probe_store.h"
#include "support/temp_dir.h"

namespace ucmstore::test {
namespace {

namespace fs = std::filesystem;

// Where the plugins of tests/cpp/plugins are.
std::vector<std::string> Path() { return {UCMSTORE_TEST_PLUGINS_DIR}; }

TEST(PluginFaults, O05_EachBadPluginGivesPathAndReason) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"Badnosymbol", "no symbol ucmstore_plugin_v1"},
      {"Badnulltable", "returned null"},
      {"Badwrongabi", "plugin abi 7, this is abi 1"},
      {"Badshorttable", "its table has 40 bytes, at least 72"},
      {"Badwrongname", "provides the stage \"Elsewhere\", not \"Badwrongname\""},
      {"Badnullcreate", "create or destroy is missing"},
      {"Badthrowingentry", "threw an exception"},
      {"Badbaddefault", "default \"0\": outside the allowed 1..8"},
      {"Badterminaloverhead", "terminal, yet declares"},
      {"Badundefined", "ucmstore_test_symbol_that_is_nowhere"},
      {"Badotherlayout", "plugin abi"},
  };
  for (const auto& [name, reason] : cases) {
    const Result<PluginPtr> plugin = FindPlugin(name, Path());
    ASSERT_FALSE(plugin) << name;
    EXPECT_TRUE(Says(plugin.error().text(), {"\"" + name + "\"", reason}));
    EXPECT_FALSE(plugin.error().ok());
  }
}

// L03: a stage built for another interface is refused by its number, before anything else is read.
TEST(PluginFaults, L03_OtherInterfaceIsRefusedByVersion) {
  EXPECT_TRUE(Says(OpenError(Config("Badwrongabi")).text(), {"spec column 1", "abi 7"}));
  EXPECT_TRUE(Says(OpenError(Config("Badotherlayout")).text(), {"spec column 1", "abi"}));
}

TEST(PluginFaults, L03_OlderTableIsReadNoFurtherThanItsSize) {
  const Result<PluginPtr> old = FindPlugin("Badoldtable", Path());
  ASSERT_TRUE(old) << old.error().text();  // the bytes after its table cannot be read
  EXPECT_EQ((*old)->table().query, nullptr);
  EXPECT_EQ((*old)->Query<StatsTableV1>(nullptr, "stats/1"), nullptr);
  EXPECT_NE(MustOpen(Config("Badoldtable")), nullptr);
}

TEST(PluginFaults, L03_NewerTableIsTaken) {
  const Result<PluginPtr> newer = FindPlugin("Badnewertable", Path());
  ASSERT_TRUE(newer) << newer.error().text();
  EXPECT_EQ((*newer)->table().struct_size, sizeof(PluginV1));
}

TEST(PluginFaults, O05_FileThatIsNoSharedObject) {
  const TempDir folder;
  std::ofstream(folder.path() / "libucmstore_text.so") << std::string(8192, '#');
  std::ofstream(folder.path() / "libucmstore_empty.so") << "";
  fs::create_directory(folder.path() / "libucmstore_folder.so");
  fs::create_symlink("/nowhere/at/all", folder.path() / "libucmstore_dangling.so");
  const std::vector<std::string> path = {folder.string()};
  EXPECT_TRUE(
      Says(FindPlugin("Text", path).error().text(), {"\"Text\" is unusable", "invalid ELF"}));
  EXPECT_TRUE(Says(FindPlugin("Empty", path).error().text(), {"file too short"}));
  EXPECT_TRUE(Says(FindPlugin("Folder", path).error().text(), {"Is a directory"}));
  EXPECT_TRUE(Says(FindPlugin("Dangling", path).error().text(), {"no such file"}));
}

TEST(PluginFaults, O05_MissingStageListsEveryPathAndTheNearestName) {
  const TempDir folder;
  const Variable variable("UCMSTORE_PLUGIN_PATH", folder.string() + "::/nowhere/at/all:" +
                                                      std::string(UCMSTORE_TEST_PLUGINS_DIR));
  const Result<PluginPtr> plugin = FindPlugin("Porbe", {});
  ASSERT_FALSE(plugin);
  EXPECT_EQ(plugin.error().code, Code::kInvalidArgument);
  EXPECT_TRUE(
      Says(plugin.error().text(), {"no stage \"Porbe\"", "libucmstore_porbe.so", "(no such file)",
                                   "(no such folder)", "did you mean \"Probe\"?"}));
  // Four folders, each with its reason, whatever their length.
  const std::string text(plugin.error().text());
  std::size_t reasons = 0;
  for (std::size_t at = text.find("(no such"); at != std::string::npos;
       at = text.find("(no such", at + 1)) {
    ++reasons;
  }
  EXPECT_EQ(reasons, 4U) << text;
}

TEST(PluginFaults, L06_MisCasedNameIsRefusedNamingTheRightOne) {
  const Result<PluginPtr> plugin = FindPlugin("probe", Path());
  ASSERT_FALSE(plugin);
  EXPECT_EQ(plugin.error().code, Code::kInvalidArgument) << "the user's mistake, not the file's";
  EXPECT_TRUE(Says(plugin.error().text(), {"no stage \"probe\"", "did you mean \"Probe\"?"}));
}

TEST(PluginSearch, FirstFolderWinsAndABadFileEndsTheSearch) {
  const TempDir first;
  fs::copy_file(std::string(UCMSTORE_TEST_PLUGINS_DIR) + "/libucmstore_wrap.so",
                first.path() / "libucmstore_wrap.so");
  const std::vector<std::string> both = {first.string(), std::string(UCMSTORE_TEST_PLUGINS_DIR)};
  const Result<PluginPtr> copy = FindPlugin("Wrap", both);
  ASSERT_TRUE(copy) << copy.error().text();
  EXPECT_EQ((*copy)->path(), (first.path() / "libucmstore_wrap.so").string());

  std::ofstream(first.path() / "libucmstore_probe.so") << "broken";
  const Result<PluginPtr> broken = FindPlugin("Probe", both);
  ASSERT_FALSE(broken);
  EXPECT_TRUE(Says(broken.error().text(), {"unusable", "probe"}));
}

TEST(PluginSearch, OrderIsOptionEnvironmentCore) {
  const Variable variable("UCMSTORE_PLUGIN_PATH", "/from/environment::/second");
  const std::vector<std::string> given = {"/from/option", ""};
  const std::vector<std::string> folders = PluginDirectories(given);
  ASSERT_EQ(folders.size(), 4U);
  EXPECT_EQ(folders[0], "/from/option");
  EXPECT_EQ(folders[1], "/from/environment");
  EXPECT_EQ(folders[2], "/second");
  EXPECT_EQ(folders[3], std::string(UCMSTORE_TEST_STAGES_DIR));
}

TEST(PluginFaults, O05_FoundFromAnotherWorkingFolder) {
  const fs::path before = fs::current_path();
  fs::current_path("/");
  const std::vector<std::string> folders = PluginDirectories();
  fs::current_path(before);
  EXPECT_EQ(folders.back(), std::string(UCMSTORE_TEST_STAGES_DIR));
}

TEST(PluginFaults, O03_LoadedInAllOrdersByManyThreads) {
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([i] {
      std::vector<std::string> names = {"Probe", "Wrap", "Deep", "Badwrongabi", "Badnosymbol"};
      for (int j = 0; j < 20; ++j) {
        const std::string& name = names[static_cast<std::size_t>(i + j) % names.size()];
        EXPECT_EQ(FindPlugin(name, Path()).has_value(), !name.starts_with("Bad")) << name;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(PluginSearch, ListsTheGoodAndTheBad) {
  const PluginList list = ListPlugins(Path());
  std::vector<std::string> names;
  names.reserve(list.plugins.size());
  for (const PluginPtr& plugin : list.plugins) names.emplace_back(plugin->name());
  for (const char* name : {"Probe", "Wrap", "Deep", "Dram"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  std::string problems;
  for (const std::string& problem : list.problems) problems += problem + "\n";
  EXPECT_TRUE(Says(problems, {"libucmstore_badnosymbol.so: ", "libucmstore_badwrongabi.so: ",
                              "libucmstore_badwrongname.so: it provides the stage \"Elsewhere\""}));
}

TEST(PluginSearch, OptionTablesAreData) {
  const std::vector<OptionTable> tables = OptionTables(Path());
  ASSERT_FALSE(tables.empty());
  EXPECT_EQ(tables[0].scope, "store");
  EXPECT_EQ(tables[0].stage, "");
  EXPECT_EQ(tables[0].options[0].name, "workers");
  for (const OptionTable& table : tables) {
    if (table.scope != "probe") continue;
    EXPECT_EQ(table.stage, "Probe");
    EXPECT_TRUE(table.is_terminal);
    ASSERT_EQ(table.options.size(), 2U);
    EXPECT_EQ(table.options[1].name, "size_bytes");
    EXPECT_EQ(table.options[1].type, OptionType::kSize);
    EXPECT_EQ(table.options[1].default_text, "4KiB");
    EXPECT_EQ(table.options[1].range, "1KiB..1MiB");
    return;
  }
  FAIL() << "no table of Probe";
}

}  // namespace
}  // namespace ucmstore::test
