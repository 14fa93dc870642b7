// SPDX-License-Identifier: Apache-2.0
//
// The way of a load: out of a slot, into a slot from below, or past the ring.
#include <algorithm>
#include <chrono>

#include "store/cache/cache_stage.h"

namespace ucmstore {
namespace {

// A failure that everybody who waits for the shard would get, too.
bool IsShared(Code code) noexcept {
  return code == Code::kNotFound || code == Code::kCorruption || code == Code::kIoError;
}

Status StatusOf(const ShardResult& result, const Status& first) {
  if (result.code == Code::kOk) return Status::Ok();
  if (result.code == first.code) return first;
  return Status::Error(result.code, CodeName(result.code), result.sys_errno);
}

}  // namespace

// Shards of one slot on their way in from below.
class CacheStage::Fill {
 public:
  Fill(CacheStage& owner, Pin its_pin, CacheTaskPtr its_task, Positions its_positions, Turn turn)
      : stage(owner),
        pin(std::move(its_pin)),
        task(std::move(its_task)),
        positions(std::move(its_positions)),
        results(positions.size()),
        turn_(std::move(turn)) {
    const BlockId block = task->shards()[positions.front()].block;
    segments_.reserve(positions.size());
    for (const std::uint32_t i : positions) {
      const std::uint32_t index = task->shards()[i].index;
      segments_.push_back(
          {.data = stage.ring().DataOf(pin, index), .size = owner.setup().shard_size});
      shards_.push_back(
          {.block = block, .segments = &segments_.back(), .segment_count = 1, .index = index});
    }
  }

  // No deadline: the slot shields the caller, and others may want the shard.
  [[nodiscard]] TaskDesc desc() {
    TaskDesc desc;
    desc.shards = shards_.data();
    desc.results = results.data();
    desc.shard_count = static_cast<std::uint32_t>(shards_.size());
    desc.priority = task->priority();
    desc.tenant = task->tenant;
    desc.on_done = [](void* ctx, TaskId below) {
      std::unique_ptr<Fill> self(static_cast<Fill*>(ctx));
      CacheStage& owner = self->stage;
      owner.EndFill(*self, below);
      self.reset();
      owner.Leave();
    };
    desc.on_done_ctx = this;
    return desc;
  }

  CacheStage& stage;
  Pin pin;
  CacheTaskPtr task;
  const Positions positions;
  std::vector<ShardResult> results;

 private:
  std::vector<Segment> segments_;
  std::vector<Shard> shards_;
  Turn turn_;
};

// Shards on their way between the caller's memory and the store below.
class CacheStage::Past {
 public:
  Past(CacheStage& owner, CacheTaskPtr its_task, Positions its_positions, Turn turn)
      : stage(owner),
        task(std::move(its_task)),
        positions(std::move(its_positions)),
        results(positions.size()),
        turn_(std::move(turn)) {
    for (const std::uint32_t i : positions) shards_.push_back(task->shards()[i]);
  }

  [[nodiscard]] TaskDesc desc() {
    TaskDesc desc;
    desc.shards = shards_.data();
    desc.results = results.data();
    desc.shard_count = static_cast<std::uint32_t>(shards_.size());
    desc.timeout_ms = task->TimeoutLeft();
    desc.priority = task->priority();
    desc.tenant = task->tenant;
    desc.on_done = [](void* ctx, TaskId below) {
      std::unique_ptr<Past> self(static_cast<Past*>(ctx));
      CacheStage& owner = self->stage;
      owner.EndPast(*self, below);
      self.reset();
      owner.Leave();
    };
    desc.on_done_ctx = this;
    return desc;
  }

  CacheStage& stage;
  CacheTaskPtr task;
  const Positions positions;
  std::vector<ShardResult> results;

 private:
  std::vector<Shard> shards_;
  Turn turn_;
};

// ---- out of a slot ------------------------------------------------------------------------------

Pin CacheStage::FindToLoad(const BlockId& block) {
  Pin pin = ring().Find(block);
  if (pin && !ring().WordOf(pin).complete() && ring().CompleteIfWhole(pin)) {
    write_back_->Add(pin.slot());  // whoever landed the last shard is gone
  }
  return pin;
}

bool CacheStage::LoadIfWhole(const CacheTaskPtr& task, const Positions& positions) {
  Pin pin = FindToLoad(task->shards()[positions.front()].block);
  if (!pin || !ring().WordOf(pin).complete()) return false;
  LoadFrom(std::move(pin), task, positions, Turn());
  return true;
}

void CacheStage::LoadRun(const CacheTaskPtr& task, const Positions& positions, Turn turn,
                         BelowAnswers& below, std::size_t k) {
  const BlockId block = task->shards()[positions.front()].block;
  Pin pin = FindToLoad(block);
  bool worth_a_slot = true;
  if (!pin) {
    // What is not below either must not cost a warm block its slot.
    worth_a_slot = below.Of(k) != BelowAnswers::Answer::kNotThere;
    pin = FindToLoad(block);  // it may have come meanwhile
  }
  if (pin && ring().WordOf(pin).complete()) {
    LoadFrom(std::move(pin), task, positions, Turn());
    return;
  }
  // Something may have to come from below.
  if (!turn) turn = TakeTurn(task, positions);
  if (!turn) return;
  if (!pin && worth_a_slot) {
    pin = ring().ClaimFor(block, Ring::Purpose::kFill).pin;
    if (!pin) Reap();
  }
  // A block that is being assembled is not visible; below there may be an older dump of it.
  if (!pin || ring().WordOf(pin).state() == SlotState::kAssembling) {
    pin.Release();
    GoPast(task, positions, std::move(turn));
    return;
  }
  LoadFrom(std::move(pin), task, positions, std::move(turn));
}

void CacheStage::LoadFrom(Pin pin, const CacheTaskPtr& task, const Positions& positions,
                          Turn turn) {
  Positions here;
  Positions missing;
  Positions moving;  // by others
  // From the first BeginShard on nothing may throw: nobody else would ever end that shard.
  for (Positions* each : {&here, &missing, &moving}) each->reserve(positions.size());
  for (const std::uint32_t i : positions) {
    const std::uint32_t shard = task->shards()[i].index;
    if (ring().ShardState(pin, shard) == kShardLanded) {
      here.push_back(i);
    } else if (turn && ring().BeginShard(pin, shard)) {
      missing.push_back(i);
    } else {
      moving.push_back(i);
    }
  }
  load_hit_shards_.Add(here.size());
  load_filled_shards_.Add(missing.size());
  load_joined_shards_.Add(moving.size());
  if (!missing.empty()) BeginFill(pin.Another(), task, missing, std::move(turn));
  if (!here.empty() && task->shards()[here.front()].segment_count > 0) {
    if (ring().WordOf(pin).chance() == 0) ring().Touch(pin);
    uses_->Used({&task->shards()[here.front()].block, 1}, &kInMemory);
  }
  for (const std::uint32_t i : here) Deliver(task, i, pin);
  for (const std::uint32_t i : moving) WaitForShard(task, i, pin);
}

// Until nobody is copying it in any more.
void CacheStage::WaitForShard(const CacheTaskPtr& task, std::uint32_t position, const Pin& pin) {
  const std::uint32_t shard = task->shards()[position].index;
  // Our own copies end, or what they wait for has a deadline of its own.
  const bool ours = ring().IsMine(ring().ShardState(pin, shard));
  // But a lease lasts as long as its holder likes, and he may be waiting for this very task.
  if (ours && attachment_->held_shards().Has(pin, shard)) {
    task->EndWaiting(position,
                     Status::Error(Code::kBusy,
                                   "this shard is reserved by a lease of this process: commit it "
                                   "there, or release the lease and dump it then"));
    return;
  }
  const TimePoint now = std::chrono::steady_clock::now();
  TimePoint give_up = now + kPatienceWithOthers;
  if (ours) give_up = task->kind() == TaskKind::kDump ? now + kPatienceWithOwn : TimePoint::max();
  ShardWait wait{.task = task,
                 .positions = {position},
                 .pin = pin.Another(),
                 .shard = shard,
                 .give_up = give_up};
  if (Status status = watch_->Add(wait); !status.ok()) EndAll(task, {position}, status);
}

void CacheStage::Deliver(const CacheTaskPtr& task, std::uint32_t position, const Pin& pin) {
  if (!task->BeginMove(position)) return;
  const Shard& shard = task->shards()[position];
  const std::uint32_t length = ring().LengthOf(pin, shard.index);
  if (length > setup().shard_size) {  // never written by this code
    task->EndMoved(position, Status::Error(Code::kCorruption, "the ring was overwritten"), 0);
    return;
  }
  ShardIo io(shard.index, {shard.segments, shard.segment_count});
  if (io.prefetch()) {
    io.Succeed(length);
  } else {
    io.Deliver({ring().DataOf(pin, shard.index), length});
  }
  task->EndMoved(position, io.status(), io.stored_bytes());
}

// ---- into a slot --------------------------------------------------------------------------------

CacheStage::Turn CacheStage::TakeTurn(const CacheTaskPtr& task, const Positions& positions) {
  const MutexLock lock(mutex_);
  if (turns_ < max_turns_) {
    ++turns_;
    return Turn(this);
  }
  if (!closing_.load()) want_turns_.emplace_back(task, positions);
  return {};
}

CacheStage::Turn CacheStage::TryTurn() {
  const MutexLock lock(mutex_);
  if (turns_ >= max_turns_) return {};
  ++turns_;
  return Turn(this);
}

void CacheStage::PassTurn() noexcept {
  for (;;) {
    std::pair<CacheTaskPtr, Positions> next;
    {
      const MutexLock lock(mutex_);
      if (want_turns_.empty()) {
        --turns_;
        return;
      }
      next = std::move(want_turns_.front());
      want_turns_.pop_front();
    }
    if (TryPush(next.first, next.second, true)) return;
    EndAll(next.first, next.second,
           Status::Error(Code::kLimit, "there is no worker, or no memory, to go on with it"));
  }
}

void CacheStage::BeginFill(Pin pin, const CacheTaskPtr& task, const Positions& positions,
                           Turn turn) noexcept {
  Status status;
  try {
    auto fill = std::make_unique<Fill>(*this, pin.Another(), task, positions, std::move(turn));
    const TaskDesc desc = fill->desc();
    TaskId id = 0;
    Enter();
    Fill* const sent = fill.release();  // its callback deletes it, maybe before Load returns
    status = below().Load(desc, &id);
    if (status.ok()) return;
    fill.reset(sent);
    fill.reset();
    Leave();
  } catch (const std::exception&) {
    status = Status::Error(Code::kLimit, "no memory to begin a load below");
  }
  for (const std::uint32_t i : positions) ring().AbandonShard(pin, task->shards()[i].index);
  EndAll(task, positions, status);
}

void CacheStage::EndFill(Fill& fill, TaskId below_id) {
  const Status first = below().Wait(below_id, 0);  // retires it; here it is seen as ended
  bool landed = false;
  for (std::size_t k = 0; k < fill.positions.size(); ++k) {
    const std::uint32_t shard = fill.task->shards()[fill.positions[k]].index;
    const ShardResult& result = fill.results[k];
    if (result.code == Code::kOk) {
      (void)ring().LandShard(fill.pin, shard, result.bytes);
      landed = true;
      continue;
    }
    const Status status = StatusOf(result, first);
    if (IsShared(result.code)) {
      for (const ShardWait& wait : watch_->Take(fill.pin, shard)) {
        EndAll(wait.task, wait.positions, status);
      }
    }
    ring().AbandonShard(fill.pin, shard);
  }
  for (std::size_t k = 0; k < fill.positions.size(); ++k) {
    if (fill.results[k].code == Code::kOk) Deliver(fill.task, fill.positions[k], fill.pin);
  }
  // A slot with nothing in it is of no use to anybody. It goes before the task ends: whoever dumps
  // the block next finds the way free.
  if (!landed && ring().IsBare(fill.pin)) ring().Discard(std::move(fill.pin));
  fill.pin.Release();
  for (std::size_t k = 0; k < fill.positions.size(); ++k) {
    if (fill.results[k].code == Code::kOk) continue;
    fill.task->EndWaiting(fill.positions[k], StatusOf(fill.results[k], first));
  }
}

// ---- past the ring ------------------------------------------------------------------------------

void CacheStage::GoPast(const CacheTaskPtr& task, const Positions& positions, Turn turn) {
  Positions moving;
  moving.reserve(positions.size());
  for (const std::uint32_t i : positions) {
    if (task->BeginMove(i)) moving.push_back(i);
  }
  if (moving.empty()) return;
  (task->kind() == TaskKind::kLoad ? load_past_shards_ : dump_past_shards_).Add(moving.size());
  Status status;
  try {
    auto past = std::make_unique<Past>(*this, task, moving, std::move(turn));
    const TaskDesc desc = past->desc();
    TaskId id = 0;
    Enter();
    Past* const sent = past.release();  // its callback deletes it, maybe before the call returns
    status = task->kind() == TaskKind::kLoad ? below().Load(desc, &id) : below().Dump(desc, &id);
    if (status.ok()) {
      task->AddBelow(id);
      // Stopped in between: whoever stopped it did not see it.
      if (task->stopped() != Code::kOk) (void)CancelBelow(id);
      return;
    }
    past.reset(sent);
    past.reset();
    Leave();
  } catch (const std::exception&) {
    status = Status::Error(Code::kLimit, "no memory to go past the ring");
  }
  for (const std::uint32_t i : moving) task->EndMoved(i, status, 0);
}

void CacheStage::EndPast(Past& past, TaskId below_id) {
  const Status first = below().Wait(below_id, 0);
  past.task->RemoveBelow(below_id);
  for (std::size_t k = 0; k < past.positions.size(); ++k) {
    const ShardResult& result = past.results[k];
    past.task->EndMoved(past.positions[k], StatusOf(result, first), result.bytes);
  }
}

}  // namespace ucmstore
