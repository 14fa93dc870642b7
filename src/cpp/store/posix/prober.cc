// SPDX-License-Identifier: Apache-2.0
//
// Asking in order, on many threads, and leaving in time.
#include "store/posix/prober.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <climits>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "store/posix/finder.h"
#include "ucmstore/store_v1.h"

namespace ucmstore {
namespace {

constexpr int kNotYet = INT_MAX;

TimePoint RealNow() noexcept { return std::chrono::steady_clock::now(); }

}  // namespace

// One Find in progress. Lives until the caller and every probe that began have let go of it, and
// has a copy of all that the probes touch.
struct Prober::Batch {
  Batch(std::shared_ptr<const RootSet> in, std::span<const BlockId> asked, bool stop,
        Touches* touched);
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch();

  const std::shared_ptr<const RootSet> roots;
  const std::vector<BlockId> blocks;
  const bool stop_at_miss;
  Touches* const touches;
  std::vector<std::unique_ptr<Probe>> probes;  // the caller's alone

  Mutex mutex;
  CondVar changed;
  std::vector<int> answers UCMSTORE_GUARDED_BY(mutex);  // of FindBlock, or kNotYet
  std::size_t next UCMSTORE_GUARDED_BY(mutex) = 0;
  std::size_t frontier UCMSTORE_GUARDED_BY(mutex) = 0;  // all before it are answered
  std::size_t answered UCMSTORE_GUARDED_BY(mutex) = 0;
  bool gap UCMSTORE_GUARDED_BY(mutex) = false;   // somewhere; what is behind it need not be asked
  bool over UCMSTORE_GUARDED_BY(mutex) = false;  // all is known that is wanted, or nobody waits

  [[nodiscard]] std::optional<std::size_t> Take() {
    const MutexLock lock(mutex);
    if (over || next == blocks.size() || (stop_at_miss && gap)) return std::nullopt;
    return next++;
  }
  void Answer(std::size_t i, int answer) {
    const MutexLock lock(mutex);
    if (over) return;
    answers[i] = answer;
    ++answered;
    gap = gap || answer <= 0;
    while (frontier < blocks.size() && answers[frontier] != kNotYet) {
      const bool is_gap = answers[frontier++] <= 0;
      if (is_gap && stop_at_miss) over = true;
      if (over) break;
    }
    if (answered == blocks.size()) over = true;
    if (over) changed.NotifyAll();
  }
  // What the caller is told, besides the answers.
  [[nodiscard]] Status Report(milliseconds waited, Log& log) const UCMSTORE_REQUIRES(mutex);
  void Work() {
    while (const auto i = Take()) Answer(*i, FindBlock(*roots, blocks[*i], touches));
  }
};

class Prober::Probe final : public Job {
 public:
  // Last before it is queued: the batch owns its probes, so until it runs each keeps the other.
  void Give(std::shared_ptr<Batch> batch) noexcept { batch_ = std::move(batch); }
  void Run() noexcept override {
    const std::shared_ptr<Batch> batch = std::move(batch_);  // its end may be the probe's
    batch->Work();
  }
  // It will never run.
  void Drop() noexcept { batch_.reset(); }

 private:
  std::shared_ptr<Batch> batch_;
};

Prober::Batch::Batch(std::shared_ptr<const RootSet> in, std::span<const BlockId> asked, bool stop,
                     Touches* touched)
    : roots(std::move(in)),
      blocks(asked.begin(), asked.end()),
      stop_at_miss(stop),
      touches(touched),
      answers(blocks.size(), kNotYet) {}

Prober::Batch::~Batch() = default;

Status Prober::Start(const std::shared_ptr<Batch>& batch) {
  std::vector<Job*> jobs;
  const std::size_t count = std::min<std::size_t>(pool_.max_threads(), batch->blocks.size());
  jobs.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    jobs.push_back(batch->probes.emplace_back(std::make_unique<Probe>()).get());
  }
  for (const auto& probe : batch->probes) probe->Give(batch);
  return pool_.TryPush(jobs, Lane::kLoad);
}

Status Prober::Find(std::shared_ptr<const RootSet> roots, std::span<const BlockId> blocks,
                    std::uint32_t flags, TimePoint until, std::uint8_t* found) {
  if (blocks.empty()) return Status::Ok();
  // All threads may hang in there, so that none could say it.
  if (std::ranges::all_of(roots->members(),
                          [](const auto& member) { return member.root->breaker().Refuses(); })) {
    return Status::Ok();
  }
  const TimePoint begun = RealNow();
  if (until == TimePoint::max()) until = begun + own_bound_;
  const auto batch = std::make_shared<Batch>(std::move(roots), blocks, (flags & kStopAtMiss) != 0,
                                             (flags & kNoTouch) != 0 ? nullptr : touches_);
  if (Status started = Start(batch); !started.ok()) {
    for (const auto& probe : batch->probes) probe->Drop();
    return started;
  }
  {
    const MutexLock lock(batch->mutex);
    while (!batch->over && RealNow() < until) (void)batch->changed.WaitUntil(batch->mutex, until);
    if (!batch->over) counters_.lookup_timeouts.Add();
    batch->over = true;  // from here on nothing in it changes
  }
  // Those that still wait for a thread must not pile up behind one that hangs.
  for (const auto& probe : batch->probes) {
    if (pool_.Remove(*probe)) probe->Drop();
  }
  const MutexLock lock(batch->mutex);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (batch->stop_at_miss && i >= batch->frontier) break;
    if (batch->answers[i] != kNotYet && batch->answers[i] > 0) found[i] = kBelow;
  }
  return batch->Report(std::chrono::duration_cast<milliseconds>(RealNow() - begun), log_);
}

Status Prober::Batch::Report(milliseconds waited, Log& log) const {
  const std::size_t useful = stop_at_miss ? frontier : answered;
  if (useful == 0) {
    return ErrorInWords(Code::kTimeout, "no block could be looked up in time", [&] {
      return fmt::format(
          "{}: the file system did not tell in {} ms whether even one of {} blocks "
          "is there",
          roots->HomeOf(blocks[0])->PathOf(""), waited.count(), blocks.size());
    });
  }
  std::size_t failed = 0;
  int error = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (answers[i] >= 0 || (stop_at_miss && i >= frontier)) continue;
    ++failed;
    error = answers[i];
  }
  if (failed == 0) return Status::Ok();
  Status why = ErrnoStatus(
      -error, fmt::format("{} of {} blocks could not be looked up", failed, blocks.size()));
  if (failed >= useful) return why;
  log.Warning(why.text());  // the caller takes them for absent
  return Status::Ok();
}

bool Prober::End(TimePoint until) {
  const auto left = std::chrono::duration_cast<milliseconds>(until - RealNow());
  return pool_.Stop(std::max(left, milliseconds(0)));
}

}  // namespace ucmstore
