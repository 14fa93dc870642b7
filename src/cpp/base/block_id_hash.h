// SPDX-License-Identifier: Apache-2.0
//
// BlockIdHash: block ids as keys of the standard's hash tables. Ids are uniform already, so folding
// them is enough. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <cstring>

#include "ucmstore/types.h"

namespace ucmstore {

struct BlockIdHash {
  [[nodiscard]] std::size_t operator()(const BlockId& id) const noexcept {
    std::uint64_t words[2];
    static_assert(sizeof(words) == sizeof(id.bytes));
    std::memcpy(words, id.bytes.data(), sizeof(words));
    return words[0] ^ words[1];
  }
};

}  // namespace ucmstore
