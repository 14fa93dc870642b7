// SPDX-License-Identifier: Apache-2.0
//
// Places, their locks, and what becomes of the dead. The order that all of it rests on:
//   join:  lock, erase a predecessor's traces if `taken`, taken = 1, leave traces
//   leave: erase own traces, taken = 0, unlock
//   reap:  `taken` and the lock is free: lock, look at `taken` again, erase, taken = 0, unlock
// A process that dies anywhere in there leaves `taken` and a free lock, or nothing at all.
#include "shm/process_table.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "shm/boot_clock.h"
#include "shm/fork_watch.h"

namespace ucmstore {
namespace {

// How often all places are tried, a little apart: a reaper holds one just for a moment.
constexpr int kRounds = 10;
constexpr int kRoundMs = 10;

// How long to wait for a moment without a fork.
constexpr int kForkRounds = 5000;
constexpr int kForkRoundMs = 1;

struct flock LockOf(std::uint32_t place, short type) noexcept {
  struct flock lock{};  // l_pid 0, as these locks ask for
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = kPlaceLocksAt + place;
  lock.l_len = 1;
  return lock;
}

}  // namespace

Result<std::unique_ptr<ProcessTable>> ProcessTable::Open(RingSegment& segment) {
  // The same file, whatever its name now is; a memfd never had one.
  const std::string self = fmt::format("/proc/self/fd/{}", segment.fd());
  for (int round = 0; round < kForkRounds; ++round) {
    if (round > 0) (void)::poll(nullptr, 0, kForkRoundMs);
    const ForkWatch forks;
    const int fd = ::open(self.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
      return std::unexpected(
          ErrnoStatus(errno, fmt::format("{}: cannot be opened once more by {}, for the lock that "
                                         "says this process is alive",
                                         segment.path(), self)));
    }
    std::unique_ptr<ProcessTable> table(new ProcessTable(segment, fd));
    if (forks.Quiet()) return table;
  }
  return Failure(Code::kBusy, segment.path() +
                                  ": this process forks all the time, and a child would keep the "
                                  "lock that says this process is alive");
}

ProcessTable::ProcessTable(RingSegment& segment, int fd)
    : entries_(segment.processes()),
      path_(segment.path()),
      fd_(fd),
      fork_depth_(ForkDepth()),
      guard_(std::make_unique<ForkGuard>(fd)) {}

ProcessTable::~ProcessTable() {
  if (InForkedChild()) {
    // The place is the parent's, the descriptor is closed, and its number and the guard's slot may
    // be somebody else's by now.
    [[maybe_unused]] const ForkGuard* const parents = guard_.release();
    return;
  }
  EraseTraces erase;
  {
    const MutexLock lock(mutex_);
    erase = erase_;
  }
  Leave(erase);
  guard_.reset();
  ::close(fd_);
}

bool ProcessTable::InForkedChild() const noexcept { return ForkDepth() != fork_depth_; }

ProcessTable::Take ProcessTable::TryTake(std::uint32_t place) const noexcept {
  struct flock lock = LockOf(place, F_WRLCK);
  if (::fcntl(fd_, F_OFD_SETLK, &lock) == 0) return Take::kTaken;
  return errno == EAGAIN || errno == EACCES ? Take::kHeld : Take::kFailed;
}

void ProcessTable::Drop(std::uint32_t place) const noexcept {
  struct flock lock = LockOf(place, F_UNLCK);
  (void)::fcntl(fd_, F_OFD_SETLK, &lock);
}

Status ProcessTable::Join(const EraseTraces& erase) {
  if (InForkedChild()) {
    return Status::Error(Code::kClosed,
                         path_ + ": opened before a fork; the child has to open it for itself");
  }
  const MutexLock guard(mutex_);
  if (place() != kNoPlace) return Status::Error(Code::kInternal, path_ + ": joined twice");
  for (int round = 0; round < kRounds; ++round) {
    if (round > 0) (void)::poll(nullptr, 0, kRoundMs);
    for (std::uint32_t place = 0; place < kMaxProcesses; ++place) {
      const Take take = TryTake(place);
      if (take == Take::kFailed) {
        return ErrnoStatus(errno, path_ + ": the lock that says this process is alive");
      }
      if (take == Take::kHeld) continue;
      Publish(place, erase);
      return Status::Ok();
    }
  }
  return Status::Error(
      Code::kLimit, fmt::format("{}: all {} places are held by live processes: stop one of them, "
                                "or give this store another ring (option `name`)",
                                path_, kMaxProcesses));
}

void ProcessTable::EraseDead(std::uint32_t place, const EraseTraces& erase) {
  if (erase) erase(place);
  entries_[place].pid.store(0, std::memory_order_relaxed);
  entries_[place].leases.store(0, std::memory_order_relaxed);
  entries_[place].taken.store(0, std::memory_order_release);
}

void ProcessTable::Publish(std::uint32_t place, const EraseTraces& erase) {
  ProcessEntry& entry = entries_[place];
  if (entry.taken.load(std::memory_order_acquire) != 0) EraseDead(place, erase);
  entry.pid.store(static_cast<std::uint32_t>(::getpid()), std::memory_order_relaxed);
  entry.since_ns.store(BootClockNs(), std::memory_order_relaxed);
  entry.taken.store(1, std::memory_order_seq_cst);  // before any trace
  erase_ = erase;
  place_.store(place, std::memory_order_relaxed);
}

std::uint32_t ProcessTable::ReapDead(const EraseTraces& erase) {
  if (InForkedChild()) return 0;
  const MutexLock guard(mutex_);
  std::uint32_t reaped = 0;
  for (std::uint32_t place = 0; place < kMaxProcesses; ++place) {
    const ProcessEntry& entry = entries_[place];
    if (place == this->place() || entry.taken.load(std::memory_order_acquire) == 0) continue;
    if (TryTake(place) != Take::kTaken) continue;
    // Somebody may have reaped it, and another joined and left, since the first look.
    if (entry.taken.load(std::memory_order_acquire) != 0) {
      EraseDead(place, erase);
      ++reaped;
    }
    Drop(place);
  }
  return reaped;
}

bool ProcessTable::IsAlive(std::uint32_t place) const {
  if (place >= kMaxProcesses) return false;
  if (InForkedChild()) return true;  // nothing is known here; and nobody is to be reaped for it
  if (place == this->place()) return true;
  struct flock lock = LockOf(place, F_WRLCK);
  return ::fcntl(fd_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

std::uint32_t ProcessTable::Others() const {
  if (InForkedChild()) return 0;
  std::uint32_t others = 0;
  for (std::uint32_t place = 0; place < kMaxProcesses; ++place) {
    if (place == this->place() || entries_[place].taken.load(std::memory_order_acquire) == 0)
      continue;
    if (IsAlive(place)) ++others;
  }
  return others;
}

// Of two that take the last one at once, whoever's addition came second sees both.
std::uint64_t ProcessTable::TakeLeases(std::uint64_t wanted, std::uint64_t limit) noexcept {
  entries_[place()].leases.fetch_add(wanted, std::memory_order_seq_cst);
  const std::uint64_t all = Leases();
  const std::uint64_t too_many = all > limit ? std::min(all - limit, wanted) : 0;
  if (too_many > 0) ReturnLeases(too_many);
  return wanted - too_many;
}

void ProcessTable::ReturnLeases(std::uint64_t count) noexcept {
  entries_[place()].leases.fetch_sub(count, std::memory_order_seq_cst);
}

std::uint64_t ProcessTable::Leases() const noexcept {
  std::uint64_t leases = 0;
  for (std::uint32_t place = 0; place < kMaxProcesses; ++place) {
    leases += entries_[place].leases.load(std::memory_order_seq_cst);
  }
  return leases;
}

void ProcessTable::Leave(const EraseTraces& erase) {
  if (InForkedChild()) return;
  const MutexLock guard(mutex_);
  const std::uint32_t mine = place();
  if (mine == kNoPlace) return;
  if (erase) erase(mine);
  entries_[mine].pid.store(0, std::memory_order_relaxed);
  entries_[mine].taken.store(0, std::memory_order_release);
  place_.store(kNoPlace, std::memory_order_relaxed);
  Drop(mine);
}

}  // namespace ucmstore
