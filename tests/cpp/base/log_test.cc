// SPDX-License-Identifier: Apache-2.0
//
// The rate limit of the log: how many lines pass, that none is lost uncounted, and that chatter
// does not crowd out errors. Time is chosen, never slept.
#include "base/log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace ucmstore {
namespace {

class CollectingSink final : public LogSink {
 public:
  void Write(LogLevel level, std::string_view text) noexcept override {
    const MutexLock lock(mutex_);
    lines_.emplace_back(level, text);
  }
  [[nodiscard]] std::vector<std::pair<LogLevel, std::string>> lines() const { return lines_; }
  [[nodiscard]] std::size_t size() const { return lines_.size(); }
  [[nodiscard]] std::string last() const { return lines_.empty() ? "" : lines_.back().second; }

 private:
  Mutex mutex_;
  std::vector<std::pair<LogLevel, std::string>> lines_;
};

// The number before " lines before this one" or " more lines", 0 if there is none.
std::uint64_t DroppedIn(const std::string& line) {
  for (const char* mark : {" lines before this one were dropped", " more lines like those"}) {
    const std::size_t end = line.find(mark);
    if (end == std::string::npos) continue;
    const std::size_t begin = line.find_last_not_of("0123456789", end - 1) + 1;
    return std::strtoull(line.c_str() + begin, nullptr, 10);
  }
  return 0;
}

TEST(Log, LineBeginsWithItsStage) {
  CollectingSink sink;
  Log log(&sink, "posix");
  log.Warning("/a is gone");
  ASSERT_EQ(sink.size(), 1U);
  EXPECT_EQ(sink.lines()[0], std::pair(LogLevel::kWarning, std::string("posix: /a is gone")));
}

TEST(Log, NoSinkDropsEverything) {
  Log log(nullptr, "posix");
  for (int i = 0; i < 100; ++i) log.Error("x");
}

TEST(Log, LimitsTheLinesOfAWindowAndSaysHowManyItDropped) {
  CollectingSink sink;
  ManualClock clock;
  {
    Log log(&sink, "posix", &clock);
    log.Error("first");
    clock.Advance(Log::kWindow);  // a whole window from here on, wherever the first one began
    for (int i = 0; i < 100; ++i) log.Error("full");
    EXPECT_EQ(sink.size(), 1 + Log::kLinesPerWindow);
    EXPECT_EQ(sink.last(), "posix: full");

    clock.Advance(Log::kWindow);
    log.Error("again");
    EXPECT_EQ(sink.last(), "posix: again (80 lines before this one were dropped)");
    log.Error("more");
    EXPECT_EQ(sink.last(), "posix: more");
    for (int i = 0; i < 25; ++i) log.Error("rest");
  }
  EXPECT_EQ(sink.last(), "posix: 7 more lines like those before were dropped");
}

TEST(Log, ChatterDoesNotCrowdOutErrors) {
  CollectingSink sink;
  ManualClock clock;
  Log log(&sink, "posix", &clock);
  for (int i = 0; i < 1000; ++i) log.Debug("chatter");
  log.Error("the disk is gone");
  EXPECT_EQ(sink.last(), "posix: the disk is gone");
}

// While threads log and time moves on: written lines and dropped lines add up to what was logged,
// and no window lets more through than it may.
TEST(Log, EveryLineIsWrittenOrCounted) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kLines = 20'000;
  constexpr std::uint64_t kAdvances = 50;
  CollectingSink sink;
  ManualClock clock;
  {
    Log log(&sink, "s", &clock);
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (std::uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&log, &clock, t] {
        for (std::uint64_t i = 0; i < kLines; ++i) {
          log.Info("x");
          if (t == 0 && i % (kLines / kAdvances) == 0) clock.Advance(Log::kWindow);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::uint64_t written = 0;
  std::uint64_t dropped = 0;
  for (const auto& [level, line] : sink.lines()) {
    dropped += DroppedIn(line);
    written += line.starts_with("s: x") ? 1U : 0U;
  }
  EXPECT_EQ(written + dropped, kThreads * kLines);
  EXPECT_LE(written, (kAdvances + 1) * Log::kLinesPerWindow);
  EXPECT_GE(written, Log::kLinesPerWindow);
}

}  // namespace
}  // namespace ucmstore
