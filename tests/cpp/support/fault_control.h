// SPDX-License-Identifier: Apache-2.0
//
// FaultControl: steers one open Fault stage of a stack through its table "fault/1" (fault_v1.h), by
// the name it was opened with. Thread-safe.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "store/fault/fault_v1.h"
#include "support/batch.h"
#include "support/test_store.h"

namespace ucmstore::test {

class FaultControl {
 public:
  explicit FaultControl(const std::string& name)
      : table_(*static_cast<const FaultTableV1*>(PluginOf("Fault").query(nullptr, "fault/1"))),
        store_(table_.find(name.c_str())) {
    EXPECT_NE(store_, nullptr) << "no open Fault stage is named " << name;
  }

  std::uint64_t Arm(const std::string& rule) const {
    std::uint64_t id = 0;
    const Status status = table_.arm(store_, rule.c_str(), &id);
    EXPECT_TRUE(status.ok()) << status.message;
    return id;
  }
  void Disarm(std::uint64_t rule) const { table_.disarm(store_, rule); }
  void AwaitHeld(std::uint64_t rule, std::uint32_t count) const {
    EXPECT_TRUE(table_.wait_held(store_, rule, count, kPatienceMs)) << "nothing came to the hold";
  }
  [[nodiscard]] bool TryAwaitHeld(std::uint64_t rule, std::uint32_t count,
                                  std::uint32_t timeout_ms) const {
    return table_.wait_held(store_, rule, count, timeout_ms);
  }
  // Ends all rules and lets go all that they hold.
  void ReleaseAll() const {
    table_.disarm(store_, 0);
    (void)table_.release(store_, 0, 0);
  }
  // Ends the rule and lets go all that it holds.
  void Release(std::uint64_t rule) const {
    table_.disarm(store_, rule);
    table_.release(store_, rule, 0);
  }
  std::uint32_t ReleaseSome(std::uint64_t rule, std::uint32_t count) const {
    return table_.release(store_, rule, count);
  }
  [[nodiscard]] std::uint64_t Hits(std::uint64_t rule) const { return table_.hits(store_, rule); }

 private:
  const FaultTableV1& table_;
  StoreV1* const store_;
};

}  // namespace ucmstore::test
