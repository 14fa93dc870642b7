// SPDX-License-Identifier: Apache-2.0
//
// The way of a lookup: one probe a block, and what is not here is asked below.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>

#include "store/cache/cache_stage.h"
#include "task/guarded.h"
#include "task/segments.h"

namespace ucmstore {
namespace {

// For whom a worker asks whether a block is below: a medium that hangs must not take all of them.
constexpr std::uint32_t kBelowPatienceMs = 1'000;

}  // namespace

Status CacheStage::LookupHere(const LookupDesc& desc, std::uint8_t* found) {
  if (closing_.load()) return Status::Error(Code::kClosed, "Cache: the store is closed");
  if (Status status = CheckLookup(desc, found); !status.ok()) return Named(status);
  if (desc.count == 0) return Status::Ok();
  const bool touch = (desc.flags & kNoTouch) == 0;
  ring().Probe({desc.blocks, desc.count}, touch, found);
  static_assert(kInMemory == 1 && kAbsent == 0);
  if (touch) uses_->Used({desc.blocks, desc.count}, found);
  const auto memory = static_cast<std::uint64_t>(std::count(found, found + desc.count, kInMemory));
  if (memory < desc.count) {
    if (Status status = LookupBelow(desc, found); !status.ok()) {
      figures_.lookups.CountError();
      // What is here is an answer; without any the caller should know why.
      if (memory == 0) {
        std::fill_n(found, desc.count, kAbsent);
        return status;
      }
      log().Warning(fmt::format("a lookup in the store below failed: {}", status.text()));
    }
  }
  figures_.lookups.CountAndCut(desc, found);
  return Status::Ok();
}

// Asks below about the blocks that are still marked absent.
Status CacheStage::LookupBelow(const LookupDesc& desc, std::uint8_t* found) {
  std::vector<BlockId> blocks;
  std::vector<std::uint32_t> places;
  for (std::uint32_t i = 0; i < desc.count; ++i) {
    if (found[i] != kAbsent) continue;
    blocks.push_back(desc.blocks[i]);
    places.push_back(i);
  }
  std::vector<std::uint8_t> answers(blocks.size());
  LookupDesc below_desc = desc;
  below_desc.blocks = blocks.data();
  below_desc.count = static_cast<std::uint32_t>(blocks.size());
  const Status status = below().Lookup(below_desc, answers.data());
  if (!status.ok()) return status;
  for (std::size_t i = 0; i < places.size(); ++i) {
    found[places[i]] = answers[i] == kAbsent ? kAbsent : kBelow;
  }
  return Status::Ok();
}

// A lookup that touches; what it finds is of no interest.
void CacheStage::TellBelow(std::span<const BlockId> used) noexcept {
  (void)Guarded([&] {
    std::vector<std::uint8_t> found(used.size());
    LookupDesc desc;
    desc.timeout_ms = kBelowPatienceMs;
    desc.blocks = used.data();
    desc.count = static_cast<std::uint32_t>(used.size());
    return below().Lookup(desc, found.data());
  });
}

void BelowAnswers::AskFrom(std::size_t k) {
  const std::span<const BlockId> asked = std::span(blocks_).subspan(k);
  std::vector<std::uint8_t> found(asked.size());
  LookupDesc desc;
  desc.flags = kNoTouch;
  desc.timeout_ms = kBelowPatienceMs;
  desc.blocks = asked.data();
  desc.count = static_cast<std::uint32_t>(asked.size());
  const auto until = std::chrono::steady_clock::now() + milliseconds(kBelowPatienceMs);
  const Status status = below_.Lookup(desc, found.data());
  // What a medium does not know in time it calls absent.
  const bool in_time = status.ok() && std::chrono::steady_clock::now() < until;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    answers_[k + i] = status.ok() && found[i] != kAbsent ? Answer::kThere
                      : in_time                          ? Answer::kNotThere
                                                         : Answer::kUnknown;
  }
}

bool CacheStage::BelowHas(const BlockId& block) { return BelowAnswers(below(), {block}).Has(0); }

}  // namespace ucmstore
