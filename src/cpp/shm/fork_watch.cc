// SPDX-License-Identifier: Apache-2.0
//
// Two counts around each fork, in the parent: begun before the child is born, ended after it.
#include "shm/fork_watch.h"

#include <pthread.h>

#include <atomic>

namespace ucmstore {
namespace {

constinit std::atomic<std::uint64_t> g_depth{0};
constinit std::atomic<std::uint64_t> g_begun{0};
constinit std::atomic<std::uint64_t> g_ended{0};

void Begin() noexcept { g_begun.fetch_add(1); }
void EndInParent() noexcept { g_ended.fetch_add(1); }
// Alone here: threads that were forking as well are not.
void EndInChild() noexcept {
  g_ended.store(g_begun.load());
  g_depth.fetch_add(1, std::memory_order_relaxed);
}

void Register() noexcept {
  [[maybe_unused]] static const int registered =
      ::pthread_atfork(&Begin, &EndInParent, &EndInChild);
}

}  // namespace

std::uint64_t ForkDepth() noexcept {
  Register();
  return g_depth.load(std::memory_order_relaxed);
}

ForkWatch::ForkWatch() noexcept {
  Register();
  const std::uint64_t ended = g_ended.load();
  begun_ = g_begun.load();
  quiet_ = begun_ == ended;
}

bool ForkWatch::Quiet() const noexcept {
  // Writes, so that it lies either before a fork's own count, and then the child has all that was
  // stored before this, or after it, and sees it.
  return quiet_ && g_begun.fetch_add(0) == begun_;
}

}  // namespace ucmstore
