// SPDX-License-Identifier: Apache-2.0
//
// The table of legal transitions against one written out by hand: every change of state, draining
// and generation, for each transition.
#include "shm/transitions.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace ucmstore {
namespace {

// The states' letters: Empty, cLaimed, Proposed, Filling, Assembling, Clean, Dirty, flUshing;
// "F*" is filling and draining, "+" the next generation.
const std::map<Transition, std::set<std::string>> kWritten = {
    {Transition::kClaim, {"E L+"}},
    {Transition::kPass, {"F F", "A A", "C C", "D D", "U U"}},
    {Transition::kTouch, {"F F", "A A", "C C", "D D", "U U"}},
    {Transition::kDrain, {"F F*", "A A*", "C C*"}},
    {Transition::kCallOff, {"F* F", "A* A", "C* C"}},
    {Transition::kEvict, {"F* L+", "A* L+", "C* L+"}},
    {Transition::kPropose, {"L P"}},
    {Transition::kBeat, {"P E"}},
    {Transition::kGiveUp, {"L E", "P E"}},
    {Transition::kDecideFilling, {"P F"}},
    {Transition::kDecideAssembling, {"P A"}},
    {Transition::kFilled, {"F C", "F* C"}},
    {Transition::kAssembled, {"A D", "A* D"}},
    {Transition::kFlush, {"D U"}},
    {Transition::kFlushed, {"U C"}},
    {Transition::kFlushFailed, {"U D"}},
    {Transition::kForsake, {"U C"}},
    {Transition::kRewrite, {"C D"}},
    {Transition::kAdopt, {"D D", "U D"}},
    {Transition::kLeave, {"D D", "U D"}},
    {Transition::kErase, {"L E", "P E"}},
};

constexpr std::string_view kLetters = "ELPFACDU";

std::string Letter(std::uint32_t state, bool draining) {
  return std::string(1, kLetters[state]) + (draining ? "*" : "");
}

SlotWord Word(std::uint64_t generation, std::uint32_t state, bool draining) {
  const SlotWord word(generation, static_cast<SlotState>(state), 1);
  return draining ? word.Draining(2) : word;
}

TEST(Transitions, EveryRowIsItsOwn) {
  ASSERT_EQ(kWritten.size(), kTransitions);
  for (std::size_t i = 0; i < kTransitions; ++i) {
    EXPECT_EQ(static_cast<std::size_t>(kTransitionTable[i].transition), i);
    EXPECT_FALSE(kTransitionTable[i].name.empty());
  }
}

TEST(Transitions, WhatIsLegalIsWhatWasWrittenDown) {
  for (std::size_t i = 0; i < kTransitions; ++i) {
    const auto transition = static_cast<Transition>(i);
    const auto& written = kWritten.at(transition);
    // 16 ways to begin, 16 to end, and the generation that goes back, stays, grows by one or two.
    for (std::uint32_t way = 0; way < 16 * 16 * 4; ++way) {
      const std::uint32_t from = way & 7;
      const std::uint32_t to = (way >> 4) & 7;
      const bool from_draining = (way & 8) != 0;
      const bool to_draining = (way & 128) != 0;
      const std::uint32_t generation = way >> 8;
      const std::string growth = generation == 1 ? "" : generation == 2 ? "+" : "?";
      const std::string words =
          Letter(from, from_draining) + " " + Letter(to, to_draining) + growth;
      EXPECT_EQ(
          IsLegal(transition, Word(6, from, from_draining), Word(5 + generation, to, to_draining)),
          written.contains(words))
          << RowOf(transition).name << ": " << words;
    }
  }
}

TEST(Transitions, AWordKeepsWhatAChangeIsNotAbout) {
  const SlotWord word = SlotWord(77, SlotState::kClean, 0).WithChance(2);
  EXPECT_EQ(word.Draining(9).NotDraining(), word);
  EXPECT_EQ(word.Draining(9).owner(), 9);
  EXPECT_EQ(word.Draining(9).chance(), 2);
  EXPECT_EQ(word.WithState(SlotState::kDirty, 128).chance(), 2);
  EXPECT_EQ(word.WithState(SlotState::kDirty, 128).owner(), 128);
  EXPECT_EQ(word.WithChance(0).WithChance(2), word);
  const SlotWord next = word.Draining(9).NextLife(3);
  EXPECT_EQ(next, SlotWord(78, SlotState::kClaimed, 3));
  EXPECT_EQ(next.chance(), 0);
}

}  // namespace
}  // namespace ucmstore
