// SPDX-License-Identifier: Apache-2.0
//
// Promise 8, and kind D of the faults that stores like this have had: a failure is told, harms
// nobody else, and is forgotten once the data is good again. The lowest Fault of the stack fails.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "contract/contract.h"
#include "support/checks.h"

namespace {
bool leaves_something_alone = false;
}

// Asked by LeakSanitizer before it looks: a store that could not end is left alone on purpose, and
// with it all that it uses.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off();  // NOLINT
int __lsan_is_turned_off() { return leaves_something_alone ? 1 : 0; }          // NOLINT

namespace ucmstore::test {
namespace {

class RecoveryContract : public Contract {};

TEST_P(RecoveryContract, D02_AFailedLoadIsForgotten) {
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), nonce).ok());
  (void)fault().Arm("load fail=io_error errno=5 count=1");
  LoadBatch load(geometry());
  load.AddBlock(Id(0));
  const Status status = Finish(store(), load);
  EXPECT_EQ(status.code, Code::kIoError);
  EXPECT_EQ(status.sys_errno, EIO);
  EXPECT_EQ(std::ranges::count(std::vector<bool>{load.result(0).code == Code::kOk}, true), 0);
  EXPECT_EQ(load.result(0).sys_errno, EIO);
  for (std::size_t i = 1; i < load.size(); ++i) EXPECT_EQ(load.Problem(i, nonce), "");
  EXPECT_TRUE(IsPresent(store(), Id(0))) << "a transient error destroyed good data";
  EXPECT_EQ(BlockProblem(store(), geometry(), Id(0), nonce), "");
}

TEST_P(RecoveryContract, F10_AFailedDumpIsForgotten) {
  const FaultControl fault = this->fault();
  const std::uint64_t rule = fault.Arm("dump fail=no_space errno=28");
  for (std::uint64_t b = 0; b < 3; ++b) {
    const Status status = DumpBlock(store(), geometry(), Id(b), NextNonce());
    EXPECT_EQ(status.code, Code::kNoSpace);
    EXPECT_EQ(status.sys_errno, ENOSPC);
    EXPECT_FALSE(IsPresent(store(), Id(b)));
  }
  fault.Disarm(rule);
  CheckRoundTrip(store(), geometry(), Ids(3));
}

TEST_P(RecoveryContract, OneFailedShardOfADumpKeepsItsBlockInvisible) {
  (void)fault().Arm("dump fail=io_error count=1 shard=" + std::to_string(shards() - 1));
  DumpBatch dump(geometry());
  dump.AddBlock(Id(0), NextNonce()).AddBlock(Id(1), NextNonce());
  EXPECT_EQ(Finish(store(), dump).code, Code::kIoError);
  EXPECT_EQ(dump.result(shards() - 1).code, Code::kIoError);
  for (std::size_t i = shards(); i < dump.size(); ++i) EXPECT_EQ(dump.result(i).code, Code::kOk);
  EXPECT_FALSE(IsPresent(store(), Id(0)));
  EXPECT_EQ(AbsenceProblem(store(), geometry(), Id(0)), "");
  EXPECT_EQ(BlockProblem(store(), geometry(), Id(1)), "");
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), NextNonce()).ok());
  EXPECT_EQ(BlockProblem(store(), geometry(), Id(0)), "");
}

// D03: a submission below that fails and a completion that fails are statuses, never an abort.
TEST_P(RecoveryContract, D03_RefusalsAndFailuresAreStatuses) {
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), nonce).ok());
  const FaultControl fault = this->fault();
  struct Line {
    const char* rule;
    Code code;
  };
  const Line lines[] = {{"load refuse count=1", Code::kBusy},
                        {"load refuse=system_limit errno=24 count=1", Code::kLimit},
                        {"load fail=corruption count=1", Code::kCorruption},
                        {"load fail=io_error when=moving count=1", Code::kIoError},
                        {"load fail=io_error when=after count=1", Code::kIoError},
                        {"load throw count=1", Code::kInternal}};
  for (const Line& line : lines) {
    const std::uint64_t rule = fault.Arm(line.rule);
    LoadBatch load(geometry());
    load.AddBlock(Id(0));
    const Status status = Finish(store(), load);
    EXPECT_EQ(status.code, line.code) << line.rule << ": " << status.message;
    EXPECT_NE(status.text(), "") << line.rule;
    EXPECT_EQ(fault.Hits(rule), 1U) << line.rule;
    EXPECT_EQ(BlockProblem(store(), geometry(), Id(0), nonce), "") << line.rule;
  }
}

TEST_P(RecoveryContract, D03_TheSameForDumps) {
  const FaultControl fault = this->fault();
  std::uint64_t block = 0;
  for (const char* rule : {"dump refuse count=1", "dump fail=io_error count=1",
                           "dump fail=io_error when=after count=1", "dump throw count=1"}) {
    (void)fault.Arm(rule);
    EXPECT_FALSE(DumpBlock(store(), geometry(), Id(block), NextNonce()).ok()) << rule;
    ASSERT_TRUE(DumpBlock(store(), geometry(), Id(block), NextNonce()).ok()) << rule;
    EXPECT_EQ(BlockProblem(store(), geometry(), Id(block)), "") << rule;
    ++block;
  }
}

TEST_P(RecoveryContract, ALookupThatFailsIsAnErrorWithoutAnswers) {
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), NextNonce()).ok());
  (void)fault().Arm("lookup refuse=io_error errno=5 count=1");
  const BlockId id = Id(0);
  std::uint8_t found = 0xEE;
  LookupDesc desc;
  desc.blocks = &id;
  desc.count = 1;
  EXPECT_EQ(store().Lookup(desc, &found).code, Code::kIoError);
  EXPECT_EQ(found, kAbsent);
  EXPECT_TRUE(IsPresent(store(), id));
}

TEST_P(RecoveryContract, ALookupPastItsTimeLeavesBlocksAbsent) {
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), NextNonce()).ok());
  const FaultControl fault = this->fault();
  const std::uint64_t hold = fault.Arm("lookup hold");
  const BlockId id = Id(0);
  std::uint8_t found = 0xEE;
  LookupDesc desc;
  desc.blocks = &id;
  desc.count = 1;
  desc.timeout_ms = 10;
  EXPECT_TRUE(store().Lookup(desc, &found).ok());
  EXPECT_EQ(found, kAbsent);
  fault.Release(hold);
  EXPECT_TRUE(IsPresent(store(), id));
}

TEST_P(RecoveryContract, RandomFailuresNeverYieldWrongBytes) {
  Random random;
  const FaultControl fault = this->fault();
  for (const char* rule :
       {"load fail=io_error chance=0.05", "load throw chance=0.05", "load refuse chance=0.05",
        "dump fail=io_error chance=0.05", "dump throw chance=0.02", "dump refuse chance=0.05",
        "dump fail=io_error when=after chance=0.02", "load delay=1 chance=0.1",
        "dump delay=1 when=moving chance=0.1", "lookup refuse=io_error chance=0.02"}) {
    (void)fault.Arm(rule);
  }
  for (int n = 0; n < 100; ++n) {
    const BlockId id = Id(random.Between(0, 9));
    if (random.OneIn(2)) {
      (void)DumpBlock(store(), geometry(), id, NextNonce());
      continue;
    }
    LoadBatch load(geometry());
    load.AddBlock(id);
    (void)Finish(store(), load);
    for (std::size_t i = 0; i < load.size(); ++i) {
      if (load.result(i).code == Code::kOk) {
        EXPECT_EQ(load.Problem(i), "");
      }
      EXPECT_TRUE(load.GuardsIntact(i));
    }
  }
  fault.Disarm(0);
  CheckRoundTrip(store(), geometry(), {Id(100), Id(101)});
  for (std::uint64_t b = 0; b < 10; ++b) {
    ASSERT_TRUE(DumpBlock(store(), geometry(), Id(b), NextNonce()).ok());
    EXPECT_EQ(BlockProblem(store(), geometry(), Id(b)), "");
  }
}

INSTANTIATE_TEST_SUITE_P(, RecoveryContract, testing::ValuesIn(FaultCases()), CaseName);

class StuckContract : public Contract {};

// D04: the disk hangs and nothing brings it back; the process must still end.
TEST_P(StuckContract, D04_AProcessWithAStuckTaskExits) {
  const TimePoint start = std::chrono::steady_clock::now();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    leaves_something_alone = true;
    {
      LoadBatch load(geometry());
      load.AddBlock(Id(0));
      if (!DumpBlock(store(), geometry(), Id(0), NextNonce()).ok()) ::_exit(2);
      const std::uint64_t stuck = fault().Arm("load stuck shard=0");
      const TaskId task = Submit(store(), load);
      fault().AwaitHeld(stuck, 1);
      if (store().Wait(task, 50).code != Code::kPending) ::_exit(3);
      if (store().Close(100)) ::_exit(4);  // it cannot end, and says so
      if (!load.Untouched(0)) ::_exit(5);
      CloseStore();
    }
    std::exit(HasFailure() ? 6 : 0);  // with all destructors  NOLINT(concurrency-mt-unsafe)
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

INSTANTIATE_TEST_SUITE_P(, StuckContract, testing::ValuesIn(FaultCases()), CaseName);

}  // namespace
}  // namespace ucmstore::test
