// SPDX-License-Identifier: Apache-2.0
//
// Operator new with a fuse.
#include "memory/scarce_memory.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace ucmstore::test {
namespace {

constinit std::atomic<std::uint64_t> round{1};

struct Fuse {
  std::uint64_t lit_in;  // a round; 0: not lit
  std::uint64_t left;
  std::uint64_t failures;
};
thread_local constinit Fuse fuse{};

void* Allocate(std::size_t size) {
  if (fuse.lit_in == round.load(std::memory_order_relaxed)) {
    if (fuse.left == 0) {
      ++fuse.failures;
      throw std::bad_alloc();
    }
    --fuse.left;
  }
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* AllocateOrNull(std::size_t size) noexcept {
  try {
    return Allocate(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace

void ScarceMemory::Begin(std::uint64_t left) noexcept { fuse = {round.load(), left, 0}; }
void ScarceMemory::End() noexcept { fuse.lit_in = 0; }
void ScarceMemory::EndAll() noexcept { round.fetch_add(1); }
std::uint64_t ScarceMemory::Failures() noexcept { return fuse.failures; }

}  // namespace ucmstore::test

// The aligned forms stay the library's: they pair with their own delete.
void* operator new(std::size_t size) { return ucmstore::test::Allocate(size); }
void* operator new[](std::size_t size) { return ucmstore::test::Allocate(size); }
void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return ucmstore::test::AllocateOrNull(size);
}
void* operator new[](std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return ucmstore::test::AllocateOrNull(size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t& /*tag*/) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t& /*tag*/) noexcept { std::free(memory); }
