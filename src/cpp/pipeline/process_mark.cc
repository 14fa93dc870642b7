// SPDX-License-Identifier: Apache-2.0
//
// The count of forks between the first process and this one.
#include "pipeline/process_mark.h"

#include <pthread.h>

#include <atomic>

namespace ucmstore {
namespace {

std::atomic<std::uint64_t> g_generation{0};

// Runs in the child, alone, before fork returns there.
void CountFork() { g_generation.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

ProcessMark::ProcessMark() noexcept {
  static const int registered = ::pthread_atfork(nullptr, nullptr, &CountFork);
  static_cast<void>(registered);  // fails only without memory for one small node
  generation_ = g_generation.load(std::memory_order_relaxed);
}

bool ProcessMark::InForkedChild() const noexcept {
  return g_generation.load(std::memory_order_relaxed) != generation_;
}

}  // namespace ucmstore
