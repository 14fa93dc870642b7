// SPDX-License-Identifier: Apache-2.0
//
// The explorer over all scenarios: alone, with a death at every pause point, and with the death of
// the reaper that comes after it. How far: RingScenarios says how many preemptions; two scenes are
// exhausted.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "shm/ring_scenarios.h"

namespace ucmstore::test {
namespace {

// AddressSanitizer makes a fiber thirty times as dear, and looks for other mistakes.
#if defined(__SANITIZE_ADDRESS__)
constexpr int kMostPreemptions = 1;
#else
constexpr int kMostPreemptions = Explorer::kNoBound;
#endif

Explorer::Result Explore(const Scenario& scenario, int preemptions, int deaths,
                         Coverage* coverage = nullptr) {
  preemptions = std::min(preemptions, kMostPreemptions);
  Explorer::Result result = Explorer().Explore(scenario, preemptions, deaths, coverage);
  EXPECT_EQ(result.failure, "") << scenario.name << ", run " << result.runs;
  return result;
}

class RingExplorer : public testing::TestWithParam<Scenario> {
 protected:
  static void Run(int preemptions, int deaths) {
    const Explorer::Result result = Explore(GetParam(), preemptions, deaths);
    std::cout << GetParam().name << ": " << result.runs << " schedules, " << result.steps
              << " steps\n";
  }
};

TEST_P(RingExplorer, S09_NothingGoesWrongWhileAllLive) { Run(GetParam().preemptions, 0); }

TEST_P(RingExplorer, E01_NothingGoesWrongWhenOneDies) { Run(GetParam().preemptions_and_death, 1); }

// The second one may be the reaper, in the middle.
TEST_P(RingExplorer, E01_NothingGoesWrongWhenTwoDie) { Run(GetParam().preemptions_and_deaths, 2); }

INSTANTIATE_TEST_SUITE_P(Ring, RingExplorer, testing::ValuesIn(RingScenarios()),
                         [](const auto& scenario) {
                           std::string name;
                           for (const char c : scenario.param.name) {
                             name += c == ' ' || c == ',' ? '_' : c;
                           }
                           return name;
                         });

// Without any bound on preemptions.
TEST(RingExplorer, S09_SmallScenesAreExhausted) {
  for (const Scenario& scenario : RingScenarios()) {
    if (!scenario.exhaust) continue;
    const Explorer::Result result = Explore(scenario, Explorer::kNoBound, 0);
    std::cout << scenario.name << ": " << result.runs << " schedules, that is all\n";
  }
}

// Which transitions each role must have stood before and after, alive and in death.
const std::map<std::string_view, std::vector<Transition>> kStandsAt = {
    {"evictor",
     {Transition::kPass, Transition::kDrain, Transition::kCallOff, Transition::kEvict,
      Transition::kPropose, Transition::kDecideFilling, Transition::kFilled}},
    {"first claimer",
     {Transition::kClaim, Transition::kPropose, Transition::kBeat, Transition::kGiveUp,
      Transition::kDecideFilling, Transition::kDecideAssembling, Transition::kFilled,
      Transition::kAssembled}},
    {"filler", {Transition::kCallOff, Transition::kFilled, Transition::kAssembled}},
    {"reader", {Transition::kTouch, Transition::kCallOff}},
    {"rewriter", {Transition::kRewrite, Transition::kCallOff}},
    {"discarder", {Transition::kDrain, Transition::kEvict, Transition::kGiveUp}},
    {"flusher",
     {Transition::kFlush, Transition::kFlushed, Transition::kFlushFailed, Transition::kForsake,
      Transition::kLeave}},
    {"successor", {Transition::kAdopt, Transition::kFlush, Transition::kFlushed}},
    {"reaper",
     {Transition::kErase, Transition::kAdopt, Transition::kCallOff, Transition::kFilled,
      Transition::kAssembled, Transition::kFlush, Transition::kFlushed}},
};

TEST(RingExplorer, E01_EveryTransitionWasStoodAtByTheLivingAndTheDead) {
  Coverage coverage;
  for (const Scenario& scenario : RingScenarios()) {
    (void)Explore(scenario, 1, 1, &coverage);
    (void)Explore(scenario, 0, 2, &coverage);
  }
  for (const auto& [key, point] : coverage.points) {
    const auto& [role, step, transition, moment] = key;
    if (step != Step::kSwap) continue;
    std::cout << "the " << role << ' '
              << NameOf({.step = step, .transition = transition, .moment = moment, .slot = 0})
              << ": passed " << point.passed << ", died " << point.died << '\n';
  }
  std::set<Transition> stood;
  for (const auto& [role, transitions] : kStandsAt) {
    for (const Transition transition : transitions) {
      stood.insert(transition);
      for (const Moment moment : {Moment::kBefore, Moment::kAfter}) {
        const Coverage::Point point = coverage.points[{role, Step::kSwap, transition, moment}];
        EXPECT_GT(point.passed, 0) << role << ", " << RowOf(transition).name;
        EXPECT_GT(point.died, 0) << role << ", " << RowOf(transition).name;
      }
    }
  }
  EXPECT_EQ(stood.size(), kTransitions) << "a row of the table is nobody's";
}

}  // namespace
}  // namespace ucmstore::test
