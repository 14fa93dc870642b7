// SPDX-License-Identifier: Apache-2.0
//
// The rate-limited front to the log sink: one atomic word for each level holds the window and the
// lines spent in it, so no line takes a lock here. See log.h.
#include "base/log.h"

#include <utility>

namespace ucmstore {

Log::Log(LogSink* sink, std::string stage, const Clock* clock)
    : sink_(sink), stage_(std::move(stage)), clock_(clock != nullptr ? clock : &real_clock_) {}

Log::~Log() {
  for (std::size_t level = 0; level < budgets_.size(); ++level) {
    const std::uint64_t dropped = budgets_[level].dropped.load();
    if (dropped == 0) continue;
    try {
      const std::string line =
          stage_ + ": " + std::to_string(dropped) + " more lines like those before were dropped";
      sink_->Write(static_cast<LogLevel>(level), line);
    } catch (...) {  // out of memory: nothing is lost but the count
    }
  }
}

// True: this line may be written. Each window of a level gives true kLinesPerWindow times.
bool Log::Take(Budget& budget) noexcept {
  const auto window = static_cast<std::uint32_t>(clock_->Now().time_since_epoch() / kWindow);
  std::uint64_t seen = budget.window_and_lines.load(std::memory_order_relaxed);
  std::uint64_t next = 0;
  do {
    // A thread that read the clock just before the window ended must not go back to it.
    const auto newest = static_cast<std::uint32_t>(seen >> 32);
    const auto lines = static_cast<std::uint32_t>(seen);
    if (window > newest) {
      next = std::uint64_t{window} << 32 | 1U;
    } else if (lines < kLinesPerWindow) {
      next = seen + 1;
    } else {
      return false;
    }
  } while (!budget.window_and_lines.compare_exchange_weak(seen, next, std::memory_order_relaxed));
  return true;
}

bool Log::Admit(LogLevel level) noexcept {
  if (sink_ == nullptr) return false;
  if (Take(budgets_[static_cast<std::size_t>(level)])) return true;
  CountDropped(level);
  return false;
}

void Log::CountDropped(LogLevel level) noexcept {
  budgets_[static_cast<std::size_t>(level)].dropped.fetch_add(1, std::memory_order_relaxed);
}

void Log::Write(LogLevel level, std::string_view text) noexcept {
  if (Admit(level)) Put(level, text);
}

void Log::Put(LogLevel level, std::string_view text) noexcept {
  Budget& budget = budgets_[static_cast<std::size_t>(level)];
  const std::uint64_t dropped = budget.dropped.exchange(0, std::memory_order_relaxed);
  try {
    std::string line = stage_;
    line += ": ";
    line += text;
    if (dropped != 0) {
      line += " (" + std::to_string(dropped) + " lines before this one were dropped)";
    }
    sink_->Write(level, line);
  } catch (...) {  // out of memory: the bare text needs none
    sink_->Write(level, text);
  }
}

}  // namespace ucmstore
