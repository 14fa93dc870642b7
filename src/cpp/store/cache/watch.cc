// SPDX-License-Identifier: Apache-2.0
//
// The watch's thread.
#include "store/cache/watch.h"

#include <algorithm>
#include <chrono>

#include "task/thread_starter.h"

namespace ucmstore {
namespace {

TimePoint Now() { return std::chrono::steady_clock::now(); }

// A sleeper looks up now and then, though nothing was announced: whoever was to announce it may
// have died in between.
constexpr milliseconds kLongestSleep{100};
// So many of those that wait for a slot look for one when something has changed.
constexpr std::size_t kTriesForASlot = 16;

}  // namespace

bool Watch::IsOver(const Pin& pin, std::uint32_t shard) const noexcept {
  const std::uint8_t state = ring_.ShardState(pin, shard);
  return state == kShardEmpty || state == kShardLanded;
}

Status Watch::Add(ShardWait& wait) {
  const MutexLock lock(mutex_);
  if (stopping_) return Status::Error(Code::kCancelled, "the store is being closed");
  if (!running_) {
    if (const int error = StartThread(starter_, [this] { Work(); }, &thread_); error != 0) {
      return NoThreadStatus("thread to wait for others", error);
    }
    running_ = true;
  }
  waits_.push_back(std::move(wait));
  // The thread sleeps in the ring, if it has other waits; nobody else need be woken, but this
  // wait's time may come first, or what it waits for may have happened.
  ring_.Announce();
  changed_.NotifyAll();
  return Status::Ok();
}

std::list<ShardWait> Watch::Take(const Pin& pin, std::uint32_t shard) {
  std::list<ShardWait> taken;
  const MutexLock lock(mutex_);
  for (auto wait = waits_.begin(); wait != waits_.end();) {
    const auto next = std::next(wait);
    if (wait->pin && wait->pin.slot() == pin.slot() && wait->shard == shard) {
      taken.splice(taken.end(), waits_, wait);
    }
    wait = next;
  }
  return taken;
}

// Takes out the waits that are over, or given up. `woken`: the ring has changed since those for a
// slot last tried. Gives the time until which the others may sleep.
TimePoint Watch::TakeDone(bool woken, std::list<ShardWait>* over, std::list<ShardWait>* given_up) {
  const TimePoint now = Now();
  TimePoint until = now + kLongestSleep;
  std::size_t tries = 0;
  for (auto wait = waits_.begin(); wait != waits_.end();) {
    const auto next = std::next(wait);
    const bool ended = std::ranges::none_of(wait->positions,
                                            [&](std::uint32_t i) { return wait->task->Waits(i); });
    bool is_over = wait->pin && IsOver(wait->pin, wait->shard);
    // Ours failed, and another process is at it now: then there is a limit to it.
    if (wait->pin && !is_over && wait->give_up == TimePoint::max() &&
        !ring_.IsMine(ring_.ShardState(wait->pin, wait->shard))) {
      wait->give_up = now + kPatienceWithOthers;
    }
    if (!wait->pin && woken && tries < kTriesForASlot) {
      is_over = true;
      ++tries;
    }
    if (ended) {
      waits_.erase(wait);
    } else if (is_over) {
      over->splice(over->end(), waits_, wait);
    } else if (now >= wait->give_up) {
      given_up->splice(given_up->end(), waits_, wait);
    } else {
      until = std::min(until, wait->give_up);
    }
    wait = next;
  }
  return until;
}

void Watch::Work() {
  bool woken = false;
  for (;;) {
    std::list<ShardWait> over;
    std::list<ShardWait> given_up;
    std::uint32_t number = 0;
    TimePoint until;
    {
      const MutexLock lock(mutex_);
      while (waits_.empty() && !stopping_) changed_.Wait(mutex_);
      if (stopping_) return;
      number = ring_.BeginWatch();
      until = TakeDone(woken, &over, &given_up);
    }
    woken = over.empty() && given_up.empty();
    if (woken) ring_.Sleep(number, until);
    ring_.EndWatch();
    for (ShardWait& wait : over) callbacks_.over(std::move(wait));
    for (ShardWait& wait : given_up) callbacks_.given_up(std::move(wait));
  }
}

void Watch::Stop() {
  std::thread thread;
  std::list<ShardWait> dropped;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    dropped.swap(waits_);
    thread.swap(thread_);
    ring_.Announce();
    changed_.NotifyAll();
  }
  if (thread.joinable()) thread.join();
}

std::size_t Watch::size() const {
  const MutexLock lock(mutex_);
  return waits_.size();
}

}  // namespace ucmstore
