// SPDX-License-Identifier: Apache-2.0
//
// flock(2) on the folder itself: no file is left behind, and it ends with its holder.
#include "shm/segment_folder.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/fmt/fmt.h>
#include <sys/file.h>

#include <cerrno>

namespace ucmstore {

Result<SegmentFolder> SegmentFolder::Open(const std::string& path) {
  SegmentFolder folder;
  folder.path_ = path;
  folder.fd_.Reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.fd_) {
    return std::unexpected(
        ErrnoStatus(errno, fmt::format("the folder for rings, '{}', cannot be opened", path)));
  }
  return folder;
}

std::string SegmentFolder::PathOf(const std::string& file_name) const {
  return path_.ends_with('/') ? path_ + file_name : path_ + '/' + file_name;
}

UniqueFd SegmentFolder::Lock(std::chrono::milliseconds patience,
                             const std::function<bool()>& give_up) const {
  constexpr int kRoundMs = 5;
  // An opening of its own: the lock belongs to it.
  UniqueFd lock(::openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto until = std::chrono::steady_clock::now() + patience;
  while (lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    const bool held = errno == EWOULDBLOCK || errno == EINTR;
    if (!held || std::chrono::steady_clock::now() >= until || give_up()) return UniqueFd();
    (void)::poll(nullptr, 0, kRoundMs);
  }
  return lock;
}

}  // namespace ucmstore
