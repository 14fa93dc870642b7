// SPDX-License-Identifier: Apache-2.0
//
// Runtime: what the stages of one open store share: worker threads, the timer, the clock, the log.
// Made by the host, handed to each stage through SetupV1::runtime. A stage built with another SDK
// version, or opened by a host without one, makes its own (Runtime::FromSetup). Thread-safe.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/log.h"
#include "task/thread_pool.h"
#include "task/thread_starter.h"
#include "task/timer.h"
#include "ucmstore/plugin_v1.h"

namespace ucmstore {

struct RuntimeOptions {
  std::uint32_t workers = 16;       // threads that move bytes, started when first needed
  std::uint32_t max_tasks = 16384;  // unretired tasks of one stage; one more is kBusy
  std::uint32_t max_incomplete_blocks = 4096;
  milliseconds incomplete_age{600'000};  // an incomplete block untouched so long is aborted
  LogSink* log_sink = nullptr;           // must outlive the runtime
  const Clock* clock = nullptr;          // null: the real one
  ThreadStarter start_thread = {};       // empty: std::thread
  milliseconds relief_after{1'000};      // see ThreadPool
};

class Runtime {
 public:
  explicit Runtime(const RuntimeOptions& options);
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime();

  // The host's runtime if `setup` carries one of this very SDK version, else null.
  [[nodiscard]] static Runtime* FromSetup(const SetupV1& setup) noexcept;

  [[nodiscard]] const RuntimeOptions& options() const noexcept { return options_; }
  [[nodiscard]] ThreadPool& pool() noexcept { return pool_; }
  [[nodiscard]] Timer& timer() noexcept { return timer_; }
  // For pools beside the runtime's own.
  [[nodiscard]] Relief relief() noexcept { return {&timer_, options_.relief_after}; }
  [[nodiscard]] const Clock& clock() const noexcept { return *clock_; }
  [[nodiscard]] LogSink* log_sink() const noexcept { return options_.log_sink; }

  // Stops the threads. False: some still moved after `timeout_ms`; then the runtime must be left
  // alone for ever, with all that they use.
  [[nodiscard]] bool Shutdown(std::uint32_t timeout_ms) noexcept;

 private:
  // Read by FromSetup before anything else is trusted, so these two stay first in every version,
  // and the class has no virtual function.
  [[maybe_unused]] std::uint64_t magic_;
  std::uint64_t sdk_version_;
  RuntimeOptions options_;
  Clock real_clock_;
  const Clock* clock_;
  Timer timer_;
  ThreadPool pool_;
};

}  // namespace ucmstore
