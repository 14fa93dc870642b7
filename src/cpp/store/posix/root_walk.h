// SPDX-License-Identifier: Apache-2.0
//
// What reclaim needs to go through a root, folder by folder: its namespaces, their prefix folders,
// and the entries of one. Symbolic links are never followed below the root. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_system.h"
#include "store/posix/names.h"

namespace ucmstore {

inline constexpr int kOpenFolder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;

// A folder of a root that holds blocks in a format that is known here.
struct NamespaceFolder {
  File folder;  // closed: it is none, or cannot be read now; nobody touches what is in it
  std::uint32_t prefix_digits = 0;
  std::uint64_t disk_bytes = 0;  // of the folder itself
  bool local = false;
};
[[nodiscard]] NamespaceFolder OpenNamespace(FileSystem& fs, int root, const std::string& label);

// Its prefix folders, by name, in random order; calls `other` for everything else in it. A negative
// errno: the list may be short.
int ListPrefixes(FileSystem& fs, const NamespaceFolder& of, std::uint64_t seed,
                 std::vector<std::string>* prefixes,
                 const std::function<void(std::string_view name)>& other);

struct PrefixEntry {
  std::string_view name;
  ParsedName parsed;  // foreign if it is no regular file
  FileStat stat;
};
// Calls `entry` for everything in an open prefix folder, each as it is right now; false stops it.
// 0 or a negative errno.
int VisitPrefix(FileSystem& fs, int folder, std::string_view prefix,
                const std::function<bool(const PrefixEntry& entry)>& entry);

}  // namespace ucmstore
