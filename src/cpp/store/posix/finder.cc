// SPDX-License-Identifier: Apache-2.0
//
// The cursor, and those who follow it.
#include "store/posix/finder.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "ucmstore/store_v1.h"

namespace ucmstore {
namespace {

TimePoint RealNow() noexcept { return std::chrono::steady_clock::now(); }

bool IsAbsence(int error) noexcept {
  return error == -ENOENT || error == -ENOTDIR || error == -ELOOP;
}

}  // namespace

// One Find in progress. Lives until the caller and every helper that began have let go of it.
struct Finder::Batch {
  std::shared_ptr<const RootSet> roots;
  std::span<const BlockId> blocks;
  std::uint8_t* found = nullptr;
  bool stop_at_miss = false;
  Touches* touches = nullptr;
  TimePoint until = TimePoint::max();
  std::atomic<bool> late{false};
  std::atomic<std::size_t> cursor{0};
  std::atomic<std::size_t> first_miss{SIZE_MAX};
  std::atomic<int> error{0};
  std::atomic<std::size_t> errors{0};

  Mutex mutex;
  CondVar left;
  std::size_t inside UCMSTORE_GUARDED_BY(mutex) = 0;

  void Miss(std::size_t i) noexcept {
    std::size_t known = first_miss.load(std::memory_order_relaxed);
    while (i < known && !first_miss.compare_exchange_weak(known, i, std::memory_order_relaxed)) {
    }
  }
};

// A helper's part. The pool does not touch a job that runs, so the caller may free it as soon as
// it is no longer inside.
class Finder::Assistant final : public Job {
 public:
  Assistant(const Finder& finder, std::shared_ptr<Batch> batch)
      : finder_(finder), batch_(std::move(batch)) {}

  void Run() noexcept override {
    const std::shared_ptr<Batch> batch = batch_;  // outlives `this`
    while (finder_.WorkOnce(*batch)) {
    }
    const MutexLock lock(batch->mutex);
    --batch->inside;
    batch->left.NotifyAll();
  }

 private:
  const Finder& finder_;
  std::shared_ptr<Batch> batch_;
};

Finder::Finder(const Roots& roots, ThreadPool& pool, PosixCounters& counters, Log& log,
               Touches* touches)
    : roots_(roots),
      pool_(pool),
      counters_(counters),
      log_(log),
      touches_(touches),
      usual_helpers_(std::clamp(std::thread::hardware_concurrency(), 2U, kMaxHelpers + 1) - 1) {}

int FindIn(const Root& root, const BlockId& id, std::int64_t* mtime_ns) noexcept {
  FileStat stat;
  const Name name = BlockName(id, root.prefix_digits());
  const int result = root.fs().StatAt(root.folder(), name.c_str(), &stat);
  if (result < 0) return IsAbsence(result) ? 0 : result;
  if (stat.kind != FileKind::kRegular || !root.layout().IsBlockSize(stat.size)) return 0;
  if (mtime_ns != nullptr) *mtime_ns = stat.mtime_ns;
  return 1;
}

int Probe(const Root& root, const BlockId& id, std::int64_t* mtime_ns) noexcept {
  if (root.breaker().Refuses()) return 0;
  const Breaker::Use use(root.breaker(), Breaker::Kind::kRead);
  return FindIn(root, id, mtime_ns);
}

int FindBlock(const RootSet& roots, const BlockId& id, Touches* touches) noexcept {
  const std::shared_ptr<Root>& home = roots.HomeOf(id);
  std::int64_t mtime_ns = 0;
  const int answer = Probe(*home, id, &mtime_ns);
  if (answer > 0) {
    if (touches != nullptr) touches->Used(home, id, mtime_ns);
    return answer;
  }
  const Root* const former = roots.FormerHomeOf(id);
  return former != nullptr && Probe(*former, id) > 0 ? 1 : answer;
}

bool Finder::WorkOnce(Batch& batch) const noexcept {
  if (batch.until != TimePoint::max() && batch.cursor.load(std::memory_order_relaxed) > 0 &&
      RealNow() >= batch.until) {
    batch.late.store(true, std::memory_order_relaxed);
    return false;
  }
  const std::size_t begin = batch.cursor.fetch_add(kChunk, std::memory_order_relaxed);
  if (begin >= batch.blocks.size()) return false;
  // Chunks are taken in order: what lies behind a known miss need not be asked.
  if (batch.stop_at_miss && begin > batch.first_miss.load(std::memory_order_relaxed)) return false;
  const std::size_t end = std::min(begin + kChunk, batch.blocks.size());
  // One root needs no choice, and is measured by the chunk.
  const auto& members = batch.roots->members();
  const std::shared_ptr<Root>* const only = members.size() == 1 ? &members.front().root : nullptr;
  const bool rests = only != nullptr && (*only)->breaker().Refuses();
  std::optional<Breaker::Use> use;
  if (only != nullptr && !rests) use.emplace((*only)->breaker(), Breaker::Kind::kRead);
  for (std::size_t i = begin; i < end; ++i) {
    const BlockId& id = batch.blocks[i];
    int answer = 0;
    if (only == nullptr) {
      answer = FindBlock(*batch.roots, id, batch.touches);
    } else if (!rests) {
      std::int64_t mtime_ns = 0;
      answer = FindIn(**only, id, &mtime_ns);
      if (answer > 0 && batch.touches != nullptr) batch.touches->Used(*only, id, mtime_ns);
    }
    if (answer > 0) {
      batch.found[i] = kBelow;
      continue;
    }
    if (answer < 0) {
      batch.errors.fetch_add(1, std::memory_order_relaxed);
      batch.error.store(answer, std::memory_order_relaxed);
    }
    batch.Miss(i);
    if (batch.stop_at_miss) return false;
  }
  return true;
}

Status Finder::Find(std::span<const BlockId> blocks, std::uint32_t flags, TimePoint until,
                    std::uint8_t* found) {
  if (blocks.empty()) return Status::Ok();
  Touches* const touches = (flags & kNoTouch) != 0 ? nullptr : touches_;
  if (blocks.size() == 1) {  // what every dump asks first
    const int answer = FindBlock(*roots_.Now(), blocks[0], touches);
    if (answer > 0) *found = kBelow;
    return answer < 0 ? ErrnoStatus(-answer, "looking for a block") : Status::Ok();
  }
  const auto batch = std::make_shared<Batch>();
  batch->roots = roots_.Now();
  batch->blocks = blocks;
  batch->until = until;
  batch->found = found;
  batch->touches = touches;
  batch->stop_at_miss = (flags & kStopAtMiss) != 0;
  const TimePoint begun = RealNow();
  bool more = WorkOnce(*batch);
  if (more && blocks.size() >= kWorthHelp) {
    const bool slow = RealNow() - begun > kSlow * kChunk;
    WorkTogether(batch, slow ? kMaxHelpers : usual_helpers_);
  }
  while (more && WorkOnce(*batch)) {
  }
  // What nobody has asked for want of time is absent.
  if (batch->late.load() && batch->cursor.load() < blocks.size()) counters_.lookup_timeouts.Add();
  const std::size_t first_miss = batch->first_miss.load();
  if (batch->stop_at_miss && first_miss < blocks.size()) {
    std::fill(found + first_miss, found + blocks.size(), kAbsent);
  }
  const std::size_t errors = batch->errors.load();
  if (errors == 0) return Status::Ok();
  const Status why =
      ErrnoStatus(-batch->error.load(),
                  fmt::format("{} of {} blocks could not be looked up", errors, blocks.size()));
  const std::size_t asked = batch->stop_at_miss ? first_miss + 1 : blocks.size();
  if (errors >= asked) return why;
  log_.Warning(why.text());  // the caller takes them for absent
  return Status::Ok();
}

void Finder::WorkTogether(const std::shared_ptr<Batch>& batch, std::uint32_t helpers) {
  const std::size_t chunks = (batch->blocks.size() + kChunk - 1) / kChunk;
  std::vector<std::unique_ptr<Assistant>> assistants;
  std::vector<Job*> jobs;
  for (std::size_t i = 0; i < std::min<std::size_t>(helpers, chunks - 1); ++i) {
    jobs.push_back(assistants.emplace_back(std::make_unique<Assistant>(*this, batch)).get());
  }
  {
    const MutexLock lock(batch->mutex);
    batch->inside = jobs.size();
  }
  if (!pool_.Push(jobs, Lane::kLoad)) return;  // no thread to be had: the caller goes on alone
  while (WorkOnce(*batch)) {
  }
  std::size_t never_began = 0;
  for (const auto& assistant : assistants) never_began += pool_.Remove(*assistant) ? 1U : 0U;
  const MutexLock lock(batch->mutex);
  batch->inside -= never_began;
  while (batch->inside > 0) batch->left.Wait(batch->mutex);
}

}  // namespace ucmstore
