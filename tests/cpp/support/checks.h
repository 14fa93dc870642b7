// SPDX-License-Identifier: Apache-2.0
//
// Checks that are run twice: over the real stacks, where they must pass, and over stacks that
// break a promise on purpose, where they must fail (sensitivity_test.cc). Each reports through
// googletest's EXPECT_*.
#pragma once

#include <vector>

#include "support/batch.h"

namespace ucmstore::test {

// What is dumped is found and loaded, every byte, whole blocks and single shards, and nothing
// around the destination is touched.
void CheckRoundTrip(TestStore& store, const Geometry& geometry, const std::vector<BlockId>& ids);

// Every shard of a block is short, each in its own way; lengths come back, and the bytes beyond
// them are left alone.
void CheckShortShards(TestStore& store, const Geometry& geometry, const BlockId& id);

// Of a task with absent blocks among present ones each shard tells its own end, and Wait tells one.
void CheckResultsOfAMixedTask(TestStore& store, const Geometry& geometry, const BlockId& present,
                              const BlockId& absent);

// A block is invisible until its last shard has landed.
void CheckInvisibleUntilComplete(TestStore& store, const Geometry& geometry, const BlockId& id);

// Check never retires, Wait retires once, and then the task is unknown.
void CheckRetirement(TestStore& store, const Geometry& geometry, const BlockId& id);

// on_done is called once for each task, with its id, and before Wait returns elsewhere.
void CheckOnDone(TestStore& store, const Geometry& geometry, const BlockId& id);

// A submission that breaks a rule leaves no task, calls nobody and touches nothing.
void CheckRefusalLeavesNothing(TestStore& store, const Geometry& geometry, const BlockId& id);

// Lookup answers each block by itself, and up to the first miss if asked.
void CheckLookupAcrossAGap(TestStore& store, const Geometry& geometry,
                           const std::vector<BlockId>& three);

}  // namespace ucmstore::test
