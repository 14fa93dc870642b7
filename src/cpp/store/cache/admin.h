// SPDX-License-Identifier: Apache-2.0
//
// The table "admin/1" of Cache: the segments in a folder, looked at without joining them. A walk
// with kAdminPurge removes those that no process uses; there is nothing to read or repair, since a
// segment holds no checksums of blocks and lives no longer than the machine's memory.
#pragma once

#include "ucmstore/admin_v1.h"

namespace ucmstore {

[[nodiscard]] const AdminTableV1* CacheAdmin() noexcept;

}  // namespace ucmstore
