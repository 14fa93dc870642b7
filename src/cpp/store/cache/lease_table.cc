// SPDX-License-Identifier: Apache-2.0
//
// The table of "leases/1": the ABI's edge of a book.
#include <exception>

#include "store/cache/cache_stage.h"
#include "store/cache/leases.h"

namespace ucmstore {
namespace {

Status ForkedStatus() {
  return Status::Error(Code::kClosed,
                       "Cache: these leases are of the process that this one was forked from");
}

// Runs what may throw at the ABI's edge.
template <typename Function>
Status InBook(const LeaseBook* book, bool complete, Function&& function) noexcept {
  try {
    if (book->InForkedChild()) return ForkedStatus();
    if (!complete) return Status::Error(Code::kInvalidArgument, "Cache: a null pointer");
    return function();
  } catch (const std::exception& error) {
    return Status::Error(Code::kInternal, std::string_view(error.what()));
  } catch (...) {  // the ABI's edge
    return Status::Error(Code::kInternal, "Cache: an unknown exception");
  }
}

LeaseBook* Open(StoreV1* store) noexcept {
  try {
    return static_cast<CacheStage*>(store)->OpenLeases().release();
  } catch (...) {  // the ABI's edge; out of memory
    return nullptr;
  }
}

void Close(LeaseBook* book) noexcept {
  if (book == nullptr || book->InForkedChild()) return;  // the pins are the parent's
  const std::unique_ptr<LeaseBook> ended(book);
}

void Memory(LeaseBook* book, LeaseMemoryV1* memory) noexcept { *memory = book->Memory(); }

Status Acquire(LeaseBook* book, const BlockId* blocks, std::uint32_t count, LeaseV1* leases,
               std::uint32_t* lengths) noexcept {
  const bool complete = count == 0 || (blocks != nullptr && leases != nullptr);
  return InBook(book, complete, [&] { return book->Acquire({blocks, count}, leases, lengths); });
}

Status Reserve(LeaseBook* book, const BlockId* blocks, std::uint32_t count,
               std::uint32_t first_shard, std::uint32_t shard_count, LeaseV1* leases) noexcept {
  const bool complete = count == 0 || (blocks != nullptr && leases != nullptr);
  return InBook(book, complete,
                [&] { return book->Reserve({blocks, count}, first_shard, shard_count, leases); });
}

Status Commit(LeaseBook* book, LeaseId lease, std::uint32_t shard, std::uint32_t bytes) noexcept {
  return InBook(book, true, [&] { return book->Commit(lease, shard, bytes); });
}

Status Release(LeaseBook* book, const LeaseId* leases, std::uint32_t count) noexcept {
  return InBook(book, count == 0 || leases != nullptr,
                [&] { return book->Release({leases, count}); });
}

}  // namespace

const LeasesTableV1* CacheLeases() noexcept {
  static constexpr LeasesTableV1 kTable{.struct_size = sizeof(LeasesTableV1),
                                        .reserved = 0,
                                        .open = &Open,
                                        .close = &Close,
                                        .memory = &Memory,
                                        .acquire = &Acquire,
                                        .reserve = &Reserve,
                                        .commit = &Commit,
                                        .release = &Release};
  return &kTable;
}

}  // namespace ucmstore
