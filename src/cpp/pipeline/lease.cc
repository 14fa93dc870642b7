// SPDX-License-Identifier: Apache-2.0
//
// Having leases, committing and releasing them, through the table of the topmost stage.
#include "pipeline/lease.h"

#include <new>
#include <utility>

#include "pipeline/state.h"

namespace ucmstore {

Lease::Lease(std::shared_ptr<LeaseBookHandle> book, std::size_t blocks)
    : book_(std::move(book)), blocks_(blocks) {
  ids_.reserve(blocks);  // so that what was leased is always released
  LeaseMemoryV1 memory;
  book_->table().memory(book_->get(), &memory);
  shard_stride_ = memory.shard_stride;
}

Lease::~Lease() { Release(); }

void* Lease::DataOf(std::size_t i, std::uint32_t shard) const noexcept {
  if (i >= blocks_.size() || blocks_[i].lease == 0) return nullptr;
  return static_cast<std::byte*>(blocks_[i].base) + shard * shard_stride_;
}

Status Lease::Commit(std::size_t i, std::uint32_t shard, std::uint32_t bytes) noexcept {
  if (i >= blocks_.size() || blocks_[i].lease == 0) {
    return Status::Error(Code::kInvalidArgument, "there is no lease of this block");
  }
  try {
    return book_->table().commit(book_->get(), blocks_[i].lease, shard, bytes);
  } catch (...) {  // the ABI's edge
    return Status::Error(Code::kInternal, "the stage threw an exception when asked to commit");
  }
}

void Lease::Release() noexcept {
  if (ids_.empty()) return;
  try {
    // Not found: released before.
    (void)book_->table().release(book_->get(), ids_.data(),
                                 static_cast<std::uint32_t>(ids_.size()));
  } catch (...) {  // the ABI's edge
  }
}

Result<std::unique_ptr<Lease>> Pipeline::LeaseWith(
    std::size_t count, const std::function<Status(LeaseBookHandle&, Lease&)>& ask) noexcept {
  if (count > UINT32_MAX) {
    return Failure(Code::kInvalidArgument, "a lease of more than 2^32 - 1 blocks");
  }
  try {
    return state_->WithLeases([&](const std::shared_ptr<LeaseBookHandle>& book) {
      std::unique_ptr<Lease> lease(new Lease(book, count));
      const Status status = ask(*book, *lease);
      // Refusals come beside leases and answers; any other error means that there are none.
      const bool refused = status.code == Code::kBusy || status.code == Code::kAborted;
      for (const LeaseV1& block : lease->blocks_) {
        if (block.lease != 0) lease->ids_.push_back(block.lease);
      }
      lease->refusal_ = status;
      if (!status.ok() && !refused) return Result<std::unique_ptr<Lease>>(std::unexpected(status));
      return Result<std::unique_ptr<Lease>>(std::move(lease));
    });
  } catch (const std::bad_alloc&) {
    return Failure(Code::kLimit, "out of memory for a lease");
  } catch (...) {  // the ABI's edge
    return Failure(Code::kInternal, "the stage threw an exception when asked for a lease");
  }
}

Result<std::unique_ptr<Lease>> Pipeline::Acquire(std::span<const BlockId> blocks) noexcept {
  return LeaseWith(blocks.size(), [&](LeaseBookHandle& book, Lease& lease) {
    lease.lengths_.resize(blocks.size() * config().shards_per_block);
    return book.table().acquire(book.get(), blocks.data(),
                                static_cast<std::uint32_t>(blocks.size()), lease.blocks_.data(),
                                lease.lengths_.data());
  });
}

Result<std::unique_ptr<Lease>> Pipeline::Reserve(std::span<const BlockId> blocks,
                                                 std::uint32_t first_shard,
                                                 std::uint32_t shard_count) noexcept {
  return LeaseWith(blocks.size(), [&](LeaseBookHandle& book, Lease& lease) {
    lease.first_shard_ = first_shard;
    lease.shard_count_ = shard_count;
    return book.table().reserve(book.get(), blocks.data(),
                                static_cast<std::uint32_t>(blocks.size()), first_shard, shard_count,
                                lease.blocks_.data());
  });
}

Result<LeaseMemoryV1> Pipeline::RingMemory() noexcept {
  try {
    return state_->WithLeases([](const std::shared_ptr<LeaseBookHandle>& book) {
      LeaseMemoryV1 memory;
      book->table().memory(book->get(), &memory);
      return Result<LeaseMemoryV1>(memory);
    });
  } catch (const std::bad_alloc&) {
    return Failure(Code::kLimit, "out of memory for a lease");
  } catch (...) {  // the ABI's edge
    return Failure(Code::kInternal, "the stage threw an exception when asked for its memory");
  }
}

Result<std::shared_ptr<LeaseBookHandle>> Pipeline::State::OpenBook() {
  const MutexLock lock(lease_mutex_);
  if (lease_book_ != nullptr) return lease_book_;
  const auto* table = stack_.top_plugin().Query<LeasesTableV1>(stack_.top(), "leases/1");
  if (table == nullptr) {
    return Failure(Code::kUnsupported,
                   std::string("leases need a pipeline that begins with Cache; this one begins "
                               "with ") +
                       stack_.top_plugin().table().name);
  }
  LeaseBook* const book = table->open(stack_.top());
  if (book == nullptr) return Failure(Code::kLimit, "out of memory for leases");
  lease_book_ = std::make_shared<LeaseBookHandle>(*table, book);
  return lease_book_;
}

}  // namespace ucmstore
