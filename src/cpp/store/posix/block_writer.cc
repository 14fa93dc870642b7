// SPDX-License-Identifier: Apache-2.0
//
// Writing and committing.
#include "store/posix/block_writer.h"

#include <spdlog/fmt/fmt.h>

#include <cerrno>
#include <utility>

namespace ucmstore {
namespace {

constexpr int kMaxFolders = 16;

// A dump does not fail because something "was not found": a part of the path is missing.
Status AsDumpError(Status status) noexcept {
  if (status.code == Code::kNotFound) status.code = Code::kIoError;
  return status;
}

}  // namespace

PosixWriter::PosixWriter(std::shared_ptr<Root> root, const BlockId& id, PosixCounters& counters,
                         Log& log, Renew renew, Reclaim* reclaim)
    : root_(std::move(root)),
      counters_(counters),
      log_(log),
      renew_(std::move(renew)),
      reclaim_(reclaim) {
  footer_.id = id;
  footer_.fingerprint = root_->file().fingerprint;
  footer_.layout = root_->layout();
  footer_.content = root_->file().content;
  footer_.shards.resize(root_->layout().shards_per_block);
}

PosixWriter::~PosixWriter() {
  const MutexLock lock(mutex_);
  if (!created_ || committed_) return;
  const Name activated = name();
  const int removed = root_->fs().Unlink(root_->folder(), activated.c_str());
  if (removed == 0 || removed == -ENOENT) return;
  // The mark outlives this store, so that whoever comes next reaps the file.
  mark_->Keep();
  counters_.leftovers.Add();
  log_.Error([&] {
    return fmt::format("{}: left behind, for removing it fails: {}",
                       root_->PathOf(activated.text()), ErrnoText(-removed));
  });
}

void PosixWriter::Abandon() noexcept {
  const MutexLock lock(mutex_);
  if (!created_ || committed_) return;
  mark_->Keep();
  counters_.leftovers.Add();
  created_ = false;  // so that the destructor has nothing to remove
}

Name PosixWriter::name() const noexcept {
  return ActivatedName(footer_.id, root_->prefix_digits(), writer_, attempt_);
}

Status PosixWriter::Failed(int error, const char* doing) const {
  return AsDumpError(
      ErrnoStatus(-error, fmt::format("{}: {}", root_->PathOf(name().text()), doing)));
}

Status PosixWriter::Removed() const {
  return Status::Error(Code::kAborted,
                       fmt::format("{}: somebody removed the file, and with it the shards that had "
                                   "landed; dump the block again",
                                   root_->PathOf(name().text())));
}

void PosixWriter::Write(std::span<ShardIo> shards, bool last) {
  const Status status = WriteShards(shards, last);
  TellIfFull(status);
  for (ShardIo& shard : shards) {
    if (status.ok()) {
      shard.Succeed(static_cast<std::uint32_t>(shard.bytes()));
    } else {
      shard.Fail(status);
    }
  }
}

void PosixWriter::TellIfFull(const Status& status) const noexcept {
  if (status.code == Code::kNoSpace && reclaim_ != nullptr) reclaim_->Full(*root_);
}

TransferFile PosixWriter::FileOf(const Opened& opened) const noexcept {
  return {root_->fs(), opened.file.get(), opened.direct ? root_->alignment() : DirectAlignment{},
          root_->layout()};
}

Status PosixWriter::WriteShards(std::span<ShardIo> shards, bool last) {
  const Breaker::Use use(root_->breaker(), Breaker::Kind::kWrite);
  Result<Opened> opened = OpenActivated();
  if (!opened) return opened.error();
  WriteTransfer transfer(FileOf(*opened), counters_);
  for (const ShardIo& shard : shards) {
    footer_.shards[shard.index()] =
        transfer.Add(shard.index(), shard.segments(), static_cast<std::uint32_t>(shard.bytes()));
  }
  if (last) transfer.AddFooter(footer_);
  const int error = transfer.Finish();
  if (transfer.fell_back()) root_->SayFallback(log_);
  if (error < 0) return Failed(error, "writing");
  Status finished = Finish(opened->file, last);
  if (last) footer_written_ = finished.ok();  // only then no other Write is at it
  return finished;
}

int PosixWriter::OpenFile(int flags, bool* direct) {
  FileSystem& fs = root_->fs();
  const std::uint32_t mode = root_->options().modes.file;
  const Name activated = name();
  *direct = root_->direct();
  int fd = fs.OpenAt(root_->folder(), activated.c_str(), *direct ? flags | O_DIRECT : flags, mode);
  if (fd == -EINVAL && *direct) {
    *direct = false;
    counters_.direct_fallbacks.Add();
    root_->SayFallback(log_);
    // The kernel may have made the file before it refused the flag (open(2), BUGS).
    if ((flags & O_CREAT) != 0) (void)fs.Unlink(root_->folder(), activated.c_str());
    fd = fs.OpenAt(root_->folder(), activated.c_str(), flags, mode);
  }
  return fd;
}

Result<PosixWriter::Opened> PosixWriter::OpenActivated() {
  const MutexLock lock(mutex_);
  if (!created_) return Create();
  Opened opened;
  const int fd = OpenFile(O_WRONLY | O_NOFOLLOW, &opened.direct);
  if (fd == -ENOENT) return std::unexpected(Removed());
  if (fd < 0) return std::unexpected(Failed(fd, "opening"));
  opened.file = File(root_->fs(), fd);
  return opened;
}

Result<PosixWriter::Opened> PosixWriter::Create() {
  Result<Opened> opened = TryCreate();
  if (!opened && opened.error().code == Code::kNotFound && renew_) {
    Result<std::shared_ptr<Root>> root = renew_(*root_);
    if (!root) return std::unexpected(root.error());
    root_ = *std::move(root);
    opened = TryCreate();
  }
  if (!opened) return std::unexpected(AsDumpError(opened.error()));
  return opened;
}

Result<PosixWriter::Opened> PosixWriter::TryCreate() {
  Result<WriterMark*> mark = root_->Writer();
  if (!mark) return std::unexpected(mark.error());
  mark_ = *mark;
  writer_ = mark_->id();
  attempt_ = mark_->NextAttempt();
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
  Opened opened;
  int fd = OpenFile(kFlags, &opened.direct);
  for (int i = 0; fd == -ENOENT && i < kMaxFolders; ++i) {
    // The first block of this prefix, or reclaim found the folder empty and removed it, perhaps
    // once more in between.
    const Status made = MakeFolder();
    if (!made.ok()) return std::unexpected(made);
    fd = OpenFile(kFlags, &opened.direct);
  }
  if (fd < 0) return std::unexpected(Failed(fd, "creating"));
  created_ = true;
  opened.file = File(root_->fs(), fd);
  const Modes& modes = root_->options().modes;
  if (modes.exact) (void)root_->fs().SetMode(fd, modes.file);
  return opened;
}

Status PosixWriter::MakeFolder() {
  FileSystem& fs = root_->fs();
  const Modes& modes = root_->options().modes;
  const Name folder = FolderName(footer_.id, root_->prefix_digits());
  const int made = fs.MakeFolder(root_->folder(), folder.c_str(), modes.folder);
  if (made == -EEXIST) return Status::Ok();
  if (made < 0) {
    return ErrnoStatus(-made, fmt::format("{}: creating the folder", root_->PathOf(folder.text())));
  }
  if (modes.exact) {
    const File opened(
        fs, fs.OpenAt(root_->folder(), folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0));
    if (opened) (void)fs.SetMode(opened.get(), modes.folder);
  }
  return Status::Ok();
}

Status PosixWriter::Finish(File& file, bool complete) {
  if (complete && root_->options().durable) {
    const int synced = root_->fs().Sync(file.get(), /*data_only=*/true);
    if (synced < 0) return Failed(synced, "syncing");
  }
  const int closed = file.Close();
  return closed < 0 ? Failed(closed, "closing") : Status::Ok();
}

Status PosixWriter::Commit() {
  const Breaker::Use use(root_->breaker(), Breaker::Kind::kWrite);
  Status status = TryCommit();
  TellIfFull(status);
  if (committed_ && reclaim_ != nullptr) {
    reclaim_->Committed(*root_, root_->layout().FileSize(footer_.full()));
  }
  return status;
}

Status PosixWriter::TryCommit() {
  if (!footer_written_) {
    Result<Opened> opened = OpenActivated();
    if (!opened) return opened.error();
    WriteTransfer transfer(FileOf(*opened), counters_);
    transfer.AddFooter(footer_);
    const int error = transfer.Finish();
    if (error < 0) return Failed(error, "writing the footer");
    Status finished = Finish(opened->file, /*complete=*/true);
    if (!finished.ok()) return finished;
  }
  const Name activated = name();
  const Name block = BlockName(footer_.id, root_->prefix_digits());
  const int renamed =
      root_->fs().Rename(root_->folder(), activated.c_str(), root_->folder(), block.c_str());
  if (renamed == -ENOENT) return Removed();
  if (renamed < 0) return Failed(renamed, "renaming it into place");
  committed_ = true;
  return root_->options().durable ? SyncFolder() : Status::Ok();
}

Status PosixWriter::SyncFolder() {
  const Name folder = FolderName(footer_.id, root_->prefix_digits());
  const File opened(root_->fs(), root_->fs().OpenAt(root_->folder(), folder.c_str(),
                                                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0));
  const int synced = opened ? root_->fs().Sync(opened.get(), /*data_only=*/false) : opened.get();
  if (synced < 0 && synced != -EINVAL && synced != -EOPNOTSUPP) {
    return AsDumpError(
        ErrnoStatus(-synced, fmt::format("{}: syncing the folder", root_->PathOf(folder.text()))));
  }
  return Status::Ok();
}

}  // namespace ucmstore
