// SPDX-License-Identifier: Apache-2.0
//
// A fixed table of descriptors and one pthread_atfork handler. The handler runs in a child whose
// other threads are gone, perhaps in the middle of anything: it takes no lock and allocates
// nothing.
#include "io/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace ucmstore {
namespace {

constexpr std::size_t kSlots = 4096;  // beyond it descriptors are inherited; nothing else is lost

// Each slot: 0, or a descriptor + 1. Constant-initialised and never destroyed: the handler stays
// registered as long as the process lives.
constinit std::array<std::atomic<int>, kSlots> guarded{};

void CloseInChild() noexcept {
  for (std::atomic<int>& slot : guarded) {
    const int value = slot.exchange(0, std::memory_order_relaxed);
    if (value != 0) ::close(value - 1);
  }
}

}  // namespace

ForkGuard::ForkGuard(int fd) noexcept : slot_(kSlots) {
  [[maybe_unused]] static const int registered = ::pthread_atfork(nullptr, nullptr, &CloseInChild);
  for (std::size_t i = 0; i < kSlots; ++i) {
    int free = 0;
    if (guarded[i].compare_exchange_strong(free, fd + 1, std::memory_order_relaxed)) {
      slot_ = i;
      return;
    }
  }
}

ForkGuard::~ForkGuard() {
  if (slot_ < kSlots) guarded[slot_].store(0, std::memory_order_relaxed);
}

}  // namespace ucmstore
