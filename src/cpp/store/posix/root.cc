// SPDX-License-Identifier: Apache-2.0
//
// Opening a namespace's folder.
#include "store/posix/root.h"

#include <spdlog/fmt/fmt.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "io/direct_probe.h"
#include "io/psync.h"

namespace ucmstore {
namespace {

// A purge may take the folder away between two steps of an opening; each retry begins anew.
constexpr int kMaxTries = 8;
// How long an opening waits for a purge that is about to remove the folder: 2 s.
constexpr int kMaxLockTries = 100;
constexpr std::chrono::milliseconds kLockPause{20};

Status Refused(std::string_view path, std::string_view why) {
  return Status::Error(Code::kInvalidArgument, fmt::format("{}: {}", path, why));
}

bool HasNoLinks(int error) noexcept {
  return error == -EPERM || error == -EOPNOTSUPP || error == -ENOSYS || error == -EMLINK;
}

}  // namespace

std::string CheckLabel(std::string_view label) {
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  if (label.empty() || label.size() > 80) return "it must have 1 to 80 characters";
  if (label.front() == '.') return "it must not begin with a dot";
  if (label.find_first_not_of(kAllowed) != std::string_view::npos) {
    return "it may only have letters, digits, '.', '_' and '-'";
  }
  return "";
}

std::string Root::PathOf(std::string_view name) const {
  std::string path = options_.path + "/" + options_.label;
  if (!name.empty()) path.append("/").append(name);
  return path;
}

Root::Root(FileSystem& fs, RootOptions options) : fs_(fs), options_(std::move(options)) {
  static const Clock real;
  if (options_.breaker == nullptr) {
    options_.breaker = std::make_shared<Breaker>(real, milliseconds(0));
  }
}

Result<std::unique_ptr<Root>> Root::Open(FileSystem& fs, RootOptions options) {
  const std::string wrong = CheckLabel(options.label);
  if (!wrong.empty()) {
    return std::unexpected(
        Refused(options.path, fmt::format("namespace label '{}': {}", options.label, wrong)));
  }
  std::unique_ptr<Root> root(new Root(fs, std::move(options)));
  for (int i = 0; i < kMaxTries; ++i) {
    bool vanished = false;
    Status status = root->OpenFolder();
    if (status.ok()) status = root->AdoptRootFile(&vanished);
    if (vanished) continue;
    if (status.ok()) status = root->TryDirect();
    if (!status.ok()) return std::unexpected(status);
    (void)root->root_folder_.Close();  // served its purpose
    return root;
  }
  return Failure(Code::kBusy, fmt::format("{}: the folder was removed {} times while it was opened",
                                          root->PathOf(""), kMaxTries));
}

Status Root::MakeFolder(int folder, const char* name, std::string_view shown) {
  const int made = fs_.MakeFolder(folder, name, options_.modes.folder);
  if (made < 0 && made != -EEXIST) return ErrnoStatus(-made, fmt::format("{}: creating", shown));
  if (made == 0 && options_.modes.exact) {
    const File opened(fs_, fs_.OpenAt(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0));
    if (opened) (void)fs_.SetMode(opened.get(), options_.modes.folder);
  }
  return Status::Ok();
}

Result<File> Root::OpenRootFolder() {
  const char* path = options_.path.c_str();
  int fd = fs_.OpenAt(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);
  if (fd == -ENOENT) {
    if (!options_.create_root) {
      return Failure(Code::kNotFound, fmt::format("{}: the root does not exist, and "
                                                  "create_root=false forbids to create it",
                                                  path));
    }
    const Status made = MakeFolder(AT_FDCWD, path, path);
    if (made.code == Code::kNotFound) {
      return Failure(Code::kNotFound,
                     fmt::format("{}: the root does not exist, and neither does the folder it "
                                 "would be created in; create that first",
                                 path));
    }
    if (!made.ok()) return std::unexpected(made);
    fd = fs_.OpenAt(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);
  }
  if (fd == -ENOTDIR) return std::unexpected(Refused(path, "the root is not a folder"));
  if (fd < 0) return std::unexpected(ErrnoStatus(-fd, fmt::format("{}: opening the root", path)));
  return File(fs_, fd);
}

Status Root::OpenFolder() {
  Result<File> root = OpenRootFolder();
  if (!root) return root.error();
  root_folder_ = std::move(*root);
  const char* label = options_.label.c_str();
  Status made = MakeFolder(root_folder_.get(), label, PathOf(""));
  if (!made.ok()) return made;
  const int fd = fs_.OpenAt(root_folder_.get(), label, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
  if (fd == -ENOTDIR || fd == -ELOOP) {
    return Refused(PathOf(""), "a file or link is in the place of the namespace's folder");
  }
  if (fd < 0) return ErrnoStatus(-fd, fmt::format("{}: opening", PathOf("")));
  folder_ = File(fs_, fd);
  FileSystemFacts facts;
  local_ = fs_.Facts(fd, &facts) == 0 && IsLocal(facts);
  made = MakeFolder(fd, kWritersName, PathOf(kWritersName));
  // Removed again by a purge, between the lines: AdoptRootFile will notice and say so.
  return made.code == Code::kNotFound ? Status::Ok() : made;
}

Status Root::AdoptRootFile(bool* vanished) {
  File file;
  Result<std::string> text = ReadRootFile(&file);
  if (!text && text.error().code == Code::kNotFound) {
    const Status made = MakeRootFile();
    *vanished = made.code == Code::kNotFound;
    if (!made.ok()) return made;
    text = ReadRootFile(&file);
  }
  if (!text) {
    *vanished = text.error().code == Code::kNotFound;
    return text.error();
  }
  Status status = LockRootFile(&file, vanished);
  if (!status.ok() || *vanished) return status;
  status = CheckRootFile(*text);
  if (!status.ok()) return status;
  guard_.reset();
  root_file_ = std::move(file);
  guard_.emplace(root_file_.get());
  return Status::Ok();
}

Result<std::string> Root::ReadRootFile(File* file) const {
  const int fd = fs_.OpenAt(folder(), kRootFileName, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
  if (fd < 0) {
    return std::unexpected(ErrnoStatus(-fd, fmt::format("{}: opening", PathOf(kRootFileName))));
  }
  *file = File(fs_, fd);
  FileStat stat;
  int result = fs_.Stat(fd, &stat);
  if (result == 0 && (stat.kind != FileKind::kRegular || stat.size > kMaxRootFileSize)) {
    return std::unexpected(Refused(PathOf(kRootFileName), "it is no such file"));
  }
  std::string text(result == 0 ? stat.size : 0, '\0');
  if (result == 0) {
    IoBatch batch;
    batch.Add(0, text.data(), text.size());
    result = batch.Read(fs_, fd);
  }
  if (result < 0) {
    return std::unexpected(ErrnoStatus(-result, fmt::format("{}: reading", PathOf(kRootFileName))));
  }
  return text;
}

// By temporary file, sync, link, sync of the folder: whoever reads UCMSTORE reads a whole one, also
// after a power cut. Losing the race is a success.
Root::Marking Root::LookAtRootFile() const {
  File file;
  const Result<std::string> text = ReadRootFile(&file);
  if (!text) return text.error().code == Code::kNotFound ? Marking::kMissing : Marking::kUnknown;
  const Result<RootFile> parsed = ParseRootFile(*text);
  if (!parsed) return Marking::kUnknown;
  return parsed->root_id == file_.root_id ? Marking::kOurs : Marking::kAnothers;
}

Status Root::MakeRootFile() {
  RootFile content = options_.wanted;
  content.root_id = options_.root_id ? *options_.root_id : NewRootId();
  std::string text = PrintRootFile(content);
  const Name temporary = TemporaryName(NewWriterId());
  const auto failed = [this](int error) {
    return ErrnoStatus(-error, fmt::format("{}: creating", PathOf(kRootFileName)));
  };
  const int fd = fs_.OpenAt(folder(), temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW,
                            options_.modes.file);
  if (fd < 0) return failed(fd);
  File file(fs_, fd);
  if (options_.modes.exact) (void)fs_.SetMode(fd, options_.modes.file);
  IoBatch batch;
  batch.Add(0, text.data(), text.size());
  int result = batch.Write(fs_, fd);
  if (result == 0) result = fs_.Sync(fd, /*data_only=*/false);
  const int closed = file.Close();
  if (result == 0) result = closed;
  if (result == 0) {
    result = fs_.Link(folder(), temporary.c_str(), folder(), kRootFileName);
    if (HasNoLinks(result)) {
      result = fs_.RenameNoReplace(folder(), temporary.c_str(), folder(), kRootFileName);
    }
  }
  (void)fs_.Unlink(folder(), temporary.c_str());
  if (result == -EEXIST) return Status::Ok();
  if (result < 0) return failed(result);
  for (const File* changed : {&folder_, &root_folder_}) {
    result = fs_.Sync(changed->get(), /*data_only=*/false);
    // Some file systems cannot sync a folder, which is then their affair.
    if (result < 0 && result != -EINVAL && result != -EOPNOTSUPP) return failed(result);
  }
  return Status::Ok();
}

// The shared lock says: in use. A purge takes an exclusive one before it removes the folder itself.
Status Root::LockRootFile(File* file, bool* vanished) {
  for (int i = 0; i < kMaxLockTries; ++i) {
    const int taken = fs_.TryLock(file->get(), LockKind::kShared);
    if (taken == -EAGAIN) {
      // A lock of another process: the kernel offers no wait for it that ends.
      std::this_thread::sleep_for(kLockPause);  // style: nothing to wait for
      continue;
    }
    // Without locks, purge cannot lock either, and keeps the folder.
    FileStat stat;
    *vanished = fs_.Stat(file->get(), &stat) == 0 && stat.links == 0;
    return Status::Ok();
  }
  return Status::Error(
      Code::kBusy,
      fmt::format("{}: the namespace is being purged; try again later", PathOf(kRootFileName)));
}

Status Root::CheckRootFile(std::string_view text) {
  Result<RootFile> parsed = ParseRootFile(text);
  const std::string path = PathOf(kRootFileName);
  if (!parsed) {
    return Status::Error(parsed.error().code, fmt::format("{}: {}", path, parsed.error().text()));
  }
  const std::string difference = Difference(options_.wanted, *parsed);
  if (!difference.empty()) {
    return Refused(path, fmt::format("this folder was made for something else: {}", difference));
  }
  file_ = std::move(*parsed);
  return Status::Ok();
}

Status Root::TryDirect() {
  const Name temporary = TemporaryName(NewWriterId());
  if (options_.io == IoMode::kBuffered) {
    // Nothing to try, but that the folder can be written.
    const int fd =
        fs_.OpenAt(folder(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL, options_.modes.file);
    if (fd < 0) return ErrnoStatus(-fd, fmt::format("{}: writing a file", PathOf(kWritersName)));
    const File file(fs_, fd);
    (void)fs_.Unlink(folder(), temporary.c_str());
    return Status::Ok();
  }
  const DirectVerdict verdict =
      ProbeDirect(fs_, folder(), temporary.c_str(), options_.modes.file, kPageSize);
  if (verdict.error < 0) {
    return ErrnoStatus(-verdict.error, fmt::format("{}: writing a file", PathOf(kWritersName)));
  }
  direct_ = verdict.usable;
  if (direct_) alignment_ = verdict.alignment;
  buffered_reason_ = verdict.reason;
  if (!direct_ && options_.io == IoMode::kDirect) {
    return Status::Error(Code::kUnsupported,
                         fmt::format("{}: io=direct is not possible here: {}; use io=auto",
                                     PathOf(""), verdict.reason));
  }
  return Status::Ok();
}

Status Root::Resting() const {
  return ErrorInWords(Code::kIoError, "the root rests: it has become too slow", [this] {
    return fmt::format(
        "{}: the root rests: something took longer than rest_after_ms={}; it is used "
        "again when it answers in time",
        PathOf(""), breaker().slow().count());
  });
}

void Root::TryDisk() const {
  FileStat stat;
  BlockId unlikely;
  const std::array<std::uint8_t, 16> random = NewRootId();
  std::memcpy(unlikely.bytes.data(), random.data(), random.size());
  (void)fs_.StatAt(folder(), BlockName(unlikely, prefix_digits()).c_str(), &stat);
  const Name temporary = TemporaryName(NewWriterId());
  if (direct_) {
    (void)ProbeDirect(fs_, folder(), temporary.c_str(), options_.modes.file, kPageSize);
    return;
  }
  const int fd = fs_.OpenAt(folder(), temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW,
                            options_.modes.file);
  if (fd < 0) return;
  const File file(fs_, fd);
  (void)fs_.Unlink(folder(), temporary.c_str());
  std::array<char, 512> page{};
  IoBatch batch;
  batch.Add(0, page.data(), page.size());
  if (batch.Write(fs_, fd) == 0) (void)fs_.Sync(fd, /*data_only=*/true);
}

void Root::SayFallback(Log& log) noexcept {
  if (said_fallback_.exchange(true)) return;
  log.Warning([this] {
    return fmt::format(
        "{}: direct I/O was refused for a transfer, which went through the page cache; later ones "
        "are only counted (direct_fallbacks)",
        PathOf(""));
  });
}

Result<WriterMark*> Root::Writer() {
  const MutexLock lock(mutex_);
  if (!writer_) {
    // The folder of marks may have been removed by hand; a mark must exist before any work does.
    (void)fs_.MakeFolder(folder(), kWritersName, options_.modes.folder);
    Result<std::unique_ptr<WriterMark>> made = WriterMark::Create(fs_, folder(), options_.modes);
    if (!made) {
      const Status& why = made.error();
      return std::unexpected(Status::Error(
          why.code, fmt::format("{}: making this writer's mark: {}", PathOf(""), why.text()),
          why.sys_errno));
    }
    writer_ = std::move(*made);
  }
  return writer_.get();
}

bool Root::HasWriter() {
  const MutexLock lock(mutex_);
  return writer_ != nullptr;
}

void Root::LeaveWriter() {
  const MutexLock lock(mutex_);
  if (writer_) writer_->Keep();
  writer_.reset();
}

void Root::RemoveWriter() {
  const MutexLock lock(mutex_);
  writer_.reset();
}

}  // namespace ucmstore
