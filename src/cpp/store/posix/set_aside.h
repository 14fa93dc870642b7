// SPDX-License-Identifier: Apache-2.0
//
// SetAside: takes a block that was judged corrupt out of the way, so that it becomes a miss and can
// be dumped again, and never takes another one by mistake. Between the verdict and the move
// somebody may have put a good file under the name. The kernel cannot rename "only if it is still
// this inode", so what was moved is looked at afterwards, and put back if it is not what was
// judged, without ever replacing a file that is newer still. Thread-safe, across processes too.
#pragma once

#include <cstdint>

#include "io/file_system.h"
#include "ucmstore/types.h"

namespace ucmstore {

enum class AsideOutcome : std::uint8_t {
  kMoved,    // it lies under its set-aside name
  kGone,     // somebody else removed or replaced it first
  kPutBack,  // what was moved was another file; it is back, or gave way to a newer one
  kFailed,   // the file system refuses; nothing has changed
};

struct AsideResult {
  AsideOutcome outcome;
  int error;  // if kFailed: a negative errno
};

// Requires: a descriptor of the judged file stays open during the call, so that its inode number
// cannot be given to another file meanwhile.
[[nodiscard]] AsideResult SetAside(FileSystem& fs, int folder, const BlockId& id,
                                   std::uint32_t prefix_digits, const FileStat& judged);

}  // namespace ucmstore
