// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the pipeline see of their own stages: a journal of what happens to them, and
// valves that hold their tasks. One table for each plugin, by PluginV1::query(null, "probe/1").
// Thread-safe; shared by all stores of the process, so a test resets it first.
#pragma once

#include <cstdint>

namespace ucmstore::test {

struct ProbeTableV1 {
  std::uint32_t struct_size;
  std::uint32_t reserved;
  // No listener, nothing held.
  void (*reset)();
  void (*listen)(void* ctx, void (*event)(void* ctx, const char* text));
  // Tasks begun from now on do not end by themselves ...
  void (*hold)(bool on, bool can_be_cancelled);
  // ... but by this, on the calling thread, first begun first; returns how many.
  std::uint32_t (*release)();
  // Lookups wait inside until this is called with false.
  void (*hold_lookups)(bool on);
  std::uint32_t (*held_lookups)();
  std::uint32_t (*held_tasks)();
  std::uint32_t (*waiters)();  // calls inside Wait
  std::uint32_t (*alive)();    // stages created and not yet freed
  // What destroy does from now on: says that something still moves, or takes all its time first.
  void (*end_as)(bool still_moves, bool takes_its_time);
};

}  // namespace ucmstore::test
