// SPDX-License-Identifier: Apache-2.0
//
// What the explorer explores: small scenes in which two or three processes meet.
#pragma once

#include <vector>

#include "shm/ring_explorer.h"

namespace ucmstore::test {

[[nodiscard]] std::vector<Scenario> RingScenarios();

}  // namespace ucmstore::test
