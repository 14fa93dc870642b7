// SPDX-License-Identifier: Apache-2.0
//
// VerifyBlock: reads one block file whole and checks all of it, without a store: for `ucmstore
// verify` and `inspect`. Reads past the page cache where it can, twice if something is wrong. Never
// changes anything. Thread-safe.
#pragma once

#include <string>

#include "base/result.h"
#include "io/file_system.h"
#include "store/posix/footer.h"
#include "store/posix/root_file.h"
#include "ucmstore/admin_v1.h"

namespace ucmstore {

struct BlockVerdict {
  AdminVerdict verdict = AdminVerdict::kGood;
  std::string text;  // why, in words; "" if good
  File file;         // held open, so that the judged inode stays what it is
  FileStat stat;
};

// `name` is relative to `folder`, the namespace's. `root` is what its UCMSTORE says.
[[nodiscard]] BlockVerdict VerifyBlock(FileSystem& fs, int folder, const char* name,
                                       const BlockId& id, const RootFile& root);

// Opens a file for reading, past the page cache if that is possible (*direct says whether).
[[nodiscard]] int OpenForReading(FileSystem& fs, int folder, const char* name, bool* direct);

// Reads all shards of an open file and compares them with its footer. "" if all are right.
[[nodiscard]] Result<std::string> CheckShards(FileSystem& fs, int fd, bool direct,
                                              const Footer& footer);

// Finds the footer at the end of an open file of `size` bytes, whatever its geometry.
[[nodiscard]] Result<Footer> FindFooter(FileSystem& fs, int fd, std::uint64_t size);

}  // namespace ucmstore
