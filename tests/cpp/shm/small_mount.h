// SPDX-License-Identifier: Apache-2.0
//
// InSmallMount: runs a test's body in a child process that has a little tmpfs of its own, which
// nobody else sees and which goes with it. Works for root, and for anybody where the kernel grants
// user namespaces. Not synchronised.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>

namespace ucmstore::test {

enum class MountOutcome { kPassed, kFailed, kForbidden };

inline bool WriteLine(const char* path, const std::string& text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  const bool written = fd >= 0 && ::write(fd, text.data(), text.size()) > 0;
  if (fd >= 0) ::close(fd);
  return written;
}

// Gives the child a mount namespace; outside of root, a user namespace in which it is root.
inline bool EnterMountNamespace() {
  if (::unshare(CLONE_NEWNS) == 0) return true;
  const std::string uid = std::to_string(::geteuid());
  const std::string gid = std::to_string(::getegid());
  return ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 &&
         WriteLine("/proc/self/uid_map", "0 " + uid + " 1") &&
         WriteLine("/proc/self/setgroups", "deny") &&
         WriteLine("/proc/self/gid_map", "0 " + gid + " 1");
}

// `run` gets the mount's folder, made from `folder`, and gives "" if all was well.
inline MountOutcome InSmallMount(const std::string& folder, const std::string& options,
                                 const std::function<std::string(const std::string&)>& run) {
  constexpr int kForbidden = 77;
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (!EnterMountNamespace() ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", folder.c_str(), "tmpfs", 0, options.c_str()) != 0) {
      ::_exit(kForbidden);
    }
    const std::string problem = run(folder);
    if (!problem.empty()) std::fprintf(stderr, "in the small mount: %s\n", problem.c_str());
    ::_exit(problem.empty() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFSIGNALED(status)) std::fprintf(stderr, "killed by signal %d\n", WTERMSIG(status));
  if (!WIFEXITED(status)) return MountOutcome::kFailed;
  if (WEXITSTATUS(status) == kForbidden) return MountOutcome::kForbidden;
  return WEXITSTATUS(status) == 0 ? MountOutcome::kPassed : MountOutcome::kFailed;
}

}  // namespace ucmstore::test
