// SPDX-License-Identifier: Apache-2.0
//
// Processes that share a segment: this one, and children that join, say so, and live until they are
// let go or killed. Fork while no other thread runs. Not synchronised.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <memory>
#include <string>
#include <utility>

#include "posix/children.h"
#include "shm/process_table.h"
#include "shm/segment_fixture.h"

namespace ucmstore::test {

// A segment, opened, and this process's table on it. Each is an opening of its own, so two in one
// process see each other as two processes do.
struct Member {
  std::unique_ptr<RingSegment> segment;
  std::unique_ptr<ProcessTable> table;
};

// How a child says its place.
inline char Letter(std::uint32_t place) { return static_cast<char>('!' + place); }

inline void NoTraces(std::uint32_t /*place*/) {}

// The pipes by which a child says what it has reached and is let go.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe2(ends_.data(), O_CLOEXEC), 0); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    CloseRead();
    CloseWrite();
  }
  void Say(char c) const { EXPECT_EQ(::write(ends_[1], &c, 1), 1); }
  // 0 when all have closed the other end.
  [[nodiscard]] char Hear() const {
    char c = 0;
    return ::read(ends_[0], &c, 1) == 1 ? c : '\0';
  }
  void CloseRead() { Close(ends_[0]); }
  void CloseWrite() { Close(ends_[1]); }

 private:
  static void Close(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
  std::array<int, 2> ends_{-1, -1};
};

class ProcessTableTest : public SegmentTest {
 protected:
  [[nodiscard]] Member Open() const {
    Opened opened = OpenSegment(Request());
    EXPECT_TRUE(opened.segment) << opened.status.message;
    auto table = ProcessTable::Open(*opened.segment);
    EXPECT_TRUE(table.has_value());
    return {.segment = std::move(opened.segment), .table = std::move(*table)};
  }
  [[nodiscard]] Member Join() const {
    Member member = Open();
    const Status status = member.table->Join(&NoTraces);
    EXPECT_TRUE(status.ok()) << status.message;
    return member;
  }
  // A process that has joined, says its place, and lives until `go` is closed here.
  pid_t StartMember(Children& children, Pipe& said, Pipe& go) const {
    return children.Start([&]() -> std::string {
      go.CloseWrite();
      const Member member = Join();
      said.Say(Letter(member.table->place()));
      return go.Hear() == '\0' ? "" : "not let go";
    });
  }
  static void KillAndReap(pid_t pid) {
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    siginfo_t info{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  }
};

}  // namespace ucmstore::test
