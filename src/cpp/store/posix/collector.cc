// SPDX-License-Identifier: Apache-2.0
//
// The triggers, and one slice of a cycle after the other.
#include "store/posix/collector.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <random>
#include <utility>

#include "store/posix/measure.h"
#include "store/posix/names.h"
#include "store/posix/sweep.h"

namespace ucmstore {
namespace {

// Never more measures than this many in one filling of the capacity; and eight on the way to the
// high mark, so that as many processes that dump alike do not pass it between two.
constexpr std::uint64_t kFinestStep = 256;
constexpr std::uint64_t kStepsToHigh = 8;
// What a full disk makes go, of all blocks.
constexpr std::uint64_t kFullShare = 20;
constexpr milliseconds kBeat{1'000};
constexpr milliseconds kWarnEvery{60'000};

// No descriptor or memory now, or no folder: another time.
bool IsPassing(int error) noexcept {
  return error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -ENOENT ||
         error == -ENOTDIR;
}

}  // namespace

// What a cycle holds: at most the root, the lock, and a namespace's folder and dead marks.
struct Collector::Cycle {
  File root;
  File lock;
  std::optional<ForkGuard> guard;  // ends before the lock is closed
  std::optional<Measure> measure;
  std::optional<Sweep> sweep;
  TimePoint began;
  TimePoint last_slice;
  TimePoint next_beat;
  bool full_disk = false;
  bool complete = false;
  int rounds = 0;
  std::uint64_t high_bytes = 0;
  std::uint64_t low_bytes = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t stuck_bytes = 0;  // in the round before
  std::uint64_t freed_bytes = 0;  // in all rounds
};

Collector::Collector(const Services& services, std::string path, const Limits& limits,
                     const Modes& modes)
    : services_(services), path_(std::move(path)), limits_(limits), modes_(modes) {}

Collector::~Collector() = default;

// ---- the triggers ------------------------------------------------------------------------------

bool Collector::IsDue(std::uint64_t waiting_bytes) const noexcept {
  const TimePoint now = services_.clock.Now();
  if (now < not_before_.load(std::memory_order_relaxed)) return false;
  if (waiting_bytes >= room_bytes_.load(std::memory_order_relaxed)) return true;
  if (now < pause_until_.load(std::memory_order_relaxed)) return false;
  return waiting_bytes >= step_bytes_.load(std::memory_order_relaxed) ||
         now >= at_latest_.load(std::memory_order_relaxed);
}

void Collector::Committed(std::uint64_t bytes) noexcept {
  const std::uint64_t waiting = since_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  LookForStall();
  if (IsDue(waiting)) Start();
}

void Collector::Full() noexcept {
  LookForStall();
  if (services_.clock.Now() < full_not_before_.load()) return;
  full_.store(true);
  Start();
}

void Collector::Start() noexcept {
  const MutexLock lock(mutex_);
  if (running_ || stopping()) return;
  Job* const job = this;
  running_ = services_.pool.Push({&job, 1}, Lane::kBackground);
}

void Collector::LookForStall() noexcept {
  const TimePoint began = slice_began_.load();
  if (began == TimePoint::max() || services_.clock.Now() < began + kStall) return;
  if (told_of_stall_.exchange(true)) return;
  services_.counters.reclaim_stalls.Add();
  services_.log.Warning([this] {
    return fmt::format(
        "{}: reclaim waits for the disk since over {} s; nothing is removed here until it goes on",
        path_, kStall.count() / 1000);
  });
}

// What the next cycle waits for.
void Collector::Plan(std::uint64_t used_bytes) noexcept {
  const Cycle& cycle = *cycle_;
  const TimePoint now = services_.clock.Now();
  const std::uint64_t finest = capacity_bytes_.load() / kFinestStep;
  const bool above = used_bytes > cycle.high_bytes;
  const std::uint64_t room = above ? 0 : cycle.high_bytes - used_bytes;
  used_bytes_.store(used_bytes);
  step_bytes_.store(std::max(finest, room / kStepsToHigh));
  room_bytes_.store(above ? UINT64_MAX : room);
  // Half of the time at most, unless our own dumps alone have used up the room.
  pause_until_.store(now + (now - cycle.began));
  at_latest_.store(now + kAtLeastEvery);
  if (above) not_before_.store(now + kBackOff);
}

// ---- the job -----------------------------------------------------------------------------------

void Collector::Run() noexcept {
  told_of_stall_.store(false);
  const TimePoint began = services_.clock.Now();
  slice_began_.store(began);
  bool more = false;
  try {
    more = Slice();
  } catch (...) {  // out of memory: the next trigger begins anew
  }
  if (services_.clock.Now() >= began + kStall) LookForStall();
  slice_began_.store(TimePoint::max());
  // From the moment that it is queued another worker may run it.
  Job* const job = this;
  if (more && services_.pool.Push({&job, 1}, Lane::kBackground)) return;
  Finish();
}

void Collector::Finish() noexcept {
  const TimePoint now = services_.clock.Now();
  const bool complete = cycle_ != nullptr && cycle_->complete;
  const bool was_full = cycle_ != nullptr && cycle_->full_disk;
  if (!complete) not_before_.store(now + kBackOff);
  if (was_full) {
    // Not at each dump that fails: blocks shall not go faster than they can be used.
    const bool in_vain = complete && cycle_->freed_bytes == 0;
    full_not_before_.store(now + (in_vain ? kAtLeastEvery : kBackOff));
  }
  cycle_.reset();
  const MutexLock lock(mutex_);
  running_ = false;
  if (now < full_not_before_.load()) full_.store(false);
  // What came while it ran found it running.
  const std::uint64_t waiting = since_bytes_.load();
  if ((full_.load() || (waiting > 0 && IsDue(waiting))) && !stopping()) {
    Job* const job = this;
    running_ = services_.pool.Push({&job, 1}, Lane::kBackground);
  }
  ended_.NotifyAll();
}

bool Collector::End(TimePoint until) {
  stop_.store(true);
  const bool never_runs = services_.pool.Remove(*this);
  const MutexLock lock(mutex_);
  if (never_runs) running_ = false;
  while (running_) {
    if (!ended_.WaitUntil(mutex_, until) && running_) return false;
  }
  return true;
}

// ---- a cycle -----------------------------------------------------------------------------------

bool Collector::Slice() {
  if (stopping()) return false;
  if (cycle_ == nullptr) return BeginCycle();
  Cycle& cycle = *cycle_;
  const TimePoint now = services_.clock.Now();
  // Asleep for so long (a stopped process) that somebody else has done it.
  if (now > cycle.last_slice + kTakeOver) return false;
  BeatNowAndThen(cycle);
  bool more = true;
  if (cycle.sweep) {
    more = cycle.sweep->Step(stop_) || EndSweep(cycle);
  } else {
    more = cycle.measure->Step(stop_) || EndMeasure(cycle);
  }
  cycle.last_slice = services_.clock.Now();
  return more && !stopping();
}

bool Collector::BeginCycle() {
  cycle_ = std::make_unique<Cycle>();
  Cycle& cycle = *cycle_;
  cycle.began = cycle.last_slice = cycle.next_beat = services_.clock.Now();
  cycle.full_disk = full_.exchange(false);
  if (cycle.full_disk) full_not_before_.store(TimePoint::max());
  // By its path each time: it may be another folder than the last time.
  const int fd = services_.fs.OpenAt(AT_FDCWD, path_.c_str(), O_RDONLY | O_DIRECTORY, 0);
  if (fd < 0) return false;  // whoever uses the root says so
  cycle.root = File(services_.fs, fd);
  if (!KeepAccord() || !TakeLock(cycle)) return false;
  FileSystemFacts facts;
  if (services_.fs.Facts(fd, &facts) < 0) return false;
  const std::uint64_t capacity = limits_.BytesOn(facts.total_bytes);
  capacity_bytes_.store(capacity);
  if (capacity == 0) {
    SayOnce(said_no_size_,
            fmt::format("{}: the file system does not say how large it is, so capacity=auto is no "
                        "limit here: give one",
                        path_));
    return false;
  }
  cycle.high_bytes = Limits::PerCent(capacity, limits_.high_mark);
  cycle.low_bytes = Limits::PerCent(capacity, limits_.low_mark);
  since_bytes_.store(0);
  cycle.measure.emplace(services_.fs, fd, NewWriterId());
  return true;
}

bool Collector::EndMeasure(Cycle& cycle) {
  if (stopping()) return false;
  const Measure& measure = *cycle.measure;
  cycle.used_bytes = measure.used_bytes();
  if (measure.error() < 0) {
    SayOnce(said_partial_, fmt::format("{}: not all that is in it could be looked at ({}), so use "
                                       "counts as less than it is",
                                       path_, ErrnoText(-measure.error())));
  }
  const std::uint64_t blocks = measure.ages().Bytes();
  std::uint64_t need = 0;
  if (cycle.used_bytes > cycle.high_bytes) need = cycle.used_bytes - cycle.low_bytes;
  // Of fewer blocks than that not even one: others fill the disk, and it would help nobody.
  const bool room = cycle.full_disk && cycle.rounds == 0 && measure.ages().size() >= kFullShare;
  if (room) need = std::max(need, blocks / kFullShare);
  if (need == 0 || blocks == 0) return EndCycle(cycle);
  ++cycle.rounds;
  // What could not be removed in the round before is the oldest again, and will not help.
  const Cut cut = measure.ages().CutFor(need + cycle.stuck_bytes);
  std::vector<std::string> labels = measure.labels();
  std::ranges::shuffle(labels, std::mt19937_64(NewWriterId()));
  cycle.sweep.emplace(
      services_.fs, cycle.root.get(),
      Sweep::Plan{
          .labels = std::move(labels), .cut = cut, .need_bytes = need, .seed = NewWriterId()},
      services_.counters);
  cycle.measure.reset();
  return true;
}

bool Collector::EndSweep(Cycle& cycle) {
  if (stopping()) return false;
  const Sweep& sweep = *cycle.sweep;
  const std::uint64_t freed = sweep.freed_bytes();
  cycle.freed_bytes += freed;
  cycle.used_bytes -= std::min(cycle.used_bytes, freed);
  services_.log.Info([&] {
    return fmt::format("{}: reclaim removed {} blocks, {} bytes; {} of {} bytes are used", path_,
                       sweep.removed_blocks(), freed, cycle.used_bytes, capacity_bytes_.load());
  });
  if (sweep.failures() > 0) {
    WarnNowAndThen(warn_of_stuck_, [&] {
      return fmt::format(
          "{}: {} files of {} bytes should go and cannot be removed; the first is "
          "{}: {}",
          path_, sweep.failures(), sweep.stuck_bytes(), sweep.first_path(),
          ErrnoText(-sweep.first_error()));
    });
  }
  const bool hopeful = freed > 0 || sweep.stuck_bytes() > cycle.stuck_bytes;
  cycle.stuck_bytes = sweep.stuck_bytes();
  cycle.sweep.reset();
  if (cycle.used_bytes <= cycle.high_bytes || cycle.rounds == kMaxRounds || !hopeful) {
    return EndCycle(cycle);
  }
  cycle.measure.emplace(services_.fs, cycle.root.get(), NewWriterId());
  return true;
}

bool Collector::EndCycle(Cycle& cycle) {
  cycle.complete = true;
  Plan(cycle.used_bytes);
  services_.counters.reclaim_cycles.Add();
  if (cycle.used_bytes > cycle.high_bytes) {
    WarnNowAndThen(warn_of_use_, [&] {
      return fmt::format(
          "{}: {} bytes are used, of a capacity of {}, and no more can be removed: "
          "the rest is foreign, being written, or cannot be deleted",
          path_, cycle.used_bytes, capacity_bytes_.load());
    });
  }
  return false;
}

// ---- what it holds -----------------------------------------------------------------------------

void Collector::SayOnce(std::atomic<bool>& said, const std::string& words) noexcept {
  if (!said.exchange(true)) services_.log.Warning(words);
}

template <typename Words>
void Collector::WarnNowAndThen(TimePoint& next, Words&& words) noexcept {
  const TimePoint now = services_.clock.Now();
  if (now < next) return;
  next = now + kWarnEvery;
  services_.log.Warning(std::forward<Words>(words));
}

Status Collector::Agree() {
  const File root(services_.fs,
                  services_.fs.OpenAt(AT_FDCWD, path_.c_str(), O_RDONLY | O_DIRECTORY, 0));
  if (!root) return Status::Ok();
  Result<std::unique_ptr<Accord>> accord =
      Accord::Join(services_.fs, root.get(), path_, limits_, modes_);
  if (!accord) return accord.error();
  accord_ = *std::move(accord);
  if (!accord_->held()) {
    SayOnce(said_no_accord_,
            fmt::format("{}; so nobody sees to it that all stores of this root have one limit: "
                        "give all the same",
                        accord_->why_not()));
  }
  return Status::Ok();
}

// Somebody may have removed the file, or the root: then others agree on another one.
bool Collector::KeepAccord() {
  if (accord_ != nullptr && accord_->StillNamed()) return true;
  const Status agreed = Agree();
  if (!agreed.ok()) {
    services_.log.Error(
        [&] { return fmt::format("{}; this store removes nothing there", agreed.text()); });
  }
  return agreed.ok();
}

bool Collector::TakeLock(Cycle& cycle) {
  FileSystem& fs = services_.fs;
  const int fd = fs.OpenAt(cycle.root.get(), kCollectorName,
                           O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, modes_.file);
  if (IsPassing(fd)) return false;
  File lock(fs, fd);
  if (lock && modes_.exact) (void)fs.SetMode(fd, modes_.file);
  const int taken = lock ? fs.TryLock(fd, LockKind::kExclusive) : fd;
  if (taken == 0) {
    cycle.lock = std::move(lock);
    cycle.guard.emplace(fd);
    return true;
  }
  if (taken == -EAGAIN) return MayPassOver(fd);
  if (lock && !HasNoLocks(taken)) return false;
  SayOnce(said_no_lock_, fmt::format("{}/{}: {}; so several stores may reclaim here at once, and "
                                     "remove more than there is need for",
                                     path_, kCollectorName, ErrnoText(-taken)));
  return true;
}

// Whether the one that has the lock has not moved for long. By what this store has seen of it, so
// that no two clocks are compared.
bool Collector::MayPassOver(int lock) {
  FileStat stat;
  if (services_.fs.Stat(lock, &stat) < 0) return false;
  const TimePoint now = services_.clock.Now();
  if (!stat.SameFile(beat_) || stat.mtime_ns != beat_.mtime_ns) {
    beat_ = stat;
    beat_at_ = now;
    return false;
  }
  if (now < beat_at_ + kTakeOver) return false;
  services_.log.Warning([&] {
    return fmt::format("{}: who reclaims here has not moved for {} s; this store does it", path_,
                       kTakeOver.count() / 1000);
  });
  return true;
}

void Collector::BeatNowAndThen(Cycle& cycle) {
  const TimePoint now = services_.clock.Now();
  if (!cycle.lock || now < cycle.next_beat) return;
  cycle.next_beat = now + kBeat;
  (void)services_.fs.SetTimes(cycle.root.get(), kCollectorName);
}

}  // namespace ucmstore
