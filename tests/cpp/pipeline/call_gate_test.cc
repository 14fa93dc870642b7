// SPDX-License-Identifier: Apache-2.0
//
// CallGate: nobody is let in once it is shut, and whoever waits hears of the last to leave.
#include "pipeline/call_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace ucmstore {
namespace {

TimePoint In(milliseconds time) { return std::chrono::steady_clock::now() + time; }

TEST(CallGate, CountsAndShuts) {
  CallGate gate;
  ASSERT_TRUE(gate.Enter());
  ASSERT_TRUE(gate.Enter());
  EXPECT_EQ(gate.inside(), 2U);
  gate.Leave();
  gate.Shut();
  gate.Shut();
  EXPECT_TRUE(gate.shut());
  EXPECT_FALSE(gate.Enter());
  EXPECT_EQ(gate.inside(), 1U);
  EXPECT_FALSE(gate.AwaitEmpty(In(milliseconds(1))));
  gate.Leave();
  EXPECT_TRUE(gate.AwaitEmpty(In(milliseconds(0))));
}

TEST(CallGate, EndsUnderTraffic) {
  for (int round = 0; round < 50; ++round) {
    auto gate = std::make_unique<CallGate>();
    std::atomic<bool> began{false};
    std::atomic<int> inside{0};
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        while (gate->Enter()) {
          inside.fetch_add(1);
          began.store(true);
          inside.fetch_sub(1);
          gate->Leave();
        }
      });
    }
    while (!began.load()) std::this_thread::yield();
    gate->Shut();
    ASSERT_TRUE(gate->AwaitEmpty(In(milliseconds(60'000))));
    ASSERT_EQ(inside.load(), 0);
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace ucmstore
