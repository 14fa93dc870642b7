// SPDX-License-Identifier: Apache-2.0
//
// spdlog behind LogSink.
#include "pipeline/log_sink.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <array>
#include <memory>
#include <mutex>

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

class SpdlogSink final : public LogSink {
 public:
  // A logger of our own, unknown to spdlog's registry: an embedder may use spdlog himself.
  explicit SpdlogSink(LogLevel least)
      : logger_("ucmstore", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger_.set_level(ToSpdlog(least));
    logger_.set_pattern("%Y-%m-%d %H:%M:%S.%e ucmstore[%P] %l: %v");
    logger_.flush_on(spdlog::level::debug);
    logger_.set_error_handler([](const std::string&) {});  // a closed stderr is nobody's fault
  }
  void Write(LogLevel level, std::string_view text) noexcept override {
    // spdlog catches what its sinks throw and calls the error handler.
    logger_.log(ToSpdlog(level), spdlog::string_view_t(text.data(), text.size()));
  }

 private:
  spdlog::logger logger_;
};

}  // namespace

LogSink* StderrLogSink(std::string_view level) {
  constexpr std::array<std::string_view, 4> kNames = {"debug", "info", "warning", "error"};
  static std::mutex mutex;
  static std::array<LogSink*, kNames.size()> sinks{};  // never freed: see the header
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] != level) continue;
    const std::scoped_lock lock(mutex);
    if (sinks[i] == nullptr) {
      sinks[i] = std::make_unique<SpdlogSink>(static_cast<LogLevel>(i)).release();
    }
    return sinks[i];
  }
  return nullptr;
}

}  // namespace ucmstore
