// SPDX-License-Identifier: Apache-2.0
//
// A Cache whose slots are leased through the frozen table. Not synchronised, but for the leases.
#pragma once

#include <memory>
#include <string>

#include "cache/cache_fixture.h"
#include "support/lease_client.h"

namespace ucmstore::test {

class CacheLeases : public CacheTest {
 protected:
  [[nodiscard]] std::unique_ptr<LeaseClient> Client() {
    return std::make_unique<LeaseClient>(store(), kGeometry);
  }
  // What is wrong with a leased block that one dump wrote; empty: nothing.
  std::string InPlace(const LeaseClient& client, const LeaseV1& lease, std::uint64_t i,
                      std::uint64_t nonce) const {
    for (std::uint32_t shard = 0; shard < kGeometry.shards_per_block; ++shard) {
      const Verdict verdict = Inspect(client.Memory(lease, shard), Id(i), shard, nonce);
      if (!verdict.good()) return verdict.why;
    }
    return {};
  }
  void FillShard(const LeaseClient& client, const LeaseV1& lease, std::uint64_t i,
                 std::uint32_t shard, std::uint64_t nonce) const {
    Fill(client.Memory(lease, shard), Id(i), shard, nonce);
    const Status status = client.Commit(lease, shard, kGeometry.shard_size);
    EXPECT_TRUE(status.ok()) << status.message;
  }
  void FillBlock(const LeaseClient& client, const LeaseV1& lease, std::uint64_t i,
                 std::uint64_t nonce) const {
    for (std::uint32_t shard = 0; shard < kGeometry.shards_per_block; ++shard) {
      FillShard(client, lease, i, shard, nonce);
    }
  }
  // Dumps blocks first.. until the ring has been filled several times over.
  void Press(TestStore& through, std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t i = first; i < first + count; ++i) {
      ASSERT_TRUE(DumpBlock(through, kGeometry, Id(i), NextNonce()).ok());
    }
  }
};

}  // namespace ucmstore::test
