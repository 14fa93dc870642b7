// SPDX-License-Identifier: Apache-2.0
//
// Log: where a stage says what nobody else will report. An error is returned, and logged at most
// once, by whoever drops it. The sink is the host's (spdlog to stderr, or an embedder's own); the
// front is rate-limited, each level by itself, so that a broken disk does not write a gigabyte of
// log and chatter does not crowd out errors. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace ucmstore {

enum class LogLevel : std::uint32_t { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void Write(LogLevel level, std::string_view text) noexcept = 0;
};

// One stage's front to the sink. Lines begin with the stage's name.
class Log {
 public:
  // A null sink drops every line. The sink and the clock (null: the real one) must outlive the log.
  Log(LogSink* sink, std::string stage, const Clock* clock = nullptr);
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  ~Log();  // says what was dropped since the last line

  void Debug(std::string_view text) noexcept { Write(LogLevel::kDebug, text); }
  void Info(std::string_view text) noexcept { Write(LogLevel::kInfo, text); }
  void Warning(std::string_view text) noexcept { Write(LogLevel::kWarning, text); }
  void Error(std::string_view text) noexcept { Write(LogLevel::kError, text); }

  // The same for words that have to be made, by a function that gives a string: it is called only
  // if the line is let through, and a line that there is no memory for is dropped. So a line can be
  // written where nothing may throw: destructors, jobs of the workers, whatever is noexcept.
  template <std::invocable Words>
  void Debug(Words&& words) noexcept {
    WriteMade(LogLevel::kDebug, words);
  }
  template <std::invocable Words>
  void Info(Words&& words) noexcept {
    WriteMade(LogLevel::kInfo, words);
  }
  template <std::invocable Words>
  void Warning(Words&& words) noexcept {
    WriteMade(LogLevel::kWarning, words);
  }
  template <std::invocable Words>
  void Error(Words&& words) noexcept {
    WriteMade(LogLevel::kError, words);
  }

  // At most so many lines of a level in each window; the rest is counted, and the count is said
  // with that level's next line that is let through.
  static constexpr std::uint32_t kLinesPerWindow = 20;
  static constexpr milliseconds kWindow{10'000};

 private:
  struct Budget {
    std::atomic<std::uint64_t> window_and_lines{0};  // number of the window << 32 | lines in it
    std::atomic<std::uint64_t> dropped{0};           // not yet said
  };

  template <typename Words>
  void WriteMade(LogLevel level, Words& words) noexcept {
    if (!Admit(level)) return;
    try {
      Put(level, words());
    } catch (...) {  // out of memory for the words
      CountDropped(level);
    }
  }
  void Write(LogLevel level, std::string_view text) noexcept;
  // True: this line may be put; else it is counted as dropped.
  [[nodiscard]] bool Admit(LogLevel level) noexcept;
  void Put(LogLevel level, std::string_view text) noexcept;
  void CountDropped(LogLevel level) noexcept;
  [[nodiscard]] bool Take(Budget& budget) noexcept;

  LogSink* sink_;
  std::string stage_;
  Clock real_clock_;
  const Clock* clock_;
  std::array<Budget, 4> budgets_;  // by level
};

}  // namespace ucmstore
