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
constexpr int kFree = -1;

struct Table {
  Table() noexcept {
    for (std::atomic<int>& slot : slots) slot.store(kFree, std::memory_order_relaxed);
    ::pthread_atfork(nullptr, nullptr, [] {
      for (std::atomic<int>& slot : Shared().slots) {
        const int fd = slot.exchange(kFree, std::memory_order_relaxed);
        if (fd != kFree) ::close(fd);
      }
    });
  }
  static Table& Shared() noexcept {
    static Table& table = *new Table;  // never destroyed: the handler stays registered
    return table;
  }
  std::array<std::atomic<int>, kSlots> slots;
};

}  // namespace

ForkGuard::ForkGuard(int fd) noexcept : slot_(kSlots) {
  Table& table = Table::Shared();
  for (std::size_t i = 0; i < kSlots; ++i) {
    int free = kFree;
    if (table.slots[i].compare_exchange_strong(free, fd, std::memory_order_relaxed)) {
      slot_ = i;
      return;
    }
  }
}

ForkGuard::~ForkGuard() {
  if (slot_ < kSlots) Table::Shared().slots[slot_].store(kFree, std::memory_order_relaxed);
}

}  // namespace ucmstore
