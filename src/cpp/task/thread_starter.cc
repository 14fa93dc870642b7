// SPDX-License-Identifier: Apache-2.0
//
// Starting a thread, and the words when there is none.
#include "task/thread_starter.h"

#include <pthread.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace ucmstore {
namespace {

// Threads inherit the signal mask of whoever starts them.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

std::string ProcessLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NPROC, &limit) != 0) return "unknown";
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur);
}

}  // namespace

int StartThread(const ThreadStarter& starter, std::function<void()> function,
                std::thread* thread) noexcept {
  const SignalsBlocked blocked;
  try {
    *thread = starter ? starter(std::move(function)) : std::thread(std::move(function));
    return 0;
  } catch (const std::system_error& error) {
    const int code = error.code().value();
    return code != 0 ? code : EAGAIN;
  } catch (...) {  // out of memory for the thread's state
    return ENOMEM;
  }
}

Status NoThreadStatus(std::string_view what, int error) noexcept {
  return ErrorInWords(
      Code::kLimit, "no thread could be started: raise ulimit -u or the pids cgroup's pids.max",
      [&] {
        return "no " + std::string(what) + " could be started: " + ErrnoText(error) +
               "; RLIMIT_NPROC is " + ProcessLimit() +
               ": raise it (ulimit -u) or the pids cgroup's pids.max";
      },
      error);
}

}  // namespace ucmstore
