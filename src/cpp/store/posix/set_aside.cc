// SPDX-License-Identifier: Apache-2.0
//
// Move, look, and keep or put back.
#include "store/posix/set_aside.h"

#include <cerrno>

#include "store/posix/names.h"

namespace ucmstore {

AsideResult SetAside(FileSystem& fs, int folder, const BlockId& id, std::uint32_t prefix_digits,
                     const FileStat& judged) {
  const Name block = BlockName(id, prefix_digits);
  // A name of our own first: under a shared one, two who set aside at once would look at each
  // other's file.
  const Name moved = MovedName(id, prefix_digits, NewWriterId());
  const int renamed = fs.Rename(folder, block.c_str(), folder, moved.c_str());
  if (renamed == -ENOENT) return {AsideOutcome::kGone, 0};
  if (renamed < 0) return {AsideOutcome::kFailed, renamed};
  FileStat stat;
  const int known = fs.StatAt(folder, moved.c_str(), &stat);
  if (known == -ENOENT) return {AsideOutcome::kGone, 0};
  if (known == 0 && stat.SameFile(judged)) {
    // One set-aside file for each block: a bad disk must not fill itself with them.
    const Name aside = SetAsideName(id, prefix_digits);
    (void)fs.Rename(folder, moved.c_str(), folder, aside.c_str());
    return {AsideOutcome::kMoved, 0};
  }
  const int back = fs.RenameNoReplace(folder, moved.c_str(), folder, block.c_str());
  if (back == -EEXIST) (void)fs.Unlink(folder, moved.c_str());
  if (back == 0 || back == -EEXIST || back == -ENOENT) return {AsideOutcome::kPutBack, 0};
  return {AsideOutcome::kFailed, back};
}

}  // namespace ucmstore
