// SPDX-License-Identifier: Apache-2.0
//
// The table, and `inspect`: every fact of a path, in words.
#include "store/posix/admin.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <exception>

#include "base/hex.h"
#include "io/psync.h"
#include "store/posix/names.h"
#include "store/posix/verify.h"

namespace ucmstore {
namespace {

// Nothing is thrown across the table.
template <typename Function>
Status AtEdge(Function&& function) noexcept {
  try {
    return function();
  } catch (const std::exception& error) {
    return Status::Error(Code::kInternal, error.what());
  } catch (...) {  // style: the ABI's edge
    return Status::Error(Code::kInternal, "an unknown exception");
  }
}

// Passes facts to the caller's function.
class Facts {
 public:
  Facts(void* ctx, AdminField field) noexcept : ctx_(ctx), field_(field) {}
  void Add(const std::string& name, const std::string& value) const {
    field_(ctx_, name.c_str(), value.c_str());
  }

 private:
  void* ctx_;
  AdminField field_;
};

std::string TimeText(std::int64_t ns) {
  const std::time_t seconds = static_cast<std::time_t>(ns / 1'000'000'000);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

void AddGeometry(const Facts& facts, const BlockLayout& layout) {
  facts.Add("shard_size", fmt::format("{}", layout.shard_size));
  facts.Add("shards_per_block", fmt::format("{}", layout.shards_per_block));
  facts.Add("stride", fmt::format("{}", layout.stride()));
  facts.Add("footer_size", fmt::format("{}", layout.footer_size()));
}

void AddRootFile(const Facts& facts, const RootFile& file) {
  facts.Add("format", fmt::format("{}", kRootFormat));
  AddGeometry(facts, file.layout);
  facts.Add("block_file_size", fmt::format("{}", file.layout.FileSize(/*full=*/true)));
  facts.Add("content", file.content);
  facts.Add("prefix_digits", fmt::format("{}", file.prefix_digits));
  facts.Add("fingerprint", ToHex(file.fingerprint));
  facts.Add("root_id", ToHex(file.root_id));
  facts.Add("namespace", file.namespace_text);
}

Status InspectNamespace(FileSystem& fs, int folder, const Facts& facts) {
  const Result<RootFile> file = LoadRootFile(fs, folder);
  if (!file) return file.error();
  facts.Add("kind", "namespace");
  AddRootFile(facts, *file);
  return Status::Ok();
}

Status InspectFolder(FileSystem& fs, const char* path, const Facts& facts) {
  const File folder(fs, fs.OpenAt(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0));
  if (!folder) return ErrnoStatus(-folder.get(), path);
  FileStat stat;
  if (fs.StatAt(folder.get(), kRootFileName, &stat) == 0) {
    return InspectNamespace(fs, folder.get(), facts);
  }
  const Result<std::vector<std::string>> labels = ListNamespaces(fs, folder.get());
  if (!labels) return labels.error();
  facts.Add("kind", "root");
  FileSystemFacts medium;
  if (fs.Facts(folder.get(), &medium) == 0) {
    facts.Add("file_system", std::string(FileSystemName(medium.type)));
    facts.Add("total_bytes", fmt::format("{}", medium.total_bytes));
    facts.Add("free_bytes", fmt::format("{}", medium.free_bytes));
  }
  facts.Add("namespaces", fmt::format("{}", labels->size()));
  for (const std::string& label : *labels) facts.Add("namespace", label);
  return Status::Ok();
}

void AddShards(const Facts& facts, const Footer& footer) {
  for (std::uint32_t i = 0; i < footer.layout.shards_per_block; ++i) {
    facts.Add(fmt::format("shard {}", i),
              fmt::format("offset {}, {} bytes, crc32c {:08x}", footer.layout.ShardOffset(i),
                          footer.shards[i].length, footer.shards[i].crc));
  }
}

Status InspectFile(FileSystem& fs, const char* path, const Facts& facts) {
  bool direct = true;
  const int fd = OpenForReading(fs, AT_FDCWD, path, &direct);
  if (fd < 0) return ErrnoStatus(-fd, path);
  const File file(fs, fd);
  FileStat stat;
  const int known = fs.Stat(fd, &stat);
  if (known < 0) return ErrnoStatus(-known, path);
  facts.Add("kind", "block");
  facts.Add("size_bytes", fmt::format("{}", stat.size));
  facts.Add("disk_bytes", fmt::format("{}", stat.disk_bytes));
  facts.Add("modified", TimeText(stat.mtime_ns));
  const Result<Footer> footer = FindFooter(fs, fd, stat.size);
  if (!footer) {
    facts.Add("verdict", std::string(footer.error().text()));
    return Status::Error(footer.error().code, fmt::format("{}: {}", path, footer.error().text()));
  }
  facts.Add("block_id", ToHex(footer->id));
  facts.Add("format", fmt::format("{}", kFooterVersion));
  facts.Add("fingerprint", ToHex(footer->fingerprint));
  facts.Add("content", footer->content);
  AddGeometry(facts, footer->layout);
  AddShards(facts, *footer);
  std::string verdict;
  if (stat.size != footer->layout.FileSize(footer->full())) {
    verdict = fmt::format("{} bytes are not a whole block of this geometry", stat.size);
  } else {
    Result<std::string> wrong = CheckShards(fs, fd, direct, *footer);
    if (!wrong) return wrong.error();
    verdict = std::move(*wrong);
  }
  facts.Add("verdict", verdict.empty() ? "good" : verdict);
  return Status::Ok();
}

}  // namespace

Result<std::vector<std::string>> ListNamespaces(FileSystem& fs, int root) {
  std::vector<std::string> labels;
  const int listed = fs.List(root, [&](std::string_view name) {
    const std::string path = std::string(name) + "/" + kRootFileName;
    FileStat stat;
    // The folder itself must be one: a link to a namespace elsewhere is foreign.
    if (fs.StatAt(root, std::string(name).c_str(), &stat) == 0 && stat.kind == FileKind::kFolder &&
        fs.StatAt(root, path.c_str(), &stat) == 0) {
      labels.emplace_back(name);
    }
    return true;
  });
  if (listed < 0) return std::unexpected(ErrnoStatus(-listed, "listing the root"));
  std::ranges::sort(labels);
  return labels;
}

Result<RootFile> LoadRootFile(FileSystem& fs, int folder) {
  const File file(fs, fs.OpenAt(folder, kRootFileName, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0));
  if (!file) return std::unexpected(ErrnoStatus(-file.get(), kRootFileName));
  FileStat stat;
  const int known = fs.Stat(file.get(), &stat);
  if (known < 0) return std::unexpected(ErrnoStatus(-known, kRootFileName));
  if (stat.kind != FileKind::kRegular || stat.size > kMaxRootFileSize) {
    return Failure(Code::kCorruption, fmt::format("{}: it is not a file of ours", kRootFileName));
  }
  std::string text(stat.size, '\0');
  IoBatch batch;
  batch.Add(0, text.data(), text.size());
  const int read = batch.Read(fs, file.get());
  if (read < 0) return std::unexpected(ErrnoStatus(-read, kRootFileName));
  Result<RootFile> parsed = ParseRootFile(text);
  if (!parsed) {
    return Failure(parsed.error().code,
                   fmt::format("{}: {}", kRootFileName, parsed.error().text()));
  }
  return parsed;
}

Status InspectPath(FileSystem& fs, const char* path, void* ctx, AdminField field) {
  if (path == nullptr || field == nullptr) {
    return Status::Error(Code::kInvalidArgument, "inspect: a path and a function must be given");
  }
  FileStat stat;
  const int known = fs.StatAt(AT_FDCWD, path, &stat);
  if (known < 0) return ErrnoStatus(-known, path);
  const Facts facts(ctx, field);
  facts.Add("path", path);
  if (stat.kind == FileKind::kFolder) return InspectFolder(fs, path, facts);
  const std::string_view text(path);
  const std::size_t slash = text.rfind('/');
  const bool bare = slash == std::string_view::npos;
  if ((bare ? text : text.substr(slash + 1)) == kRootFileName) {
    const std::string folder = bare ? "." : slash == 0 ? "/" : std::string(text.substr(0, slash));
    const File opened(fs, fs.OpenAt(AT_FDCWD, folder.c_str(), O_RDONLY | O_DIRECTORY, 0));
    if (!opened) return ErrnoStatus(-opened.get(), folder);
    return InspectNamespace(fs, opened.get(), facts);
  }
  if (stat.kind != FileKind::kRegular) {
    return Status::Error(Code::kInvalidArgument,
                         fmt::format("{}: neither a folder nor a regular file", path));
  }
  return InspectFile(fs, path, facts);
}

const AdminTableV1& PosixAdmin() noexcept {
  static constexpr AdminTableV1 kTable{
      .struct_size = sizeof(AdminTableV1),
      .reserved = 0,
      .inspect =
          [](const char* path, void* ctx, AdminField field) {
            return AtEdge([&] { return InspectPath(FileSystem::Real(), path, ctx, field); });
          },
      .walk =
          [](const char* root, const char* label, std::uint32_t flags, void* ctx,
             void (*total)(void*, std::uint64_t), bool (*entry)(void*, const AdminEntryV1*)) {
            return AtEdge([&] {
              WalkRequest request;
              request.root = root == nullptr ? "" : root;
              request.label = label == nullptr ? "" : label;
              request.flags = flags;
              request.ctx = ctx;
              request.total = total;
              request.entry = entry;
              return WalkRoot(FileSystem::Real(), request);
            });
          }};
  return kTable;
}

}  // namespace ucmstore
