// SPDX-License-Identifier: Apache-2.0
//
// RootSlot: one place in a store's list of roots. A root that was dead when the store was opened is
// tried again, by a worker, when the store is used, but not more than once in kRetryAfter. So a
// disk that comes back is used again, and one that hangs costs a worker and nobody's time. One that
// is in use is looked after in the same way, once in kLookAfter.
// Thread-safe after Open.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/result.h"
#include "store/posix/root.h"
#include "task/thread_pool.h"

namespace ucmstore {

class RootSlot final : public Job {
 public:
  // Called on a worker with a root that came back. Not ok: it must not be used, and why.
  using Accept = std::function<Status(std::shared_ptr<Root> root)>;

  RootSlot(FileSystem& fs, RootOptions options) : fs_(fs), options_(std::move(options)) {}

  // The first try. Called once, before all else.
  Result<std::shared_ptr<Root>> Open();
  // From now on it is tried again, and `look` is called on a worker while it is in use.
  void TendBy(ThreadPool& pool, const Clock& clock, Log& log, Accept accept,
              std::function<void()> look);

  [[nodiscard]] bool live() const noexcept { return live_.load(); }
  // It may be tried again, or looked after. Never waits.
  void Tend() noexcept;
  // Why there is none.
  [[nodiscard]] Status why() const;
  [[nodiscard]] const RootOptions& options() const noexcept { return options_; }

  // Ends the tries. False: one still runs at `until`.
  [[nodiscard]] bool End(TimePoint until);

  void Run() noexcept override;

  static constexpr milliseconds kRetryAfter{5'000};
  static constexpr milliseconds kLookAfter{1'000};

 private:
  Status Try();
  void Say(const Status& status);
  [[nodiscard]] TimePoint NextTry() const noexcept;

  FileSystem& fs_;
  const RootOptions options_;
  ThreadPool* pool_ = nullptr;
  const Clock* clock_ = nullptr;
  Log* log_ = nullptr;
  Accept accept_;
  std::function<void()> look_;
  std::atomic<TimePoint> next_try_{TimePoint::max()};  // for a look without the lock
  std::atomic<bool> live_{false};

  mutable Mutex mutex_;
  CondVar ended_;
  bool trying_ UCMSTORE_GUARDED_BY(mutex_) = false;
  bool closing_ UCMSTORE_GUARDED_BY(mutex_) = false;
  Status why_ UCMSTORE_GUARDED_BY(mutex_);
};

}  // namespace ucmstore
