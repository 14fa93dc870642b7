// SPDX-License-Identifier: Apache-2.0
//
// DirectProbe: finds out whether direct I/O works in a folder, by doing it: one aligned page is
// written to a temporary file and read back. Asking the platform, or only opening with O_DIRECT,
// is not enough: some file systems accept the flag and refuse every transfer. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "io/file_system.h"

namespace ucmstore {

struct DirectVerdict {
  bool usable = false;
  int error = 0;  // of the folder itself (a negative errno): not even a plain file worked
  DirectAlignment alignment;  // if usable
  std::string reason;         // if not: why, in words
};

// `temporary` is a free name relative to `folder`, which ends up free again. `unit`: the alignment
// of offsets and lengths that the caller keeps to (a power of two).
[[nodiscard]] DirectVerdict ProbeDirect(FileSystem& fs, int folder, const char* temporary,
                                        std::uint32_t mode, std::uint32_t unit);

}  // namespace ucmstore
