// SPDX-License-Identifier: Apache-2.0
//
// Children: forked processes that run a function and say whether all was well, for tests of several
// processes and of death. Fork while no other thread runs. Not synchronised.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace ucmstore::test {

class Children {
 public:
  Children() = default;
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children() {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  // `run` gives "" if all was well; else the child prints it and exits 1.
  pid_t Start(const std::function<std::string()>& run) {
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    if (pid == 0) {
      std::string problem;
      try {
        problem = run();
      } catch (const std::exception& error) {
        problem = error.what();
      }
      if (!problem.empty()) std::fprintf(stderr, "child: %s\n", problem.c_str());
      ::_exit(problem.empty() ? 0 : 1);
    }
    pids_.push_back(pid);
    return pid;
  }

  // Waits until a child has stopped (SIGSTOP).
  static void AwaitStop(pid_t pid) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, WUNTRACED), pid);
    ASSERT_TRUE(WIFSTOPPED(status));
  }

  // The same for those that all stop once: nobody goes on before everybody has come so far.
  std::vector<int> FinishStopped() {
    for (const pid_t pid : pids_) AwaitStop(pid);
    for (const pid_t pid : pids_) ::kill(pid, SIGCONT);
    return Finish();
  }

  // Waits for the end of all and gives their exit statuses; 128 + n for death by signal n.
  std::vector<int> Finish() {
    std::vector<int> codes;
    for (const pid_t pid : pids_) {
      int status = 0;
      ::waitpid(pid, &status, 0);
      codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
    pids_.clear();
    return codes;
  }

 private:
  std::vector<pid_t> pids_;
};

}  // namespace ucmstore::test
