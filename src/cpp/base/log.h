// SPDX-License-Identifier: Apache-2.0
//
// Log: where a stage says what nobody else will report. An error is returned, and logged at most
// once, by whoever drops it. The sink is the host's (spdlog to stderr, or an embedder's own); the
// front is rate-limited, so that a broken disk does not write a gigabyte of log. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

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
  Log(LogSink* sink, std::string stage);  // a null sink drops every line
  void Debug(std::string_view text) noexcept { Write(LogLevel::kDebug, text); }
  void Info(std::string_view text) noexcept { Write(LogLevel::kInfo, text); }
  void Warning(std::string_view text) noexcept { Write(LogLevel::kWarning, text); }
  void Error(std::string_view text) noexcept { Write(LogLevel::kError, text); }

 private:
  void Write(LogLevel level, std::string_view text) noexcept;

  LogSink* sink_;
  std::string stage_;
  // At most kLinesPerWindow lines in each window of 10 s; the rest is counted, and the count is
  // said with the first line of the next window.
  static constexpr std::uint32_t kLinesPerWindow = 20;
  std::atomic<std::int64_t> window_{0};
  std::atomic<std::uint32_t> lines_{0};
  std::atomic<std::uint32_t> dropped_{0};
};

}  // namespace ucmstore
