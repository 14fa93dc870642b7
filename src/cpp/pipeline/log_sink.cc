// SPDX-License-Identifier: Apache-2.0
//
// spdlog behind LogSink.
#include "pipeline/log_sink.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "pipeline/process_mark.h"

namespace ucmstore {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::err;
}

// Lines go out by one write(2) each. Unlike spdlog's own sinks to stderr it shares no lock with
// anybody: a forked child may find such a lock held for ever by a thread that it does not have.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    // Nothing can be done about a closed or full stderr.
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  }
  void flush_() override {}
};

class SpdlogSink final : public LogSink {
 public:
  // A logger of our own, unknown to spdlog's registry: an embedder may use spdlog himself.
  explicit SpdlogSink(LogLevel least) : logger_("ucmstore", std::make_shared<StderrSink>()) {
    logger_.set_level(ToSpdlog(least));
    logger_.set_pattern("%Y-%m-%d %H:%M:%S.%e ucmstore[%P] %l: %v");
    logger_.set_error_handler([](const std::string&) {});
  }
  void Write(LogLevel level, std::string_view text) noexcept override {
    // spdlog catches what its sinks throw and calls the error handler, with words that it makes.
    try {
      logger_.log(ToSpdlog(level), spdlog::string_view_t(text.data(), text.size()));
    } catch (...) {  // out of memory for those
    }
  }
  // The lock inside may be held by a thread of the parent.
  [[nodiscard]] bool IsOfThisProcess() const noexcept { return !mark_.InForkedChild(); }

 private:
  const ProcessMark mark_;
  spdlog::logger logger_;
};

}  // namespace

LogSink* StderrLogSink(std::string_view level) {
  constexpr std::array<std::string_view, 4> kNames = {"debug", "info", "warning", "error"};
  // Never freed: see the header. No lock, again for the sake of a forked child.
  static std::array<std::atomic<SpdlogSink*>, kNames.size()> sinks{};
  const auto name = std::ranges::find(kNames, level);
  if (name == kNames.end()) return nullptr;
  const auto i = static_cast<std::size_t>(name - kNames.begin());
  SpdlogSink* sink = sinks[i].load();
  if (sink != nullptr && sink->IsOfThisProcess()) return sink;
  auto made = std::make_unique<SpdlogSink>(static_cast<LogLevel>(i));
  if (sinks[i].compare_exchange_strong(sink, made.get())) return made.release();
  return sink;  // another thread was faster
}

}  // namespace ucmstore
