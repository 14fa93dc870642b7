// SPDX-License-Identifier: Apache-2.0
//
// `walk`: visits everything below a root, one prefix folder at a time, and checks, repairs or
// removes on the way.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string_view>

#include "store/posix/accord.h"
#include "store/posix/admin.h"
#include "store/posix/names.h"
#include "store/posix/reaper.h"
#include "store/posix/root.h"
#include "store/posix/set_aside.h"
#include "store/posix/verify.h"

namespace ucmstore {
namespace {

constexpr int kOpenFolder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;

// An entry with values instead of pointers.
struct Found {
  AdminKind kind = AdminKind::kForeign;
  AdminVerdict verdict = AdminVerdict::kUnknown;
  AdminAction action = AdminAction::kNone;
  std::string path;
  std::string text;
  FileStat stat;
};

Result<std::vector<std::string>> NamesIn(FileSystem& fs, int folder) {
  std::vector<std::string> names;
  const int listed = fs.List(folder, [&names](std::string_view name) {
    names.emplace_back(name);
    return true;
  });
  if (listed < 0) return std::unexpected(ErrnoStatus(-listed, "listing a folder"));
  std::ranges::sort(names);
  return names;
}

// One namespace on the walk. Every method returns false when the caller wants no more.
class NamespaceWalk {
 public:
  NamespaceWalk(FileSystem& fs, const WalkRequest& request, int root, std::string label)
      : fs_(fs), request_(request), root_(root), label_(std::move(label)) {}

  Status Open();
  // Instead of a walk, if it cannot be opened.
  bool ReportUnreadable(const Status& why) const;
  [[nodiscard]] std::uint64_t CountFiles();
  bool Walk();

 private:
  [[nodiscard]] bool reads() const noexcept { return (request_.flags & kAdminRead) != 0; }
  [[nodiscard]] bool repairs() const noexcept { return (request_.flags & kAdminRepair) != 0; }
  [[nodiscard]] bool purges() const noexcept { return (request_.flags & kAdminPurge) != 0; }
  [[nodiscard]] std::uint32_t digits() const noexcept { return file_ ? file_->prefix_digits : 0; }
  [[nodiscard]] std::string PathOf(std::string_view name) const {
    return fmt::format("{}/{}{}{}", request_.root, label_, name.empty() ? "" : "/", name);
  }

  bool Report(const Found& found) const;
  bool WalkPrefix(const std::string& prefix);
  void LookAtBlock(int folder, const std::string& name, const ParsedName& parsed, Found* found);
  void LookAtActivated(const ParsedName& parsed, Found* found);
  bool WalkWriters();
  Found LookAtMark(const std::string& name);
  void Remove(int folder, const std::string& name, Found* found);
  bool ReportNamespace();
  void RemoveNamespace(Found* found);

  FileSystem& fs_;
  const WalkRequest& request_;
  const int root_;
  const std::string label_;
  File folder_;
  std::optional<RootFile> file_;
  std::string why_not_;   // if there is no file_
  bool damaged_ = false;  // then: not of a newer format, nor unreadable just now
  std::vector<std::string> prefixes_;
  std::vector<std::string> foreign_;
  std::unique_ptr<WriterCensus> census_;
  bool all_reaped_ = true;  // no leftover of a dead writer resisted
};

bool NamespaceWalk::Report(const Found& found) const {
  const AdminEntryV1 entry{.struct_size = sizeof(AdminEntryV1),
                           .kind = found.kind,
                           .verdict = found.verdict,
                           .action = found.action,
                           .path = found.path.c_str(),
                           .namespace_label = label_.c_str(),
                           .text = found.text.c_str(),
                           .size_bytes = found.stat.size,
                           .disk_bytes = found.stat.disk_bytes,
                           .mtime_ns = found.stat.mtime_ns};
  return request_.entry(request_.ctx, &entry);
}

Status NamespaceWalk::Open() {
  const int fd = fs_.OpenAt(root_, label_.c_str(), kOpenFolder, 0);
  if (fd < 0) return ErrnoStatus(-fd, PathOf(""));
  folder_ = File(fs_, fd);
  Result<RootFile> file = LoadRootFile(fs_, fd);
  if (file) {
    file_ = std::move(*file);
  } else {
    why_not_ = file.error().text();
    damaged_ = file.error().code == Code::kCorruption;
  }
  FileSystemFacts facts;
  const bool local = fs_.Facts(fd, &facts) == 0 && IsLocal(facts);
  census_ = std::make_unique<WriterCensus>(fs_, fd, local);
  if (file_ && (repairs() || purges())) (void)census_->Take(/*tidy=*/false);
  const Result<std::vector<std::string>> names = NamesIn(fs_, fd);
  if (!names) return names.error();
  for (const std::string& name : *names) {
    if (name == kRootFileName || name == kWritersName) continue;
    FileStat stat;
    const bool folder = fs_.StatAt(fd, name.c_str(), &stat) == 0 && stat.kind == FileKind::kFolder;
    const bool prefix = file_ && folder && IsPrefixFolder(name, digits());
    (prefix ? prefixes_ : foreign_).push_back(name);
  }
  return Status::Ok();
}

bool NamespaceWalk::ReportUnreadable(const Status& why) const {
  Found found;
  found.kind = AdminKind::kNamespace;
  found.verdict = AdminVerdict::kUnreadable;
  found.action = purges() ? AdminAction::kFailed : AdminAction::kNone;
  found.path = PathOf("");
  found.text = why.text();
  return Report(found);
}

std::uint64_t NamespaceWalk::CountFiles() {
  std::uint64_t files = foreign_.size();
  std::vector<std::string> folders = prefixes_;
  folders.emplace_back(kWritersName);
  for (const std::string& name : folders) {
    const File opened(fs_, fs_.OpenAt(folder_.get(), name.c_str(), kOpenFolder, 0));
    if (!opened) continue;
    (void)fs_.List(opened.get(), [&files](std::string_view /*name*/) {
      ++files;
      return true;
    });
  }
  return files;
}

bool NamespaceWalk::Walk() {
  if (!purges() && !ReportNamespace()) return false;
  for (const std::string& prefix : prefixes_) {
    if (!WalkPrefix(prefix)) return false;
  }
  for (const std::string& name : foreign_) {
    Found found;
    found.path = PathOf(name);
    found.text = "not a file of this store";
    (void)fs_.StatAt(folder_.get(), name.c_str(), &found.stat);
    if (!Report(found)) return false;
  }
  if (!WalkWriters()) return false;
  return !purges() || ReportNamespace();
}

bool NamespaceWalk::WalkPrefix(const std::string& prefix) {
  const File opened(fs_, fs_.OpenAt(folder_.get(), prefix.c_str(), kOpenFolder, 0));
  if (!opened) return true;  // removed meanwhile
  const Result<std::vector<std::string>> names = NamesIn(fs_, opened.get());
  if (!names) {
    Found found;
    found.path = PathOf(prefix);
    found.verdict = AdminVerdict::kUnreadable;
    found.text = names.error().text();
    return Report(found);
  }
  for (const std::string& name : *names) {
    const ParsedName parsed = ParseBlockFile(prefix, name);
    Found found;
    found.path = PathOf(fmt::format("{}/{}", prefix, name));
    const int known = fs_.StatAt(opened.get(), name.c_str(), &found.stat);
    if (known == -ENOENT) continue;  // committed or removed meanwhile
    if (known < 0) {
      found.verdict = AdminVerdict::kUnreadable;
      found.text = ErrnoText(-known);
    } else if (parsed.kind == NameKind::kForeign || found.stat.kind != FileKind::kRegular) {
      found.text = "not a file of this store";
    } else {
      LookAtBlock(opened.get(), name, parsed, &found);
    }
    if (!Report(found)) return false;
  }
  return true;
}

void NamespaceWalk::Remove(int folder, const std::string& name, Found* found) {
  const int removed = fs_.Unlink(folder, name.c_str());
  const bool gone = removed == 0 || removed == -ENOENT;
  found->action = gone ? AdminAction::kRemoved : AdminAction::kFailed;
  if (!gone)
    found->text += fmt::format("{}{}", found->text.empty() ? "" : "; ", ErrnoText(-removed));
  if (!gone && found->kind == AdminKind::kActivated) all_reaped_ = false;
}

// Whatever has a name of ours, by its kind.
void NamespaceWalk::LookAtBlock(int folder, const std::string& name, const ParsedName& parsed,
                                Found* found) {
  if (parsed.kind == NameKind::kActivated) {
    LookAtActivated(parsed, found);
    const bool leftover = found->verdict == AdminVerdict::kLeftover;
    if (leftover && (repairs() || purges())) Remove(folder, name, found);
    return;
  }
  if (parsed.kind != NameKind::kBlock) {
    found->kind = AdminKind::kSetAside;
    found->text = "once judged corrupt";
    if (purges()) Remove(folder, name, found);
    return;
  }
  found->kind = AdminKind::kBlock;
  if (purges()) {
    found->verdict = AdminVerdict::kGood;
    Remove(folder, name, found);
    return;
  }
  BlockVerdict judged;
  const bool torn = !file_->layout.IsBlockSize(found->stat.size);
  if (reads() || (torn && repairs())) {
    judged = VerifyBlock(fs_, folder, name.c_str(), parsed.id, *file_);
  } else if (torn) {
    judged.verdict = AdminVerdict::kTorn;
    judged.text = "its size is not that of a block";
  }
  found->verdict = judged.verdict;
  found->text = judged.text;
  const bool bad =
      judged.verdict == AdminVerdict::kTorn || judged.verdict == AdminVerdict::kCorrupt;
  if (!bad || !repairs()) return;
  const AsideResult aside = SetAside(fs_, folder_.get(), parsed.id, digits(), judged.stat);
  if (aside.outcome == AsideOutcome::kMoved) found->action = AdminAction::kSetAside;
  if (aside.outcome == AsideOutcome::kFailed) {
    found->action = AdminAction::kFailed;
    found->text += fmt::format("; moving it aside fails: {}", ErrnoText(-aside.error));
  }
}

void NamespaceWalk::LookAtActivated(const ParsedName& parsed, Found* found) {
  found->kind = AdminKind::kActivated;
  const bool dead = census_->MayReap(parsed.writer);
  found->verdict = dead ? AdminVerdict::kLeftover : AdminVerdict::kInUse;
  found->text = fmt::format("{} writer {}", dead ? "left behind by" : "being written by",
                            WriterText(parsed.writer).text());
}

bool NamespaceWalk::WalkWriters() {
  const File opened(fs_, fs_.OpenAt(folder_.get(), kWritersName, kOpenFolder, 0));
  if (!opened) return true;
  const Result<std::vector<std::string>> names = NamesIn(fs_, opened.get());
  if (!names) return true;
  std::vector<Found> marks;
  for (const std::string& name : *names) marks.push_back(LookAtMark(name));
  // Only after all that the dead had left is gone.
  if ((repairs() || purges()) && all_reaped_) census_->RemoveMarks();
  for (Found& mark : marks) {
    const bool leftover = mark.verdict == AdminVerdict::kLeftover;
    FileStat stat;
    if (leftover && (repairs() || purges()) &&
        fs_.StatAt(AT_FDCWD, mark.path.c_str(), &stat) == -ENOENT) {
      mark.action = AdminAction::kRemoved;
    }
    if (!Report(mark)) return false;
  }
  return true;
}

Found NamespaceWalk::LookAtMark(const std::string& name) {
  const std::string within = std::string(kWritersName) + "/" + name;
  Found found;
  found.path = PathOf(within);
  (void)fs_.StatAt(folder_.get(), within.c_str(), &found.stat);
  const ParsedMark mark = ParseMark(name);
  if (mark.writer == 0) {
    found.text = "not a file of this store";
    return found;
  }
  found.kind = AdminKind::kWriter;
  if (mark.temporary) {
    // Its maker, if there still is one, makes another.
    found.verdict = AdminVerdict::kLeftover;
    found.text = "a temporary file";
    if (repairs() || purges()) Remove(folder_.get(), within, &found);
    return found;
  }
  const bool dead = census_->MayReap(mark.writer);
  found.verdict = dead ? AdminVerdict::kLeftover : AdminVerdict::kInUse;
  found.text = census_->TextOf(mark.writer);
  std::ranges::replace(found.text, '\n', ' ');
  return found;
}

bool NamespaceWalk::ReportNamespace() {
  Found found;
  found.kind = AdminKind::kNamespace;
  found.path = PathOf("");
  found.verdict = file_      ? AdminVerdict::kGood
                  : damaged_ ? AdminVerdict::kCorrupt
                             : AdminVerdict::kUnreadable;
  found.text = why_not_;
  (void)fs_.StatAt(folder_.get(), kRootFileName, &found.stat);
  if (purges() && file_) RemoveNamespace(&found);
  return Report(found);
}

// The folder itself goes only if it is empty of everything else and no store has it open. A store
// that is just being opened waits for our lock, finds its file without a name, and begins again.
void NamespaceWalk::RemoveNamespace(Found* found) {
  const File file(fs_, fs_.OpenAt(folder_.get(), kRootFileName, O_RDWR | O_NOFOLLOW, 0));
  if (!file) return;
  if (fs_.TryLock(file.get(), LockKind::kExclusive) < 0) {
    found->verdict = AdminVerdict::kInUse;
    found->text = "a store has it open; its folder stays";
    return;
  }
  bool empty = foreign_.empty();
  for (const std::string& prefix : prefixes_) {
    const int removed = fs_.RemoveFolder(folder_.get(), prefix.c_str());
    empty = empty && (removed == 0 || removed == -ENOENT);
  }
  const int writers = fs_.RemoveFolder(folder_.get(), kWritersName);
  empty = empty && (writers == 0 || writers == -ENOENT);
  if (!empty) {
    found->text = "something else is in it; its folder stays";
    return;
  }
  int removed = fs_.Unlink(folder_.get(), kRootFileName);
  if (removed == 0) removed = fs_.RemoveFolder(root_, label_.c_str());
  found->action = removed == 0 ? AdminAction::kRemoved : AdminAction::kFailed;
  if (removed < 0) found->text = ErrnoText(-removed);
}

}  // namespace

Status WalkRoot(FileSystem& fs, const WalkRequest& request) {
  const auto invalid = [](std::string_view text) {
    return Status::Error(Code::kInvalidArgument, fmt::format("walk: {}", text));
  };
  if (request.root.empty() || request.entry == nullptr) {
    return invalid("a root and a function must be given");
  }
  if ((request.flags & ~kAdminFlags) != 0) return invalid("flags that are not known here");
  // Any folder of the root may hold blocks, whatever it was renamed to; none outside it.
  if (request.label == "." || request.label == ".." || request.label.contains('/')) {
    return invalid(fmt::format("namespace '{}': not the name of a folder below", request.label));
  }
  const int fd = fs.OpenAt(AT_FDCWD, request.root.c_str(), O_RDONLY | O_DIRECTORY, 0);
  if (fd < 0) return ErrnoStatus(-fd, request.root);
  const File root(fs, fd);
  Result<std::vector<std::string>> labels = ListNamespaces(fs, fd);
  if (!labels) return labels.error();
  if (!request.label.empty()) {
    if (std::ranges::find(*labels, request.label) == labels->end()) {
      return Status::Error(Code::kNotFound,
                           fmt::format("{}: there is no namespace '{}' ({} others)", request.root,
                                       request.label, labels->size()));
    }
    *labels = {request.label};
  }
  std::vector<std::unique_ptr<NamespaceWalk>> walks;
  std::uint64_t files = 0;
  for (const std::string& label : *labels) {
    auto walk = std::make_unique<NamespaceWalk>(fs, request, fd, label);
    const Status opened = walk->Open();
    if (!opened.ok()) {
      if (!request.label.empty()) return opened;
      if (!walk->ReportUnreadable(opened)) return Status::Ok();
      continue;
    }
    if (request.total != nullptr) files += walk->CountFiles();
    walks.push_back(std::move(walk));
  }
  if (request.total != nullptr) request.total(request.ctx, files);
  for (const auto& walk : walks) {
    if (!walk->Walk()) break;
  }
  if ((request.flags & kAdminPurge) != 0) RemoveUnheld(fs, fd);
  return Status::Ok();
}

}  // namespace ucmstore
