// SPDX-License-Identifier: Apache-2.0
//
// The table "admin/1" of the Posix stage: looks at, checks, repairs and purges folders without
// opening a store, while stores use them. See ucmstore/admin_v1.h for what it promises.
// How it stays out of the way: names are parsed by the grammar of names.h and everything else is
// foreign; symbolic links are never followed below the root; writers are judged by their locks
// (writer_mark.h); a bad block is moved by set_aside.h; the folder itself goes only under an
// exclusive lock on UCMSTORE, of which every open store holds a shared one. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "io/file_system.h"
#include "store/posix/root_file.h"
#include "ucmstore/admin_v1.h"

namespace ucmstore {

[[nodiscard]] const AdminTableV1& PosixAdmin() noexcept;

// What the table's functions are made of.
using AdminField = void (*)(void* ctx, const char* name, const char* value);
[[nodiscard]] Status InspectPath(FileSystem& fs, const char* path, void* ctx, AdminField field);

struct WalkRequest {
  std::string root;
  std::string label;  // "": all namespaces
  std::uint32_t flags = 0;
  void* ctx = nullptr;
  void (*total)(void* ctx, std::uint64_t files) = nullptr;
  bool (*entry)(void* ctx, const AdminEntryV1* entry) = nullptr;
};
[[nodiscard]] Status WalkRoot(FileSystem& fs, const WalkRequest& request);

// The labels of the namespaces below an open root folder, sorted.
[[nodiscard]] Result<std::vector<std::string>> ListNamespaces(FileSystem& fs, int root);
// Reads UCMSTORE of an open namespace folder. The errors are words about that file.
[[nodiscard]] Result<RootFile> LoadRootFile(FileSystem& fs, int folder);

}  // namespace ucmstore
