// SPDX-License-Identifier: Apache-2.0
//
// Reading and judging.
#include "store/posix/block_reader.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cerrno>

#include "base/hex.h"
#include "store/posix/set_aside.h"

namespace ucmstore {
namespace {

// The same file must be wrong twice. If each reading meets another file, somebody rewrites the
// block faster than it can be judged; it is then left alone.
constexpr int kMaxAttempts = 4;

void FailRest(std::span<ShardIo> shards, const Status& why) {
  for (ShardIo& shard : shards) {
    if (!shard.ended()) shard.Fail(why);
  }
}

}  // namespace

std::string FooterMismatch(const Footer& footer, const BlockId& id, const RootFile& root,
                           bool full) {
  if (footer.id != id) return fmt::format("it holds block {}", ToHex(footer.id));
  if (footer.fingerprint != root.fingerprint) return "it belongs to another namespace";
  if (footer.layout != root.layout) return "its footer names another geometry";
  if (footer.content != root.content) {
    return fmt::format("its content is {}, not {}", footer.content, root.content);
  }
  return footer.full() == full ? "" : "its size and its lengths disagree";
}

// One reading of a file, from open to verdict.
struct BlockReader::Attempt {
  File file;
  FileStat stat;
  bool full = false;
  bool direct = false;
  Status status;            // of the whole file
  std::string suspicion;    // "" if nothing is wrong
  bool from_cache = false;  // the footer was not read now
  std::shared_ptr<const Footer> footer;
  std::vector<ShardRead> reads;  // of the shards that are moved
  std::vector<int> errors;       // of each read

  [[nodiscard]] bool going() const noexcept { return status.ok() && suspicion.empty(); }
};

std::string BlockReader::PathOf(const BlockId& id) const {
  return root_.PathOf(BlockName(id, root_.prefix_digits()).text());
}

Status BlockReader::Failed(const BlockId& id, int error, const char* doing) const {
  if (error == -ENODATA) {
    return Status::Error(Code::kNotFound, fmt::format("{}: the file became shorter", PathOf(id)));
  }
  return ErrnoStatus(-error, fmt::format("{}: {}", PathOf(id), doing));
}

TransferFile BlockReader::FileOf(const Attempt& attempt) const noexcept {
  return {root_.fs(), attempt.file.get(), attempt.direct ? root_.alignment() : DirectAlignment{},
          root_.layout()};
}

void BlockReader::Read(const BlockId& id, std::span<ShardIo> shards) {
  Attempt judged;
  for (int i = 0; i < kMaxAttempts; ++i) {
    Attempt attempt;
    Try(id, shards, /*use_cache=*/i == 0, &attempt);
    if (attempt.suspicion.empty()) return;
    if (i > 0 && !judged.from_cache && attempt.stat.SameFile(judged.stat)) {
      GiveUp(id, shards, attempt);
      return;
    }
    counters_.rereads.Add();
    // Its descriptor stays open until the next one is: an inode in use is not given away.
    judged = std::move(attempt);
  }
  FailRest(shards,
           Status::Error(Code::kCorruption, fmt::format("{}: {}; it was replaced again and again "
                                                        "while it was judged",
                                                        PathOf(id), judged.suspicion)));
}

void BlockReader::Try(const BlockId& id, std::span<ShardIo> shards, bool use_cache,
                      Attempt* attempt) {
  Open(id, attempt);
  if (attempt->going()) LearnFooter(id, shards, use_cache, attempt);
  if (attempt->going()) {
    Plan(shards, attempt);
    Move(id, attempt);
  }
  if (attempt->going()) Settle(id, shards, attempt);
  if (!attempt->status.ok()) FailRest(shards, attempt->status);
}

void BlockReader::Open(const BlockId& id, Attempt* attempt) {
  FileSystem& fs = root_.fs();
  const Name name = BlockName(id, root_.prefix_digits());
  // Whatever lies under the name, opening it must neither follow, nor wait, nor hang.
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK;
  attempt->direct = root_.direct();
  int fd = fs.OpenAt(root_.folder(), name.c_str(), attempt->direct ? kFlags | O_DIRECT : kFlags, 0);
  if (fd == -EINVAL && attempt->direct) {
    attempt->direct = false;
    counters_.direct_fallbacks.Add();
    root_.SayFallback(log_);
    fd = fs.OpenAt(root_.folder(), name.c_str(), kFlags, 0);
  }
  if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP || fd == -ENXIO) {
    attempt->status = Status::Error(Code::kNotFound, fmt::format("{}: no such block", PathOf(id)));
    return;
  }
  if (fd < 0) {
    attempt->status = Failed(id, fd, "opening");
    return;
  }
  attempt->file = File(fs, fd);
  const int known = fs.Stat(fd, &attempt->stat);
  if (known < 0) {
    attempt->status = Failed(id, known, "asking for its size");
  } else if (attempt->stat.kind != FileKind::kRegular ||
             !root_.layout().IsBlockSize(attempt->stat.size)) {
    attempt->status = Status::Error(
        Code::kNotFound, fmt::format("{}: {} bytes are not a whole block of this geometry",
                                     PathOf(id), attempt->stat.size));
  }
  if (attempt->status.ok()) mtime_ns_ = attempt->stat.mtime_ns;
  attempt->full = attempt->stat.size == root_.layout().FileSize(/*full=*/true);
}

// Finds the footer in the cache, or reads it if nothing can be done without. Of a full block the
// lengths are known anyway, so there it comes along with the shards.
void BlockReader::LearnFooter(const BlockId& id, std::span<ShardIo> shards, bool use_cache,
                              Attempt* attempt) {
  if (use_cache) {
    attempt->footer = cache_.Find(attempt->stat);
    (attempt->footer ? counters_.footer_hits : counters_.footer_misses).Add();
  }
  if (attempt->footer) {
    attempt->from_cache = true;
    attempt->suspicion = FooterMismatch(*attempt->footer, id, root_.file(), attempt->full);
    return;
  }
  const bool only_prefetch =
      std::ranges::all_of(shards, [](const ShardIo& shard) { return shard.prefetch(); });
  if (!attempt->full || only_prefetch) ReadFooter(id, attempt);
  const bool again = !attempt->full || shards.size() < root_.layout().shards_per_block;
  if (attempt->footer && again) cache_.Insert(attempt->stat, attempt->footer);
}

void BlockReader::Plan(std::span<ShardIo> shards, Attempt* attempt) {
  attempt->reads.reserve(shards.size());
  for (ShardIo& shard : shards) {
    if (shard.ended() || shard.prefetch()) continue;
    const std::uint32_t length = attempt->footer
                                     ? attempt->footer->shards[shard.index()].length
                                     : static_cast<std::uint32_t>(root_.layout().shard_size);
    if (!shard.HasRoomFor(length)) continue;
    attempt->reads.push_back({.index = shard.index(),
                              .length = length,
                              .segments = shard.segments(),
                              .crc = 0,
                              .cursor = {}});
  }
}

void BlockReader::Move(const BlockId& id, Attempt* attempt) {
  const bool with_footer = !attempt->footer;
  int error = 0;
  {
    ReadTransfer transfer(FileOf(*attempt), counters_);
    for (ShardRead& read : attempt->reads) transfer.Add(read);
    if (with_footer) transfer.AddFooter(attempt->full);
    error = transfer.Finish();
    if (transfer.fell_back()) root_.SayFallback(log_);
    if (error == 0 && with_footer) Accept(id, transfer.footer(), attempt);
  }
  attempt->errors.assign(attempt->reads.size(), error);
  if (error == 0) {
    const bool again = attempt->reads.size() < root_.layout().shards_per_block;
    if (with_footer && again && attempt->going()) cache_.Insert(attempt->stat, attempt->footer);
    return;
  }
  // One bad sector must not fail its neighbours: each by itself.
  if (!attempt->footer) ReadFooter(id, attempt);
  if (!attempt->going()) return;
  for (std::size_t i = 0; i < attempt->reads.size(); ++i) {
    ReadTransfer single(FileOf(*attempt), counters_);
    single.Add(attempt->reads[i]);
    attempt->errors[i] = single.Finish();
  }
}

void BlockReader::ReadFooter(const BlockId& id, Attempt* attempt) {
  ReadTransfer transfer(FileOf(*attempt), counters_);
  transfer.AddFooter(attempt->full);
  const int error = transfer.Finish();
  if (error == 0) {
    Accept(id, transfer.footer(), attempt);
  } else {
    attempt->status = Failed(id, error, "reading its footer");
  }
}

// Decides whether a parsed footer is the right one.
void BlockReader::Accept(const BlockId& id, Result<Footer>& parsed, Attempt* attempt) {
  if (!parsed && parsed.error().code == Code::kUnsupported) {
    attempt->status =
        Status::Error(Code::kUnsupported, fmt::format("{}: {}", PathOf(id), parsed.error().text()));
    return;
  }
  attempt->suspicion = parsed ? FooterMismatch(*parsed, id, root_.file(), attempt->full)
                              : std::string(parsed.error().text());
  if (attempt->suspicion.empty()) {
    attempt->footer = std::make_shared<const Footer>(std::move(*parsed));
  }
}

// Ends each shard whose checksum is right, or whose reading failed.
void BlockReader::Settle(const BlockId& id, std::span<ShardIo> shards, Attempt* attempt) {
  std::size_t next = 0;
  for (ShardIo& shard : shards) {
    if (shard.ended()) continue;
    const StoredShard& stored = attempt->footer->shards[shard.index()];
    if (shard.prefetch()) {
      shard.Succeed(stored.length);
      continue;
    }
    const ShardRead& read = attempt->reads[next];
    const int error = attempt->errors[next];
    ++next;
    if (error < 0) {
      shard.Fail(Failed(id, error, "reading"));
    } else if (read.length == stored.length && read.crc == stored.crc) {
      shard.Succeed(stored.length);
    } else {
      attempt->suspicion = fmt::format("the checksum of shard {} differs", shard.index());
    }
  }
}

// The same file was wrong twice.
void BlockReader::GiveUp(const BlockId& id, std::span<ShardIo> shards, const Attempt& attempt) {
  const AsideResult aside =
      SetAside(root_.fs(), root_.folder(), id, root_.prefix_digits(), attempt.stat);
  std::string what;
  switch (aside.outcome) {
    case AsideOutcome::kMoved:
      counters_.set_aside.Add();
      what = "set aside";
      break;
    case AsideOutcome::kGone: what = "gone already"; break;
    case AsideOutcome::kPutBack:
      counters_.put_back.Add();
      what = "replaced meanwhile; the new file stays";
      break;
    case AsideOutcome::kFailed:
      what = fmt::format("left in place, for moving it fails: {}", ErrnoText(-aside.error));
      break;
  }
  const std::string text = fmt::format("{}: {}; {}", PathOf(id), attempt.suspicion, what);
  log_.Error(text);
  FailRest(shards, Status::Error(Code::kCorruption, text));
}

}  // namespace ucmstore
