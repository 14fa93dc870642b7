// SPDX-License-Identifier: Apache-2.0
//
// The process's table of its attachments.
#include "shm/attachment.h"

#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <utility>

namespace ucmstore {
namespace {

using FileId = std::pair<dev_t, ino_t>;

struct Attachments {
  Mutex mutex;
  std::map<FileId, std::weak_ptr<Attachment>> by_file UCMSTORE_GUARDED_BY(mutex);
  pid_t process UCMSTORE_GUARDED_BY(mutex) = 0;
};

// Never destroyed: a store that an embedder keeps to the very end may still let go.
Attachments& All() {
  static auto& all = *std::make_unique<Attachments>().release();
  return all;
}

}  // namespace

Result<std::shared_ptr<Attachment>> Attachment::Open(const SegmentRequest& request,
                                                     milliseconds incomplete_age) {
  auto segment = RingSegment::Open(request);
  if (!segment) return std::unexpected(segment.error());
  struct stat file{};
  if (::fstat((*segment)->fd(), &file) != 0) {
    return std::unexpected(ErrnoStatus(errno, (*segment)->path()));
  }
  Attachments& all = All();
  const MutexLock lock(all.mutex);
  if (all.process != ::getpid()) {  // those of a parent are not ours
    all.by_file.clear();
    all.process = ::getpid();
  }
  std::weak_ptr<Attachment>& known = all.by_file[{file.st_dev, file.st_ino}];
  if (auto attachment = known.lock()) return attachment;

  std::shared_ptr<Attachment> attachment(new Attachment);
  attachment->process_ = all.process;
  attachment->segment_ = std::move(*segment);
  auto processes = ProcessTable::Open(*attachment->segment_);
  if (!processes) return std::unexpected(processes.error());
  const RingMemory memory = RingMemory::Of(*attachment->segment_);
  // A predecessor's traces are erased before our own ring exists, in the place's name.
  const auto erase = [&](std::uint32_t place) {
    Ring(memory, place, incomplete_age).EraseTraces(place);
  };
  if (Status status = (*processes)->Join(erase); !status.ok()) return std::unexpected(status);
  attachment->processes_ = std::move(*processes);
  attachment->ring_ =
      std::make_unique<Ring>(memory, attachment->processes_->place(), incomplete_age);
  (void)attachment->Reap();
  known = attachment;
  return attachment;
}

Attachment::~Attachment() {
  if (processes_ == nullptr || process_ != ::getpid()) return;
  const bool last = processes_->Others() == 0;
  processes_->Leave([this](std::uint32_t place) {
    if (ring_ != nullptr) ring_->EraseTraces(place);
  });
  if (last && unlink_.load(std::memory_order_relaxed)) (void)segment_->Unlink();
}

std::uint32_t Attachment::Reap() {
  return processes_->ReapDead([this](std::uint32_t place) {
    ring_->EraseTraces(place);
    segment_->shared().reaped_processes.fetch_add(1, std::memory_order_relaxed);
  });
}

}  // namespace ucmstore
