// SPDX-License-Identifier: Apache-2.0
//
// The way of a dirty block to the store below, again and again if it must be.
#include "store/cache/write_back.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>

#include "base/hex.h"
#include "store/cache/cache_stage.h"

namespace ucmstore {
namespace {

TimePoint Now() { return std::chrono::steady_clock::now(); }

}  // namespace

// One dump below. Deletes itself when the store below is through with it.
class WriteBack::Move {
 public:
  Move(WriteBack& owner, std::uint32_t slot, const BlockId& block) : owner_(owner), slot_(slot) {
    const RingMemory& memory = owner.ring_.memory();
    segments_.reserve(memory.shards());
    for (std::uint32_t i = 0; i < memory.shards(); ++i) {
      segments_.push_back({.data = memory.DataOf(slot, i),
                           .size = memory.LengthOf(slot, i).load(std::memory_order_relaxed)});
      bytes_ += segments_.back().size;
    }
    for (std::uint32_t i = 0; i < memory.shards(); ++i) {
      shards_.push_back(
          {.block = block, .segments = &segments_[i], .segment_count = 1, .index = i});
    }
  }

  [[nodiscard]] TaskDesc desc() {
    TaskDesc desc;
    desc.shards = shards_.data();
    desc.shard_count = static_cast<std::uint32_t>(shards_.size());
    desc.on_done = [](void* ctx, TaskId below) { static_cast<Move*>(ctx)->Done(below); };
    desc.on_done_ctx = this;
    return desc;
  }

 private:
  void Done(TaskId below) {
    const std::unique_ptr<Move> self(this);
    const Status status = owner_.stage_.below().Wait(below, 0);  // retires it
    if (status.ok()) owner_.bytes_.Add(bytes_);
    CacheStage& stage = owner_.stage_;
    try {
      owner_.End(slot_, status);
    } catch (const std::exception&) {
      // Out of memory for another try: the slot stays dirty, and Close looks for those.
    }
    stage.Leave();
  }

  WriteBack& owner_;
  const std::uint32_t slot_;
  std::uint64_t bytes_ = 0;
  std::vector<Segment> segments_;
  std::vector<Shard> shards_;
};

void WriteBack::Follow(std::uint32_t slot, const CacheTaskPtr& task,
                       std::vector<std::uint32_t> positions) {
  const MutexLock lock(mutex_);
  entries_[slot].followers.push_back({.task = task, .positions = std::move(positions)});
}

void WriteBack::Note(std::uint32_t slot) {
  const MutexLock lock(mutex_);
  const bool known = entries_.contains(slot);
  Entry& entry = entries_[slot];
  if (known && (entry.moving || entry.timer != 0 || entry.queued)) return;
  entry.generation = ring_.WordAt(slot).generation();
  Queue(slot, entry);
  starved_ = false;
}

void WriteBack::Nudge() {
  {
    const MutexLock lock(mutex_);
    starved_ = false;
  }
  Pump();
}

void WriteBack::Pump() {
  for (;;) {
    std::uint32_t slot = 0;
    {
      const MutexLock lock(mutex_);
      if (pumping_ || stopped_ || starved_ || ready_.empty()) return;
      if (in_flight_ >= limits_.in_flight) return;
      slot = ready_.front();
      ready_.pop_front();
      Entry& entry = entries_[slot];
      entry.queued = false;
      entry.moving = true;
      ++in_flight_;
      pumping_ = true;
    }
    const auto block = ring_.BeginFlush(slot);
    if (block) {
      Begin(slot, *block);
    } else {
      Lost(slot);
    }
    const MutexLock lock(mutex_);
    pumping_ = false;
  }
}

void WriteBack::Begin(std::uint32_t slot, const BlockId& block) {
  Status status;
  Move* move = nullptr;
  TaskId below = 0;
  stage_.Enter();
  try {
    move = std::make_unique<Move>(*this, slot, block).release();  // deletes itself
    status = stage_.below().Dump(move->desc(), &below);
  } catch (const std::exception& error) {
    status = Status::Error(Code::kLimit, error.what());
  }
  if (!status.ok()) {
    const std::unique_ptr<Move> unused(move);
    End(slot, status);
    stage_.Leave();
    return;
  }
  bool cancel = false;
  {
    const MutexLock lock(mutex_);
    const auto entry = entries_.find(slot);
    if (entry != entries_.end() && entry->second.moving) entry->second.below = below;
    cancel = stopped_;
  }
  if (cancel) (void)stage_.CancelBelow(below);  // it may have ended
}

void WriteBack::End(std::uint32_t slot, const Status& status) {
  std::vector<Follower> followers;
  Status told = status;
  bool again = false;
  {
    const MutexLock lock(mutex_);
    Entry& entry = entries_[slot];
    entry.moving = false;
    entry.below = 0;
    --in_flight_;
    if (status.code == Code::kBusy || status.code == Code::kLimit) {
      // A full table below, no thread, no descriptor: no fault of the block, or of the medium.
      again = !stopped_;
      if (entry.failures == 0) entry.failures = 1;
    } else if (!status.ok()) {
      failures_.Add();
      if (entry.failures++ == 0) entry.first_failure = Now();
      again = !stopped_ && Now() - entry.first_failure < limits_.give_up;
    }
    // Kept as dirty when the store closes: somebody else may have more luck.
    ring_.EndFlush(slot, status.ok()           ? Ring::Flush::kArrived
                         : (again || stopped_) ? Ring::Flush::kFailed
                                               : Ring::Flush::kForsaken);
    if (again) {
      Retry(slot, entry);
    } else {
      followers = std::move(entry.followers);
      entries_.erase(slot);
    }
    if (stopped_ && !status.ok()) {
      told = Status::Error(Code::kCancelled, "closed before the block was written back");
    } else if (status.ok()) {
      blocks_.Add();
    } else if (!status.ok() && !again) {
      lost_.Add();
    }
  }
  if (!status.ok() && told.code == Code::kCancelled) ring_.Disown(slot);
  if (!status.ok() && !again && told.code != Code::kCancelled) {
    stage_.log().Error(
        fmt::format("a block could not be written back and will be lost: {}", status.text()));
  }
  if (!again) Tell(followers, told);
  {
    const MutexLock lock(mutex_);
    changed_.NotifyAll();
  }
  Pump();
}

// Somebody else has the block in hand: he may yet fail, be closed, or die.
void WriteBack::Lost(std::uint32_t slot) {
  const SlotWord word = ring_.WordAt(slot);
  std::vector<Follower> followers;
  {
    const MutexLock lock(mutex_);
    Entry& entry = entries_[slot];
    entry.moving = false;
    --in_flight_;
    const bool not_below_yet =
        word.generation() == entry.generation && word.state() >= SlotState::kDirty;
    if (not_below_yet && !stopped_) {
      Pause(slot, entry, limits_.first_pause);
    } else {
      followers = std::move(entry.followers);
      entries_.erase(slot);
    }
    changed_.NotifyAll();
  }
  Tell(followers, Status::Ok());
}

void WriteBack::Retry(std::uint32_t slot, Entry& entry) {
  const auto doubled =
      limits_.first_pause * (1LL << std::min<std::uint32_t>(entry.failures - 1, 20));
  Pause(slot, entry, std::min<milliseconds>(limits_.longest_pause, doubled));
}

void WriteBack::Pause(std::uint32_t slot, Entry& entry, milliseconds pause) {
  entry.timer = stage_.runtime().timer().Schedule(Now() + pause, [this, slot] {
    {
      const MutexLock lock(mutex_);
      const auto found = entries_.find(slot);
      if (found == entries_.end() || stopped_) return;
      found->second.timer = 0;
      Queue(slot, found->second);
    }
    Pump();
  });
  if (entry.timer != 0) return;
  Queue(slot, entry);
  starved_ = true;
}

void WriteBack::Queue(std::uint32_t slot, Entry& entry) {
  ready_.push_back(slot);
  entry.queued = true;
}

void WriteBack::Tell(std::vector<Follower>& followers, const Status& status) {
  for (Follower& follower : followers) {
    for (const std::uint32_t i : follower.positions) {
      const Shard& shard = follower.task->shards()[i];
      const auto bytes = TotalBytes({shard.segments, shard.segment_count});
      follower.task->EndWaiting(i, status, status.ok() ? static_cast<std::uint32_t>(bytes) : 0);
    }
  }
}

bool WriteBack::Drain(TimePoint until) {
  for (;;) {
    Nudge();
    const MutexLock lock(mutex_);
    if (entries_.empty()) return true;
    const TimePoint now = Now();
    if (now >= until) return false;
    (void)changed_.WaitUntil(mutex_, std::min(until, now + limits_.first_pause));
  }
}

void WriteBack::Stop() {
  std::vector<TaskId> below;
  std::vector<Timer::EntryId> timers;
  std::vector<Follower> followers;
  std::vector<std::uint32_t> left;
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    ready_.clear();
    for (auto& [slot, entry] : entries_) {
      if (entry.below != 0) below.push_back(entry.below);
      if (entry.timer != 0) timers.push_back(entry.timer);
      std::ranges::move(entry.followers, std::back_inserter(followers));
      entry.followers.clear();
      entry.queued = false;
    }
    for (const auto& [slot, entry] : entries_) {
      if (!entry.moving) left.push_back(slot);
    }
    std::erase_if(entries_, [](const auto& entry) { return !entry.second.moving; });
    changed_.NotifyAll();
  }
  for (const Timer::EntryId timer : timers) (void)stage_.runtime().timer().Cancel(timer);
  for (const TaskId task : below) (void)stage_.CancelBelow(task);
  Tell(followers, Status::Error(Code::kCancelled, "closed before the block was written back"));
  for (const std::uint32_t slot : left) ring_.Disown(slot);
}

std::size_t WriteBack::Waiting() const {
  const MutexLock lock(mutex_);
  return entries_.size() - in_flight_;
}

std::uint32_t WriteBack::InFlight() const {
  const MutexLock lock(mutex_);
  return in_flight_;
}

void WriteBack::VisitMetrics(const MetricVisitor& metric) const {
  Visit("write_back_blocks", blocks_, metric);
  Visit("write_back_bytes", bytes_, metric);
  Visit("write_back_failures", failures_, metric);
  Visit("write_back_lost_blocks", lost_, metric);
  metric("write_back_waiting_blocks", MetricKind::kGauge, static_cast<double>(Waiting()));
  metric("write_backs_in_flight", MetricKind::kGauge, InFlight());
}

}  // namespace ucmstore
