// SPDX-License-Identifier: Apache-2.0
//
// InTime: many pieces of work, given to the workers by somebody who must not wait for ever, such as
// a store that closes on a slow disk. What has not begun when the time is over is skipped; only
// what hangs half-way is left moving, and that is said. Not synchronised: for one thread at a time,
// beside the workers.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "task/thread_pool.h"

namespace ucmstore {

class InTime {
 public:
  using Piece = std::function<void(std::size_t)>;

  // Begins `work(i)` for each i below `count`, on several workers at once and in order. `work` must
  // not throw; it and all that it uses must live until Finish has returned true. Where no worker is
  // to be had, nothing begins.
  InTime(ThreadPool& pool, std::size_t count, Piece work);
  InTime(const InTime&) = delete;
  InTime& operator=(const InTime&) = delete;
  ~InTime();  // requires: Finish returned true

  // Waits until each piece is done, at most until `until`; gives those that have not begun by then
  // to `skip`, on this thread. True: nothing of it moves any more. False: a piece that had begun
  // still moved kGrace later; may be asked again.
  [[nodiscard]] bool Finish(TimePoint until, const Piece& skip);

  // For pieces that are slow but not stuck.
  static constexpr milliseconds kGrace{200};

 private:
  struct State;
  class Worker;

  ThreadPool& pool_;
  const std::shared_ptr<State> state_;
};

}  // namespace ucmstore
