// SPDX-License-Identifier: Apache-2.0
//
// The prefault's thread.
#include "store/cache/prefault.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

namespace ucmstore {
namespace {

#ifdef MADV_POPULATE_WRITE
constexpr int kPopulateWrite = MADV_POPULATE_WRITE;
#else
constexpr int kPopulateWrite = 23;  // the kernel may be newer than its headers here
#endif
constexpr std::size_t kStepBytes = 4U << 20;

}  // namespace

void Prefault::Start(std::span<std::byte> pages) {
  (void)StartThread(starter_, [this, pages] { Work(pages); }, &thread_);
}

void Prefault::Work(std::span<std::byte> pages) noexcept {
  while (!pages.empty() && !stop_.load()) {
    const std::size_t step = std::min(kStepBytes, pages.size());
    if (::madvise(pages.data(), step, kPopulateWrite) != 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return;
    }
    bytes_.fetch_add(step);
    pages = pages.subspan(step);
  }
}

void Prefault::Stop() noexcept {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
}

}  // namespace ucmstore
