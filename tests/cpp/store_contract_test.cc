// SPDX-License-Identifier: Apache-2.0
//
// The table of stacks over which the contract of store_v1.h is tested (tests/cpp/contract/), and
// the geometries. A stage that joins the project joins here, alone and in stacks: one line each.
#include <algorithm>
#include <ostream>

#include "contract/contract.h"

namespace ucmstore::test {
namespace {

std::vector<StackLine> Stacks() {
  static const OptionTexts kCached = {
      {"posix.roots", "$MEMORY/a"}, {"cache.path", "$MEMORY"}, {"cache.capacity", "16MiB"}};
  return {
      {"Dram"},
      {"Fault|Dram"},
      {"Fault|Fault|Dram"},
      {"Shelf"},
      {"Fault|Shelf"},
      {"Posix", {{"posix.roots", "$MEMORY/a"}}, true},
      {"Fault|Posix", {{"posix.roots", "$MEMORY/a"}}, true},
      {"Fault|Posix", {{"posix.roots", "$DISK/a"}}, true},
      {"Cache|Dram", {{"cache.capacity", "16MiB"}}},
      {"Cache|Posix", kCached, true, true},
  };
}

// 1, 2, 30 and 128 shards a block; sizes that are pages and sizes that are not.
constexpr Geometry kGeometries[] = {{4096 * 3 + 512, 1}, {4096, 2}, {1000, 30}, {512, 128}};
constexpr Geometry kUsual = {1000, 30};
constexpr Geometry kPipelines = {4096 * 3 + 512, 2};

}  // namespace

bool Case::has_fault() const {
  const std::vector<std::string> stages = StagesOf(stack.spec);
  return stages.size() > 1 && stages[stages.size() - 2] == "Fault";
}

bool Case::on_disk() const {
  return std::ranges::any_of(stack.options, [](const auto& option) {
    return option.second.find("$DISK") != std::string::npos;
  });
}

std::string Case::name() const {
  std::string text = stack.spec;
  std::ranges::replace(text, '|', '_');
  return text + (on_disk() ? "_disk_" : "_") + std::to_string(geometry.shards_per_block) + "x" +
         std::to_string(geometry.shard_size) + (through_pipeline ? "_pipeline" : "");
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const StackLine& stack : Stacks()) {
    for (const Geometry& geometry : kGeometries) cases.push_back({stack, geometry, false});
    cases.push_back({stack, kPipelines, true});
  }
  std::erase_if(cases, [](const Case& c) {
    return c.on_disk() && !c.through_pipeline && c.geometry.shards_per_block > 2;
  });
  return cases;
}

std::vector<Case> RawCases() {
  std::vector<Case> cases;
  for (const StackLine& stack : Stacks()) cases.push_back({stack, kUsual, false});
  std::erase_if(cases, [](const Case& c) { return c.on_disk(); });
  return cases;
}

std::vector<Case> FaultCases() {
  std::vector<Case> cases = AllCases();
  std::erase_if(cases, [](const Case& c) { return !c.has_fault(); });
  return cases;
}

std::vector<Case> SharedCases() {
  std::vector<Case> cases = AllCases();
  std::erase_if(cases, [](const Case& c) { return !c.stack.outlives_store; });
  return cases;
}

std::vector<Case> SharedFaultCases() {
  std::vector<Case> cases = SharedCases();
  std::erase_if(cases, [](const Case& c) { return !c.has_fault(); });
  return cases;
}

std::vector<Case> BlocksOfManyShards(std::vector<Case> cases) {
  std::erase_if(cases, [](const Case& c) { return c.geometry.shards_per_block == 1; });
  return cases;
}

std::string CaseName(const testing::TestParamInfo<Case>& info) { return info.param.name(); }

void PrintTo(const Case& c, std::ostream* out) { *out << c.name(); }

Contract::Contract() {
  config_.spec = GetParam().stack.spec;
  config_.geometry = GetParam().geometry;
  config_.options = GetParam().stack.options;
  for (auto& [key, value] : config_.options) {
    for (const auto& [word, dir] : {std::pair<std::string, const TempDir*>("$MEMORY", &memory_),
                                    std::pair<std::string, const TempDir*>("$DISK", &disk_)}) {
      const std::size_t at = value.find(word);
      if (at != std::string::npos) value.replace(at, word.size(), dir->string());
    }
  }
  if (GetParam().has_fault()) {
    const std::vector<std::string> stages = StagesOf(config_.spec);
    const auto faults = std::ranges::count(stages, "Fault");
    fault_label_ = faults > 1 ? "fault#" + std::to_string(faults) : "fault";
    fault_name_ = "contract-" + std::to_string(family_);
    config_.options[fault_label_ + ".name"] = fault_name_;
  }
}

TestStore& Contract::store() {
  const MutexLock lock(mutex_);
  if (store_ == nullptr) {
    store_ = GetParam().through_pipeline ? OpenPipeline(config_) : OpenRaw(config_);
    if (store_ == nullptr) throw std::runtime_error("the stack under test could not be opened");
  }
  return *store_;
}

std::unique_ptr<TestStore> Contract::OpenAnother() {
  StackConfig another = config_;
  another.options.erase(fault_label_ + ".name");
  auto opened = GetParam().through_pipeline ? OpenPipeline(another) : OpenRaw(another);
  if (opened == nullptr) throw std::runtime_error("a second store could not be opened");
  return opened;
}

FaultControl Contract::fault() {
  (void)store();
  return FaultControl(fault_name_);
}

std::vector<BlockId> Contract::Ids(std::uint64_t count) const {
  std::vector<BlockId> ids;
  for (std::uint64_t i = 0; i < count; ++i) ids.push_back(Id(i));
  return ids;
}

}  // namespace ucmstore::test
