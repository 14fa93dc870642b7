// SPDX-License-Identifier: Apache-2.0
//
// Writing and committing.
#include "store/posix/block_writer.h"

#include <spdlog/fmt/fmt.h>

#include <cerrno>

#include "store/posix/transfer.h"

namespace ucmstore {

PosixWriter::PosixWriter(Root& root, const BlockId& id, PosixCounters& counters, Log& log)
    : root_(root), counters_(counters), log_(log) {
  footer_.id = id;
  footer_.fingerprint = root.file().fingerprint;
  footer_.layout = root.layout();
  footer_.content = root.file().content;
  footer_.shards.resize(root.layout().shards_per_block);
}

PosixWriter::~PosixWriter() {
  const MutexLock lock(mutex_);
  if (!created_ || committed_) return;
  const int removed = root_.fs().Unlink(root_.folder(), name_.c_str());
  if (removed == 0 || removed == -ENOENT) return;
  // The mark outlives this store, so that whoever comes next reaps the file.
  mark_->Keep();
  counters_.leftovers.Add();
  log_.Error(fmt::format("{}: left behind, for removing it fails: {}", root_.PathOf(name_.text()),
                         ErrnoText(-removed)));
}

Status PosixWriter::Failed(int error, const char* doing) const {
  return ErrnoStatus(-error, fmt::format("{}: {}", root_.PathOf(name_.text()), doing));
}

void PosixWriter::Write(std::span<ShardIo> shards, bool last) {
  const Status status = WriteShards(shards, last);
  for (ShardIo& shard : shards) {
    if (status.ok()) {
      shard.Succeed(static_cast<std::uint32_t>(shard.bytes()));
    } else {
      shard.Fail(status);
    }
  }
}

Status PosixWriter::WriteShards(std::span<ShardIo> shards, bool last) {
  Result<File> file = OpenActivated();
  if (!file) return file.error();
  const TransferFile to{root_.fs(), file->get(), root_.alignment(), root_.layout()};
  WriteTransfer transfer(to, counters_);
  for (const ShardIo& shard : shards) {
    footer_.shards[shard.index()] = transfer.Add(shard.index(), shard.segments(),
                                                 static_cast<std::uint32_t>(shard.bytes()));
  }
  if (last) transfer.AddFooter(footer_);
  const int error = transfer.Finish();
  if (error < 0) return Failed(error, "writing");
  Status finished = Finish(*file, last);
  footer_written_ = last && finished.ok();
  return finished;
}

Result<File> PosixWriter::OpenActivated() {
  const MutexLock lock(mutex_);
  if (!created_) return Create();
  const int flags = O_WRONLY | O_NOFOLLOW | (root_.direct() ? O_DIRECT : 0);
  const int fd = root_.fs().OpenAt(root_.folder(), name_.c_str(), flags, 0);
  if (fd == -ENOENT) {
    return Failure(Code::kAborted,
                   fmt::format("{}: somebody removed the file, and with it the shards that had "
                               "landed; dump the block again",
                               root_.PathOf(name_.text())));
  }
  if (fd < 0) return std::unexpected(Failed(fd, "opening"));
  return File(root_.fs(), fd);
}

Result<File> PosixWriter::Create() {
  Result<WriterMark*> mark = root_.Writer();
  if (!mark) return std::unexpected(mark.error());
  mark_ = *mark;
  name_ = ActivatedName(footer_.id, root_.prefix_digits(), mark_->id(), mark_->NextAttempt());
  FileSystem& fs = root_.fs();
  const Modes& modes = root_.options().modes;
  const int flags =
      O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | (root_.direct() ? O_DIRECT : 0);
  int fd = fs.OpenAt(root_.folder(), name_.c_str(), flags, modes.file);
  if (fd == -ENOENT) {
    // The first block of this prefix, or somebody removed the folder.
    const Name folder = FolderName(footer_.id, root_.prefix_digits());
    const int made = fs.MakeFolder(root_.folder(), folder.c_str(), modes.folder);
    if (made < 0 && made != -EEXIST) {
      return std::unexpected(ErrnoStatus(
          -made, fmt::format("{}: creating the folder", root_.PathOf(folder.text()))));
    }
    if (made == 0 && modes.exact) {
      const File opened(
          fs, fs.OpenAt(root_.folder(), folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0));
      if (opened) (void)fs.SetMode(opened.get(), modes.folder);
    }
    fd = fs.OpenAt(root_.folder(), name_.c_str(), flags, modes.file);
  }
  if (fd < 0) return std::unexpected(Failed(fd, "creating"));
  created_ = true;
  File file(fs, fd);
  if (modes.exact) (void)fs.SetMode(fd, modes.file);
  return file;
}

Status PosixWriter::Finish(File& file, bool complete) {
  if (complete && root_.options().durable) {
    const int synced = root_.fs().Sync(file.get(), /*data_only=*/true);
    if (synced < 0) return Failed(synced, "syncing");
  }
  const int closed = file.Close();
  return closed < 0 ? Failed(closed, "closing") : Status::Ok();
}

Status PosixWriter::Commit() {
  if (!footer_written_) {
    Result<File> file = OpenActivated();
    if (!file) return file.error();
    const TransferFile to{root_.fs(), file->get(), root_.alignment(), root_.layout()};
    WriteTransfer transfer(to, counters_);
    transfer.AddFooter(footer_);
    const int error = transfer.Finish();
    if (error < 0) return Failed(error, "writing the footer");
    Status finished = Finish(*file, /*complete=*/true);
    if (!finished.ok()) return finished;
  }
  const Name block = BlockName(footer_.id, root_.prefix_digits());
  const int renamed =
      root_.fs().Rename(root_.folder(), name_.c_str(), root_.folder(), block.c_str());
  if (renamed < 0) return Failed(renamed, "renaming it into place");
  committed_ = true;
  return root_.options().durable ? SyncFolder() : Status::Ok();
}

Status PosixWriter::SyncFolder() {
  const Name folder = FolderName(footer_.id, root_.prefix_digits());
  const File opened(root_.fs(), root_.fs().OpenAt(root_.folder(), folder.c_str(),
                                                  O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0));
  const int synced =
      opened ? root_.fs().Sync(opened.get(), /*data_only=*/false) : opened.get();
  if (synced < 0 && synced != -EINVAL && synced != -EOPNOTSUPP) {
    return ErrnoStatus(-synced, fmt::format("{}: syncing the folder", root_.PathOf(folder.text())));
  }
  return Status::Ok();
}

}  // namespace ucmstore
