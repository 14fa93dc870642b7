// SPDX-License-Identifier: Apache-2.0
//
// The stage: opens the roots, and hands each call to the part that does it.
#include "store/posix/posix_stage.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "base/hex.h"
#include "base/mutex.h"
#include "store/posix/block_reader.h"
#include "store/posix/block_writer.h"
#include "store/posix/reaper.h"
#include "task/runtime.h"

namespace ucmstore {
namespace {

IoMode IoModeOf(std::string_view word) noexcept {
  if (word == "direct") return IoMode::kDirect;
  return word == "buffered" ? IoMode::kBuffered : IoMode::kAuto;
}

RootOptions OptionsOf(const StageSetup& setup, const std::string& path) {
  RootOptions options;
  options.path = path;
  options.label = setup.namespace_label;
  options.wanted.layout = {setup.shard_size, setup.shards_per_block};
  options.wanted.content = setup.content;
  options.wanted.prefix_digits = static_cast<std::uint32_t>(setup.Int("prefix_digits"));
  options.wanted.fingerprint = setup.fingerprint;
  options.wanted.namespace_text = setup.namespace_text;
  options.io = IoModeOf(setup.Text("io"));
  options.create_root = setup.Bool("create_root");
  options.durable = setup.Text("durability") == "data";
  options.modes = Modes::FromWord(setup.Text("mode"));
  return options;
}

Status CheckSetup(const StageSetup& setup) {
  const auto invalid = [](std::string_view text) {
    return Status::Error(Code::kInvalidArgument, text);
  };
  const BlockLayout layout{setup.shard_size, setup.shards_per_block};
  if (!layout.valid()) {
    return invalid(
        fmt::format("a block of {} shards of {} bytes is not possible in a file: at most "
                    "{} shards of {} bytes",
                    setup.shards_per_block, setup.shard_size, BlockLayout::kMaxShards,
                    BlockLayout::kMaxShardSize));
  }
  if (setup.content.empty() || setup.content.size() > kMaxContentSize) {
    return invalid(
        fmt::format("content '{}' must have 1 to {} characters", setup.content, kMaxContentSize));
  }
  std::vector<std::string> roots = setup.List("roots");
  if (roots.empty()) return invalid("roots: at least one folder must be given");
  if (roots.size() > 256) return invalid("roots: more than 256 folders");
  for (const std::string& root : roots) {
    if (root.empty()) return invalid("roots: an empty path");
  }
  std::ranges::sort(roots);
  const auto twice = std::ranges::adjacent_find(roots);
  if (twice != roots.end()) return invalid(fmt::format("roots: {} is given twice", *twice));
  if (setup.Int("low_mark") >= setup.Int("high_mark")) {
    return invalid(fmt::format("low_mark {} must be less than high_mark {}", setup.Int("low_mark"),
                               setup.Int("high_mark")));
  }
  return Status::Ok();
}

}  // namespace

// One root's dead writers, swept by a worker when it has nothing better to do.
class PosixStage::ReapJob final : public Job {
 public:
  ReapJob(std::shared_ptr<Root> root, PosixCounters& counters, Log& log)
      : root_(std::move(root)),
        counters_(counters),
        log_(log),
        census_(root_->fs(), root_->folder(), root_->local()) {}

  // A cheap look. True: there is something to do.
  [[nodiscard]] bool Look() {
    (void)census_.Take();
    return census_.found_dead();
  }
  void Run() noexcept override {
    try {
      Reap();
    } catch (...) {  // out of memory: the rest is for the next store that opens
    }
    const MutexLock lock(mutex_);
    running_ = false;
    ended_.NotifyAll();
  }
  [[nodiscard]] bool Start(ThreadPool& pool) {
    {
      const MutexLock lock(mutex_);
      running_ = true;
    }
    Job* const job = this;
    if (pool.Push({&job, 1}, Lane::kBackground)) return true;
    const MutexLock lock(mutex_);
    running_ = false;
    return false;
  }
  // Ends within one file's removal. False: that hangs.
  [[nodiscard]] bool End(ThreadPool& pool, TimePoint until) {
    stop_.store(true);
    const bool never_runs = pool.Remove(*this);
    const MutexLock lock(mutex_);
    if (never_runs) running_ = false;
    while (running_) {
      if (!ended_.WaitUntil(mutex_, until) && running_) return false;
    }
    return true;
  }

 private:
  void Reap() {
    const std::uint64_t removed = ReapDead(root_->fs(), root_->folder(), root_->prefix_digits(),
                                           census_, [this] { return stop_.load(); });
    counters_.reaped.Add(removed);
    if (removed == 0) return;
    log_.Info([&] {
      return fmt::format("{}: removed {} unfinished blocks of writers that are gone",
                         root_->PathOf(""), removed);
    });
  }

  const std::shared_ptr<Root> root_;
  PosixCounters& counters_;
  Log& log_;
  WriterCensus census_;
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  CondVar ended_;
  bool running_ UCMSTORE_GUARDED_BY(mutex_) = false;
};

PosixStage::PosixStage(FileSystem& fs) : TerminalStage("Posix"), fs_(fs) {}

PosixStage::~PosixStage() = default;

Status PosixStage::Open(const StageSetup& setup) {
  Status status = CheckSetup(setup);
  if (!status.ok()) return status;
  std::vector<RootOptions> options;
  const milliseconds rest_after(setup.Int("rest_after_ms"));
  for (const std::string& path : setup.List("roots")) {
    options.push_back(OptionsOf(setup, path));
    options.back().breaker = std::make_shared<Breaker>(runtime().clock(), rest_after);
    breakers_.push_back(options.back().breaker);
  }
  roots_.emplace(fs_, runtime().pool(), runtime().clock(), log());
  status = roots_->Open(std::move(options));
  if (!status.ok()) return status;
  footers_.emplace(static_cast<std::size_t>(setup.Int("footer_cache_entries")));
  status = OpenReclaim(setup);
  if (!status.ok()) return status;
  Touches* const touches = reclaim_ ? &reclaim_->touches() : nullptr;
  finder_.emplace(*roots_, runtime().pool(), counters_, log(), touches);
  prober_.emplace(static_cast<std::uint32_t>(setup.Int("lookup_threads")),
                  milliseconds(setup.Int("lookup_timeout_ms")), runtime().options().start_thread,
                  runtime().relief(), counters_, log(), touches);
  const std::string& network = setup.Text("network");
  network_ = network == "yes" ? Network::kYes : network == "no" ? Network::kNo : Network::kAuto;
  Announce();
  ReapInBackground();
  return Status::Ok();
}

// What an operator must know, said once.
void PosixStage::Announce() {
  roots_->VisitDead([this](const Status& why) {
    log().Error(
        fmt::format("{}; the store goes on without this root, and tries it again: what it keeps is "
                    "a miss until then",
                    why.text()));
  });
  const std::shared_ptr<const RootSet> roots = roots_->Now();  // for as long as the loop runs
  for (const RootSet::Member& each : roots->members()) {
    if (each.root->buffered_reason().empty()) continue;
    log().Warning(fmt::format("{}: no direct I/O here ({}); going through the page cache",
                              each.root->PathOf(""), each.root->buffered_reason()));
  }
  if (!reclaim_) {
    log().Warning("capacity is 0, which is no limit: what is dumped stays, until the disk is full");
  }
}

Status PosixStage::OpenReclaim(const StageSetup& setup) {
  const std::int64_t capacity = setup.Int("capacity");  // negative: auto
  if (capacity == 0) return Status::Ok();
  const Limits limits{
      .capacity_bytes = capacity < 0 ? Limits::kAuto : static_cast<std::uint64_t>(capacity),
      .high_mark = static_cast<std::uint32_t>(setup.Int("high_mark")),
      .low_mark = static_cast<std::uint32_t>(setup.Int("low_mark"))};
  reclaim_.emplace(Collector::Services{.fs = fs_,
                                       .pool = runtime().pool(),
                                       .clock = runtime().clock(),
                                       .log = log(),
                                       .counters = counters_},
                   setup.List("roots"), limits, Modes::FromWord(setup.Text("mode")),
                   milliseconds(setup.Int("touch_interval_ms")));
  return reclaim_->Open();
}

void PosixStage::ReapInBackground() {
  const std::shared_ptr<const RootSet> roots = roots_->Now();  // for as long as the loop runs
  for (const RootSet::Member& each : roots->members()) {
    auto job = std::make_unique<ReapJob>(each.root, counters_, log());
    if (job->Look() && job->Start(runtime().pool())) reaping_.push_back(std::move(job));
  }
}

std::shared_ptr<const RootSet> PosixStage::InUse() {
  roots_->Tend();
  return roots_->Now();
}

Status PosixStage::Find(std::span<const BlockId> blocks, std::uint32_t flags, std::uint8_t* found) {
  // Asked before a dump, of which it is said to touch nothing. But to dump what is there already is
  // a use of it: who computed the block again will want it again.
  return finder_->Find(blocks, flags & ~kNoTouch, TimePoint::max(), found);
}

Status PosixStage::FindUntil(std::span<const BlockId> blocks, std::uint32_t flags, TimePoint until,
                             std::uint8_t* found) {
  std::shared_ptr<const RootSet> roots = InUse();
  if (!IsRemote(*roots)) return finder_->Find(blocks, flags, until, found);
  return prober_->Find(std::move(roots), blocks, flags, until, found);
}

bool PosixStage::IsRemote(const RootSet& roots) const noexcept {
  if (network_ != Network::kAuto) return network_ == Network::kYes;
  return std::ranges::any_of(roots.members(),
                             [](const auto& member) { return !member.root->local(); });
}

void PosixStage::Read(const BlockId& block, std::span<ShardIo> shards) {
  const std::shared_ptr<const RootSet> roots = InUse();
  const std::shared_ptr<Root>& home = roots->HomeOf(block);
  Root* root = home.get();
  Root* const former = roots->FormerHomeOf(block);
  if (former != nullptr && Probe(*root, block) <= 0 && Probe(*former, block) > 0) root = former;
  if (root->breaker().Refuses()) {
    const Status why = root->Resting();
    for (ShardIo& shard : shards) shard.Fail(why);
    return;
  }
  const Breaker::Use use(root->breaker(), Breaker::Kind::kRead);
  BlockReader reader(*root, *footers_, counters_, log());
  reader.Read(block, shards);
  if (reclaim_ && root == home.get() && reader.mtime_ns()) {
    reclaim_->touches().Used(home, block, *reader.mtime_ns());
  }
}

Result<std::unique_ptr<BlockWriter>> PosixStage::Create(const BlockId& block) {
  const auto renew = [this, block](const Root& gone) -> Result<std::shared_ptr<Root>> {
    Status renewed = roots_->Renew(gone);
    if (!renewed.ok()) return std::unexpected(renewed);
    return roots_->Now()->HomeOf(block);  // by the new root's id, if it has another
  };
  const std::shared_ptr<Root> home = InUse()->HomeOf(block);
  if (home->breaker().Refuses()) return std::unexpected(home->Resting());
  return std::make_unique<PosixWriter>(home, block, counters_, log(), renew,
                                       reclaim_ ? &*reclaim_ : nullptr);
}

bool PosixStage::Shut(TimePoint until) {
  for (const auto& job : reaping_) {
    if (!job->End(runtime().pool(), until)) return false;
  }
  reaping_.clear();
  if (prober_ && !prober_->End(until)) return false;  // its probes note touches
  if (reclaim_ && !reclaim_->End(until)) return false;
  if (!roots_ || roots_->Now() == nullptr) return true;  // opening failed
  if (!roots_->End(until)) return false;
  // By the workers, since the disk may hang. A mark that stays is reaped as its writer's files are.
  if (!unmarking_) {
    const std::shared_ptr<const RootSet> roots = roots_->Now();  // for as long as the loop runs
    for (const RootSet::Member& each : roots->members()) {
      if (each.root->HasWriter()) writing_.push_back(each.root);
    }
    unmarking_.emplace(runtime().pool(), writing_.size(),
                       [this](std::size_t i) { writing_[i]->RemoveWriter(); });
  }
  return unmarking_->Finish(until, [this](std::size_t i) { writing_[i]->LeaveWriter(); });
}

void PosixStage::VisitOwnMetrics(const std::function<void(const MetricV1&)>& metric) {
  struct Named {
    const char* name;
    const Counter& counter;
  };
  const std::array<Named, 18> all{{
      {"direct_bytes", counters_.direct_bytes},
      {"bounced_bytes", counters_.bounced_bytes},
      {"buffered_bytes", counters_.buffered_bytes},
      {"direct_fallbacks", counters_.direct_fallbacks},
      {"footer_cache_hits", counters_.footer_hits},
      {"footer_cache_misses", counters_.footer_misses},
      {"rereads", counters_.rereads},
      {"set_aside_blocks", counters_.set_aside},
      {"put_back_blocks", counters_.put_back},
      {"reaped_files", counters_.reaped},
      {"leftover_files", counters_.leftovers},
      {"lookup_timeouts", counters_.lookup_timeouts},
      {"reclaimed_blocks", counters_.reclaimed_blocks},
      {"reclaimed_bytes", counters_.reclaimed_bytes},
      {"reclaim_cycles", counters_.reclaim_cycles},
      {"reclaim_failures", counters_.reclaim_failures},
      {"reclaim_stalls", counters_.reclaim_stalls},
      {"touched_blocks", counters_.touched_blocks},
  }};
  if (reclaim_) reclaim_->LookForStalls();
  for (const Named& one : all) {
    metric({.name = one.name,
            .kind = MetricKind::kCounter,
            .reserved = 0,
            .value = static_cast<double>(one.counter.Get())});
  }
  double rests = 0;
  double refusals = 0;
  double resting = 0;
  for (const auto& breaker : breakers_) {
    rests += static_cast<double>(breaker->rests());
    refusals += static_cast<double>(breaker->refusals());
    resting += breaker->resting() ? 1 : 0;
  }
  const auto one = [&](const char* name, MetricKind kind, double value) {
    metric({.name = name, .kind = kind, .reserved = 0, .value = value});
  };
  one("rests", MetricKind::kCounter, rests);
  one("refused_by_rest", MetricKind::kCounter, refusals);
  one("resting_roots", MetricKind::kGauge, resting);
  one("used_bytes", MetricKind::kGauge, static_cast<double>(reclaim_ ? reclaim_->used_bytes() : 0));
  one("capacity_bytes", MetricKind::kGauge,
      static_cast<double>(reclaim_ ? reclaim_->capacity_bytes() : 0));
}

std::string PosixStage::Identity() {
  std::vector<std::string> ids;
  const std::shared_ptr<const RootSet> roots = roots_->Now();  // for as long as the loop runs
  for (const RootSet::Member& each : roots->members()) {
    ids.push_back(ToHex(each.root->file().root_id));
  }
  std::ranges::sort(ids);
  roots_->VisitDead([&ids](const Status& /*why*/) { ids.emplace_back("dead-root"); });
  std::string identity = "Posix";
  for (const std::string& id : ids) identity.append(" ").append(id);
  return identity;
}

}  // namespace ucmstore
