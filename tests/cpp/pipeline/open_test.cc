// SPDX-License-Identifier: Apache-2.0
//
// Opening: what is decided before any stage exists, the order in which stages come and go, and what
// remains when one fails: nothing.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "pipeline/pipeline.h"
#include "pipeline/probe_store.h"

namespace ucmstore::test {
namespace {

std::uint32_t Alive() {
  return Valves("Probe").alive() + Valves("Wrap").alive() + Valves("Deep").alive();
}

TEST(Open, BuildsBottomUpWithGeometryAndContentFromTheTop) {
  const std::uint32_t before = Alive();  // a store that another test left alone
  const Journal journal;
  {
    const auto store =
        MustOpen(Config("Wrap|Plain|Deep|Probe", {{"probe", {{"size_bytes", "8KiB"}}}}));
    EXPECT_EQ(store->block_size(), 128U);
    EXPECT_EQ(store->config().spec, "Wrap|Plain|Deep|Probe");
  }
  EXPECT_EQ(journal.Lines(),
            (std::vector<std::string>{
                "setup probe shard=180x2 content=deep/2 terminal fail_setup=0 size_bytes=8192",
                "setup Deep shard=80x2 content=wrap/1 below=Probe",
                "setup Plain shard=80x2 content=wrap/1 below=Deep",
                "setup Wrap shard=64x2 content=raw below=Plain",
                "destroy Wrap",
                "destroy Plain",
                "destroy Deep",
                "destroy probe",
            }));
  EXPECT_EQ(Alive(), before);
}

TEST(OpenFaults, O05_AFailingSetupAtEachLevelLeaksNothingAndSaysWho) {
  const std::uint32_t before = Alive();  // a store that another test left alone
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"probe", {"stage \"Probe\"", "column 11", "the probe was told to fail"}},
      {"deep", {"stage \"Deep\"", "column 6", "this wrap was told to fail"}},
      {"wrap", {"stage \"Wrap\"", "column 1", "this wrap was told to fail"}},
  };
  for (const auto& [stage, words] : cases) {
    const Journal journal;
    const Status status = OpenError(Config("Wrap|Deep|Probe", {{stage, {{"fail_setup", true}}}}));
    EXPECT_TRUE(Says(status.text(), words));
    EXPECT_EQ(status.code, stage == "probe" ? Code::kIoError : Code::kNoSpace);
    EXPECT_EQ(status.sys_errno, stage == "probe" ? EIO : 0);
    EXPECT_EQ(Alive(), before) << stage;
    std::size_t setups = 0;
    std::size_t ends = 0;
    for (const std::string& line : journal.Lines()) {
      setups += line.starts_with("setup") ? 1 : 0;
      ends += line.starts_with("destroy") ? 1 : 0;
    }
    EXPECT_EQ(setups, ends) << stage;
  }
}

TEST(OpenFaults, O05_CreateThatGivesNothingOrThrows) {
  const std::uint32_t before = Alive();  // a store that another test left alone
  EXPECT_TRUE(
      Says(OpenError(Config("Badcreategivesnull")).text(), {"Badcreategivesnull", "memory"}));
  const Status status = OpenError(Config("Wrap|Badthrowingcreate"));
  EXPECT_EQ(status.code, Code::kInternal);
  EXPECT_TRUE(Says(status.text(), {"column 6", "exception"}));
  EXPECT_EQ(Alive(), before);
}

TEST(Open, ExactlyOneTerminalStageAndLast) {
  const Status no_end = OpenError(Config("Wrap|Deep"));
  EXPECT_TRUE(
      Says(no_end.text(), {"column 6", "\"Deep\"", "a stage must follow", "Dram", "Probe"}));
  EXPECT_TRUE(Says(OpenError(Config("Probe|Wrap")).text(),
                   {"column 1", "\"Probe\"", "only be the last stage", "\"Wrap\""}));
  EXPECT_TRUE(Says(OpenError(Config("Wrap|Probe|Probe")).text(), {"column 6", "last stage"}));
}

TEST(Open, AUrlIsRecognisedAndNotSupportedYet) {
  const Status status = OpenError(Config("Wrap|redis://host/0"));
  EXPECT_EQ(status.code, Code::kUnsupported);
  EXPECT_TRUE(Says(status.text(), {"column 6", "redis://host/0", "not supported yet", "Dram"}));
}

TEST(OpenFaults, M01_UnknownStageNamesPositionAndNearest) {
  const Status status = OpenError(Config("Wrap|Prob"));
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_TRUE(
      Says(status.text(), {"spec column 6", "no stage \"Prob\"", "did you mean \"Probe\"?"}));
}

TEST(OpenFaults, M01_OptionsForAStageThatIsNotThere) {
  EXPECT_TRUE(Says(OpenError(Config("Probe", {{"prob", {}}})).text(),
                   {"\"prob\"", "no such stage", "probe, store", "did you mean \"probe\"?"}));
  EXPECT_TRUE(
      Says(OpenError(Config("Probe", {{"Probe", {}}})).text(), {"did you mean \"probe\"?"}));
  EXPECT_TRUE(Says(OpenError(Config("Probe", {{"wrap", {{"fail_setup", true}}}})).text(),
                   {"\"wrap\"", "no such stage in the spec \"Probe\""}));
  EXPECT_TRUE(Says(OpenError(Config("Probe", {{"probe_size_byte", {}}})).text(),
                   {"did you mean option \"size_bytes\" of \"probe\"?"}));
}

TEST(OpenFaults, M01_OptionErrorsNameTheStage) {
  EXPECT_TRUE(Says(OpenError(Config("Probe", {{"probe", {{"size", "8KiB"}}}})).text(),
                   {"probe: unknown option \"size\"", "did you mean \"size_bytes\"?"}));
  EXPECT_TRUE(Says(OpenError(Config("Probe", {{"probe", {{"size_bytes", "2MiB"}}}})).text(),
                   {"probe: size_bytes = \"2MiB\"", "1KiB..1MiB"}));
  EXPECT_TRUE(Says(OpenError(Config("Probe", {{"store", {{"worker", std::int64_t{3}}}}})).text(),
                   {"store: unknown option \"worker\"", "did you mean \"workers\"?"}));
}

TEST(Open, TheSecondStageOfANameHasItsOwnOptions) {
  EXPECT_TRUE(
      Says(OpenError(Config("Wrap|Wrap|Probe", {{"wrap#2", {{"fail_setup", true}}}})).text(),
           {"column 6", "told to fail"}));
  EXPECT_TRUE(Says(OpenError(Config("Wrap|Wrap|Probe", {{"wrap", {{"fail_setup", true}}}})).text(),
                   {"column 1", "told to fail"}));
  EXPECT_TRUE(Says(OpenError(Config("Wrap|Probe", {{"wrap#2", {}}})).text(), {"\"wrap#2\""}));
}

TEST(Open, GeometryIsBounded) {
  PipelineConfig config = Config("Probe");
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1} << 32}) {
    config.shard_size = size;
    EXPECT_TRUE(
        Says(OpenError(config).text(), {"shard_size = " + std::to_string(size), "4GiB - 1"}));
  }
  config.shard_size = 1;
  for (const std::uint32_t shards : {0U, 65537U}) {
    config.shards_per_block = shards;
    EXPECT_TRUE(Says(OpenError(config).text(), {"shards_per_block = " + std::to_string(shards)}));
  }
  config.shards_per_block = 65536;
  EXPECT_NE(MustOpen(config), nullptr);
  config = Config("Wrap|Huge|Probe");
  EXPECT_TRUE(Says(OpenError(config).text(), {"column 6", "\"Huge\"", "exceed 4GiB - 1"}));
}

TEST(Open, ManyTimesLeavesNothing) {
  const std::uint32_t before = Alive();  // a store that another test left alone
  for (int i = 0; i < 200; ++i) DumpBlocks(*MustOpen(Config("Wrap|Probe")), 0, 1);
  EXPECT_EQ(Alive(), before);
}

}  // namespace
}  // namespace ucmstore::test
