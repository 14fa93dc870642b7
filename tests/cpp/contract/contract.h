// SPDX-License-Identifier: Apache-2.0
//
// The contract suite: the promises of store_v1.h, tested over every stack in the table of
// store_contract_test.cc, with several geometries. Each promise has a file here. A test takes the
// store from its fixture and says nothing about which stack it is.
// To test a new stage, add a line to that table.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "support/batch.h"
#include "support/fault_control.h"
#include "support/temp_dir.h"
#include "support/test_store.h"

namespace ucmstore::test {

// A line of the table of stacks.
struct StackLine {
  const char* spec;
  OptionTexts options = {};     // in a value, $MEMORY is a fresh directory in memory, $DISK on disk
  bool outlives_store = false;  // a block that was stored is there when the store is opened again
  bool joins = false;  // a block is assembled from the shards of several stores, in front of Posix
};

struct Case {
  StackLine stack;
  Geometry geometry{};
  bool through_pipeline = false;  // else raw: the frozen tables alone

  [[nodiscard]] bool has_fault() const;
  [[nodiscard]] bool on_disk() const;
  [[nodiscard]] std::string name() const;
};

// All stacks with all geometries, raw, and each stack once through the Pipeline. (On disk, where
// files are slow to make, with fewer geometries.)
[[nodiscard]] std::vector<Case> AllCases();
// For long tests, and those of misused descriptors: raw, one geometry, in memory.
[[nodiscard]] std::vector<Case> RawCases();
// Those whose lowest non-terminal stage is a Fault that can be steered.
[[nodiscard]] std::vector<Case> FaultCases();
// Those whose blocks outlive the store; and of them those with a Fault.
[[nodiscard]] std::vector<Case> SharedCases();
[[nodiscard]] std::vector<Case> SharedFaultCases();
[[nodiscard]] std::vector<Case> BlocksOfManyShards(std::vector<Case> cases);  // more than one
[[nodiscard]] std::string CaseName(const testing::TestParamInfo<Case>& info);
void PrintTo(const Case& c, std::ostream* out);

class Contract : public testing::TestWithParam<Case> {
 protected:
  Contract();

  [[nodiscard]] const Geometry& geometry() const { return config_.geometry; }
  [[nodiscard]] std::uint32_t shards() const { return config_.geometry.shards_per_block; }
  // What the store is opened with; a test may change it before the first use of store().
  [[nodiscard]] StackConfig& config() { return config_; }
  // Opened when first asked for. Any thread may ask.
  [[nodiscard]] TestStore& store();
  // Another one of the same config: on the same directory, if the stack has one.
  [[nodiscard]] std::unique_ptr<TestStore> OpenAnother();
  void CloseStore() { store_.reset(); }
  // Steers the lowest Fault of the stack.
  [[nodiscard]] FaultControl fault();
  [[nodiscard]] BlockId Id(std::uint64_t i) const { return MakeId(family_, i); }
  [[nodiscard]] std::vector<BlockId> Ids(std::uint64_t count) const;

 private:
  const std::uint64_t family_ = NextNonce();  // ids of their own for each test
  TempDir memory_{TempDir::Memory()};
  TempDir disk_;
  std::string fault_name_;
  std::string fault_label_;
  StackConfig config_;
  Mutex mutex_;
  std::unique_ptr<TestStore> store_;
};

}  // namespace ucmstore::test
