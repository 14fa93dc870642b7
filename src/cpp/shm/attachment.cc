// SPDX-License-Identifier: Apache-2.0
//
// The process's table of its attachments.
#include "shm/attachment.h"

#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <utility>

#include "shm/fork_watch.h"

namespace ucmstore {
namespace {

using FileId = std::pair<dev_t, ino_t>;

// Of one process. A forked child begins with a new table: the parent's attachments are not its own,
// and another thread of the parent may have held the mutex at the fork.
struct Attachments {
  const std::uint64_t fork_depth = ForkDepth();
  Mutex mutex;
  std::map<FileId, std::weak_ptr<Attachment>> by_file UCMSTORE_GUARDED_BY(mutex);
};

// Never destroyed: a store that an embedder keeps to the very end may still let go.
Attachments& All() {
  static constinit std::atomic<Attachments*> all{nullptr};
  Attachments* known = all.load();
  while (known == nullptr || known->fork_depth != ForkDepth()) {
    auto made = std::make_unique<Attachments>();
    if (all.compare_exchange_strong(known, made.get())) return *made.release();
  }
  return *known;
}

// How often a segment may lose its name while we join it: its last user unlinks it as it leaves.
constexpr int kAttempts = 16;

}  // namespace

Result<std::shared_ptr<Attachment>> Attachment::Open(const SegmentRequest& request,
                                                     milliseconds incomplete_age) {
  Attachments& all = All();
  const MutexLock lock(all.mutex);
  for (int attempt = 1;; ++attempt) {
    auto segment = RingSegment::Open(request);
    if (!segment) return std::unexpected(segment.error());
    struct stat file{};
    if (::fstat((*segment)->fd(), &file) != 0) {
      return std::unexpected(ErrnoStatus(errno, (*segment)->path()));
    }
    std::weak_ptr<Attachment>& known = all.by_file[{file.st_dev, file.st_ino}];
    if (auto attachment = known.lock()) return attachment;
    std::shared_ptr<Attachment> attachment(new Attachment);
    if (Status status = attachment->Join(std::move(*segment), incomplete_age); !status.ok()) {
      return std::unexpected(status);
    }
    const bool named = attachment->segment_->is_private() || attachment->segment_->HasName();
    if (!named && attempt < kAttempts) continue;
    (void)attachment->Reap();
    known = attachment;
    std::erase_if(all.by_file, [](const auto& entry) { return entry.second.expired(); });
    return attachment;
  }
}

Status Attachment::Join(std::unique_ptr<RingSegment> segment, milliseconds incomplete_age) {
  fork_depth_ = ForkDepth();
  segment_ = std::move(segment);
  auto processes = ProcessTable::Open(*segment_);
  if (!processes) return processes.error();
  const RingMemory memory = RingMemory::Of(*segment_);
  // A predecessor's traces are erased before our own ring exists, in the place's name.
  const auto erase = [memory, incomplete_age](std::uint32_t place) {
    Ring(memory, place, incomplete_age).EraseTraces(place);
  };
  if (Status status = (*processes)->Join(erase); !status.ok()) return status;
  processes_ = std::move(*processes);
  ring_ = std::make_unique<Ring>(memory, processes_->place(), incomplete_age);
  return Status::Ok();
}

Attachment::~Attachment() {
  if (processes_ == nullptr || fork_depth_ != ForkDepth()) return;
  const bool last = processes_->Others() == 0;
  processes_->Leave([this](std::uint32_t place) {
    if (ring_ != nullptr) ring_->EraseTraces(place);
  });
  if (!last || !unlink_.load(std::memory_order_relaxed) || ring_ == nullptr) return;
  // Never with what was confirmed and is nowhere else.
  const auto states = ring_->CountStates();
  const bool dirty = states[static_cast<std::size_t>(SlotState::kDirty)] > 0 ||
                     states[static_cast<std::size_t>(SlotState::kFlushing)] > 0;
  if (!dirty) (void)segment_->Unlink();
}

std::uint32_t Attachment::Reap() {
  return processes_->ReapDead([this](std::uint32_t place) {
    ring_->EraseTraces(place);
    segment_->shared().reaped_processes.fetch_add(1, std::memory_order_relaxed);
  });
}

}  // namespace ucmstore
