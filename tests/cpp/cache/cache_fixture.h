// SPDX-License-Identifier: Apache-2.0
//
// A Cache with a Fault stage below it that tests steer, and Posix below that, in fresh directories.
// What the contract suite asks of every stage it asks of Cache, too; here is what only Cache does.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "base/hex.h"
#include "support/batch.h"
#include "support/eventually.h"
#include "support/fault_control.h"
#include "support/temp_dir.h"
#include "support/test_store.h"

namespace ucmstore::test {

class CacheTest : public testing::Test {
 protected:
  static constexpr Geometry kGeometry{4096, 4};

  // How many slots fit: a segment's head takes less than the first 24 KiB of each.
  static std::string CapacityOf(std::uint32_t slots) {
    return std::to_string(24 * 1024 + slots * (16 * 1024 + 256)) + "B";
  }

  CacheTest() {
    config_.spec = "Cache|Fault|Posix";
    config_.geometry = kGeometry;
    config_.options = {{"posix.roots", root()},
                       {"cache.path", memory_.string()},
                       {"cache.capacity", CapacityOf(64)},
                       {"fault.name", fault_name_}};
  }

  [[nodiscard]] std::string root() const { return (memory_.path() / "root").string(); }
  TestStore& store() {
    if (store_ == nullptr) store_ = OpenRaw(config_);
    return *store_;
  }
  void Close() {
    EXPECT_TRUE(store().Close(kPatienceMs));
    store_.reset();
  }
  // Another store of the same ring, and of files of its own steering.
  [[nodiscard]] std::unique_ptr<TestStore> OpenAnother() {
    StackConfig another = config_;
    another.options["fault.name"] = fault_name_ + "-other";
    return OpenRaw(another);
  }
  FaultControl fault() {
    (void)store();
    return FaultControl(fault_name_);
  }
  [[nodiscard]] BlockId Id(std::uint64_t i) const { return MakeId(family_, i); }
  double Figure(const std::string& name) { return store().Stats().at(name); }
  bool Reaches(const std::string& name, double value) {
    return Eventually([&] { return Figure(name) == value; });
  }
  Status Dump(std::uint64_t i, std::uint64_t nonce) {
    return DumpBlock(store(), kGeometry, Id(i), nonce);
  }
  std::string Problem(std::uint64_t i, std::optional<std::uint64_t> nonce = std::nullopt) {
    return BlockProblem(store(), kGeometry, Id(i), nonce);
  }
  std::uint8_t Where(std::uint64_t i) {
    const BlockId id = Id(i);
    LookupDesc desc;
    desc.flags = kNoTouch;
    desc.blocks = &id;
    desc.count = 1;
    std::uint8_t found = 77;
    EXPECT_TRUE(store().Lookup(desc, &found).ok());
    return found;
  }
  // Everything that was dumped is below, and nothing of it in the ring.
  void DumpedLongAgo(std::uint64_t count, std::uint64_t nonce) {
    for (std::uint64_t i = 0; i < count; ++i) ASSERT_TRUE(Dump(i, nonce).ok());
    Close();
    for (const auto& entry : std::filesystem::directory_iterator(memory_.path())) {
      if (entry.is_regular_file()) std::filesystem::remove(entry.path());
    }
  }
  // Files of blocks below.
  [[nodiscard]] std::size_t FilesBelow() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root())) {
      if (entry.path().filename().string().size() == kHexIdSize) ++count;
    }
    return count;
  }
  void DeleteBelow(std::uint64_t i) const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root())) {
      if (entry.path().filename() == ToHex(Id(i))) {
        std::filesystem::remove(entry.path());
        return;
      }
    }
  }

  const std::uint64_t family_ = NextNonce();
  const std::string fault_name_ = "cache-" + std::to_string(family_);
  TempDir memory_{TempDir::Memory()};
  StackConfig config_;
  std::unique_ptr<TestStore> store_;
};

}  // namespace ucmstore::test
