// SPDX-License-Identifier: Apache-2.0
//
// From an errno to words: what the kernel said, and, where a limit was hit, which one, how high it
// is now, and how it is raised. See result.h.
#include "base/result.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace ucmstore {
namespace {

std::string LimitText(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) return "unknown";
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur);
}

// A number that the kernel keeps in a file below /proc/sys; "unknown" if it cannot be read, which
// happens when descriptors are what has run out.
std::string SysctlText(const char* path) {
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path, "re"));
  char line[32] = {};
  if (!file || std::fgets(line, sizeof(line), file.get()) == nullptr) return "unknown";
  line[std::strcspn(line, " \t\n")] = '\0';
  return line;
}

// Which limit and what to do; "" where the errno says all there is to say. Short, so that a long
// path and the errno's own text still fit into a Status.
std::string RemedyText(int error) {
  switch (error) {
    case EMFILE:
      return "; RLIMIT_NOFILE is " + LimitText(RLIMIT_NOFILE) +
             ": raise it (ulimit -n) or open fewer files";
    case ENFILE:
      return "; fs.file-max is " + SysctlText("/proc/sys/fs/file-max") +
             " for this machine: raise it (sysctl fs.file-max)";
    case ENOMEM:
      return "; RLIMIT_AS is " + LimitText(RLIMIT_AS) + ", vm.max_map_count is " +
             SysctlText("/proc/sys/vm/max_map_count") + ": free memory or raise them";
    case EFBIG:
      return "; RLIMIT_FSIZE is " + LimitText(RLIMIT_FSIZE) +
             ": raise it (ulimit -f), or use another file system";
    default: return {};
  }
}

}  // namespace

Code CodeOfErrno(int error) noexcept {
  switch (error) {
    case ENOSPC:
    case EDQUOT: return Code::kNoSpace;
    case ENOENT: return Code::kNotFound;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EFBIG: return Code::kLimit;
    case EINVAL:
    case ENOSYS:
    case EOPNOTSUPP: return Code::kUnsupported;
    default: return Code::kIoError;
  }
}

std::string ErrnoText(int error) {
  char buffer[128];
  // The GNU function: it may answer with a text of its own and leave the buffer alone.
  const char* text = strerror_r(error, buffer, sizeof(buffer));
  return std::string(text) + " (errno " + std::to_string(error) + ")";
}

Status ErrnoStatus(int error, std::string_view text) {
  std::string message(text);
  message += ": ";
  message += ErrnoText(error);
  message += RemedyText(error);
  return Status::Error(CodeOfErrno(error), message, error);
}

}  // namespace ucmstore
