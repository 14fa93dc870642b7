// SPDX-License-Identifier: Apache-2.0
//
// FaultTableV1: how a test steers an open Fault stage: it adds rules, waits until shards are held
// at a pause point, and lets them go. So tests choose their interleavings instead of sleeping.
// Got from the plugin's query(store, "fault/1"); with a null store too, for `find`, since a store
// behind a Pipeline shows nobody its stages. The grammar of a rule: rules.h. Not installed.
// Thread-safe.
#pragma once

#include <cstdint>

#include "ucmstore/store_v1.h"

namespace ucmstore {

struct FaultTableV1 {
  std::uint32_t struct_size;
  std::uint32_t reserved;
  // The open Fault stage of this process whose option `name` is that; null: none.
  StoreV1* (*find)(const char* name);
  // Adds a rule; it acts on what comes after. Writes its number (never 0) to `rule`.
  Status (*arm)(StoreV1* store, const char* text, std::uint64_t* rule);
  // Ends a rule; 0: all. What it holds stays held until it is released.
  void (*disarm)(StoreV1* store, std::uint64_t rule);
  // Waits until the rule holds at least `count` shards (or lookups) at once, at most timeout_ms.
  // False: it never did.
  bool (*wait_held)(StoreV1* store, std::uint64_t rule, std::uint32_t count,
                    std::uint32_t timeout_ms);
  // Lets the oldest `count` of those that the rule holds go on, 0: all. Rule 0: whoever holds them.
  // Returns how many.
  std::uint32_t (*release)(StoreV1* store, std::uint64_t rule, std::uint32_t count);
  // How often the rule has acted.
  std::uint64_t (*hits)(StoreV1* store, std::uint64_t rule);
};

}  // namespace ucmstore
