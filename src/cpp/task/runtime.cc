// SPDX-License-Identifier: Apache-2.0
//
// Making, recognising and ending a runtime.
#include "task/runtime.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace ucmstore {
namespace {

constexpr std::uint64_t kMagic = 0x756E'7274'6D63'7531ULL;

// FNV-1a (draft-eastlake-fnv) over the release and the layout: a stage built with another SDK sees
// another number and leaves the host's runtime alone.
consteval std::uint64_t SdkVersion() {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  const auto mix = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3ULL; };
  for (const char c : std::string_view(UCMSTORE_VERSION)) mix(static_cast<unsigned char>(c));
  mix(sizeof(Runtime));
  mix(sizeof(Job));
  return hash;
}

}  // namespace

Runtime::Runtime(const RuntimeOptions& options)
    : magic_(kMagic),
      sdk_version_(SdkVersion()),
      options_(options),
      clock_(options.clock != nullptr ? options.clock : &real_clock_),
      timer_(options.start_thread),
      pool_(std::max(options.workers, 1U), options.start_thread, relief()) {}

Runtime::~Runtime() = default;

Runtime* Runtime::FromSetup(const SetupV1& setup) noexcept {
  if (setup.runtime == nullptr) return nullptr;
  std::uint64_t head[2];  // all that every version has in common
  std::memcpy(head, setup.runtime, sizeof(head));
  if (head[0] != kMagic || head[1] != SdkVersion()) return nullptr;
  return static_cast<Runtime*>(setup.runtime);
}

bool Runtime::Shutdown(std::uint32_t timeout_ms) noexcept {
  const TimePoint until = std::chrono::steady_clock::now() + milliseconds(timeout_ms);
  const auto left = [until] {
    const auto rest = until - std::chrono::steady_clock::now();
    return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(rest));
  };
  const bool timer_ended = timer_.Stop(left());
  return pool_.Stop(left()) && timer_ended;
}

}  // namespace ucmstore
