// SPDX-License-Identifier: Apache-2.0
//
// Roots: all roots of a store, and which of them keeps a block. Each block has its home in the root
// of the highest score, made of the block's id and the root's own id (UCMSTORE), so neither the
// order of the list nor the paths matter, and one root more takes its share from each of the others
// and moves nothing else.
//
// A root that was dead when the store was opened has an id that nobody knows, so nobody can tell
// which blocks are its. Until it is back, the others share them: whatever the others own is found,
// what lies in the dead one is a miss, and dumps go on. Once it is back, its blocks are found
// again; what this store has put elsewhere meanwhile is still looked for there, if its home has it
// not.
//
// A namespace's folder that somebody removes under a running store is made again, as at open, when
// a block is to be written; or is taken from who has made it again, when blocks are looked for. It
// keeps its id. What was in it is lost: misses.
//
// RootSet is one moment's picture: immutable, and its roots stay open as long as it. Thread-safe
// after Open.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/result.h"
#include "store/posix/root.h"
#include "store/posix/root_slot.h"
#include "task/thread_pool.h"

namespace ucmstore {

class RootSet {
 public:
  struct Member {
    std::shared_ptr<Root> root;
    std::uint64_t seed = 0;
    bool late = false;  // was dead when the store was opened
  };
  explicit RootSet(std::vector<Member> members);  // at least one that is not late

  [[nodiscard]] const std::vector<Member>& members() const noexcept { return members_; }
  // Where a block belongs.
  [[nodiscard]] const std::shared_ptr<Root>& HomeOf(const BlockId& id) const noexcept {
    return members_[Choose(id, /*with_late=*/true)].root;
  }
  // Where it was put before its home had come back; null: nowhere else.
  [[nodiscard]] Root* FormerHomeOf(const BlockId& id) const noexcept;

 private:
  [[nodiscard]] std::size_t Choose(const BlockId& id, bool with_late) const noexcept;

  const std::vector<Member> members_;
  bool any_late_ = false;
};

class Roots {
 public:
  Roots(FileSystem& fs, ThreadPool& pool, const Clock& clock, Log& log) noexcept
      : fs_(fs), pool_(pool), clock_(clock), log_(log) {}

  // Opens each. Ok if one or more can be used, and none must not be. Called once, before all else.
  Status Open(std::vector<RootOptions> options);

  [[nodiscard]] std::shared_ptr<const RootSet> Now() const;
  // Takes the place of a root whose folder is gone, unless somebody has already. Not ok: in words,
  // an I/O error or no space. Waits for the disk, boundedly (Root::Open).
  [[nodiscard]] Status Renew(const Root& gone);
  // For who is about to use them: dead, removed and resting ones may be tried again, slow ones are
  // noticed. Never waits.
  void Tend() noexcept;
  // Calls `dead` for each that cannot be used, with the reason.
  void VisitDead(const std::function<void(const Status& why)>& dead) const;

  // Ends the tries. False: one still runs at `until`.
  [[nodiscard]] bool End(TimePoint until);

 private:
  // Takes a root into the picture. Not ok: it must not be used, and why.
  Status Join(std::shared_ptr<Root> root, bool late);
  // The same in the place of another one.
  Status Replace(const Root& gone, const std::shared_ptr<Root>& root);
  [[nodiscard]] Status CheckUnlike(const Root& root, const Root* except) const
      UCMSTORE_REQUIRES(mutex_);
  [[nodiscard]] bool IsInUse(const Root& root) const;
  [[nodiscard]] Status MakeAgain(const Root& gone);
  // On a worker: whether the folder of a slot's root is gone, and another one there.
  void LookAfter(const RootSlot& slot);
  // On a worker: whether a root that rests answers in time.
  void Probe(const Root& root);
  void LetHeal();

  static constexpr milliseconds kTendEvery{250};
  static constexpr milliseconds kRenewAfter{1'000};  // a try that has failed

  FileSystem& fs_;
  ThreadPool& pool_;
  const Clock& clock_;
  Log& log_;
  std::vector<std::unique_ptr<RootSlot>> slots_;
  std::atomic<TimePoint> next_tend_{TimePoint::min()};

  // One renewal at a time: whoever comes second finds it done, or failed just now.
  Mutex renewing_;
  const Root* failed_to_renew_ UCMSTORE_GUARDED_BY(renewing_) = nullptr;
  TimePoint failed_at_ UCMSTORE_GUARDED_BY(renewing_);
  Status failure_ UCMSTORE_GUARDED_BY(renewing_);

  mutable Mutex mutex_;
  std::shared_ptr<const RootSet> now_ UCMSTORE_GUARDED_BY(mutex_);
};

}  // namespace ucmstore
