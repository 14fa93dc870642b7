// SPDX-License-Identifier: Apache-2.0
//
// BelowAnswers: what the store below says of some blocks. It is asked once, for all of them, when
// the first one needs to know. Not synchronised: one worker's.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ucmstore/store_v1.h"

namespace ucmstore {

class BelowAnswers {
 public:
  enum class Answer : std::uint8_t {
    kNotAsked,
    kUnknown,  // it did not know in time, or failed
    kNotThere,
    kThere,
  };
  BelowAnswers(StoreV1& below, std::vector<BlockId> blocks)
      : below_(below), blocks_(std::move(blocks)), answers_(blocks_.size(), Answer::kNotAsked) {}

  // Of the k-th block. May wait for the medium, though not for ever. Never kNotAsked.
  [[nodiscard]] Answer Of(std::size_t k) {
    if (answers_[k] == Answer::kNotAsked) AskFrom(k);
    return answers_[k];
  }
  [[nodiscard]] bool Has(std::size_t k) { return Of(k) == Answer::kThere; }

 private:
  // Asks about block k, and about all behind it.
  void AskFrom(std::size_t k);

  StoreV1& below_;
  std::vector<BlockId> blocks_;
  std::vector<Answer> answers_;
};

}  // namespace ucmstore
