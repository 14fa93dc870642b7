// SPDX-License-Identifier: Apache-2.0
//
// Opening namespaces and listing folders.
#include "store/posix/root_walk.h"

#include <algorithm>
#include <cerrno>
#include <random>

#include "store/posix/admin.h"

namespace ucmstore {

NamespaceFolder OpenNamespace(FileSystem& fs, int root, const std::string& label) {
  NamespaceFolder opened;
  const int fd = fs.OpenAt(root, label.c_str(), kOpenFolder, 0);
  if (fd < 0) return opened;
  File folder(fs, fd);
  const Result<RootFile> file = LoadRootFile(fs, fd);
  FileStat stat;
  if (!file || fs.Stat(fd, &stat) < 0) return opened;
  FileSystemFacts facts;
  opened.local = fs.Facts(fd, &facts) == 0 && IsLocal(facts);
  opened.prefix_digits = file->prefix_digits;
  opened.disk_bytes = stat.disk_bytes;
  opened.folder = std::move(folder);
  return opened;
}

int ListPrefixes(FileSystem& fs, const NamespaceFolder& of, std::uint64_t seed,
                 std::vector<std::string>* prefixes,
                 const std::function<void(std::string_view name)>& other) {
  prefixes->clear();  // at most 16^prefix_digits, whatever else is there
  const int listed = fs.List(of.folder.get(), [&](std::string_view name) {
    if (IsPrefixFolder(name, of.prefix_digits)) {
      prefixes->emplace_back(name);
    } else {
      other(name);
    }
    return true;
  });
  std::ranges::shuffle(*prefixes, std::mt19937_64(seed));
  return listed;
}

int VisitPrefix(FileSystem& fs, int folder, std::string_view prefix,
                const std::function<bool(const PrefixEntry& entry)>& entry) {
  int error = 0;
  const int listed = fs.List(folder, [&](std::string_view name) {
    PrefixEntry next{.name = name, .parsed = ParseBlockFile(prefix, name), .stat = {}};
    const int known = fs.StatAt(folder, std::string(name).c_str(), &next.stat);
    if (known == -ENOENT) return true;  // committed or removed meanwhile
    if (known < 0) {
      error = known;
      return true;
    }
    if (next.stat.kind != FileKind::kRegular) next.parsed.kind = NameKind::kForeign;
    return entry(next);
  });
  return listed < 0 ? listed : error;
}

}  // namespace ucmstore
