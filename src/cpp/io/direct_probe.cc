// SPDX-License-Identifier: Apache-2.0
//
// The probe: create, forget the name, write a page, read it back, compare.
#include "io/direct_probe.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "io/psync.h"

namespace ucmstore {
namespace {

DirectVerdict Refused(std::string reason) {
  DirectVerdict verdict;
  verdict.reason = std::move(reason);
  return verdict;
}

// Moves one aligned page forth and back. "" if it came back as it went.
std::string TryPage(FileSystem& fs, int fd, std::uint32_t length) {
  AlignedBuffer buffer;
  const std::span<std::byte> pages = buffer.Reserve(std::size_t{2} * length);
  if (pages.empty()) return "out of memory";
  const std::span<std::byte> out = pages.first(length);
  const std::span<std::byte> in = pages.subspan(length);
  std::fill(out.begin(), out.end(), std::byte{0x5A});
  std::fill(in.begin(), in.end(), std::byte{0});
  IoBatch batch;
  batch.Add(0, out.data(), length);
  int result = batch.Write(fs, fd);
  if (result == 0 && batch.fallbacks() == 0) {
    batch.Add(0, in.data(), length);
    result = batch.Read(fs, fd);
  }
  if (batch.fallbacks() != 0) return "an aligned transfer is refused";
  if (result < 0) return fmt::format("an aligned transfer fails: {}", ErrnoText(-result));
  if (std::memcmp(out.data(), in.data(), length) != 0) return "a page came back changed";
  return "";
}

}  // namespace

DirectVerdict ProbeDirect(FileSystem& fs, int folder, const char* temporary, std::uint32_t mode,
                          std::uint32_t unit) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW;
  int fd = fs.OpenAt(folder, temporary, kFlags | O_DIRECT, mode);
  if (fd == -EINVAL) {
    // The kernel may have made the file before it refused the flag (open(2), BUGS).
    (void)fs.Unlink(folder, temporary);
    return Refused("opening with O_DIRECT is refused");
  }
  if (fd < 0) {
    DirectVerdict verdict = Refused(ErrnoText(-fd));
    verdict.error = fd;
    return verdict;
  }
  const File file(fs, fd);
  (void)fs.Unlink(folder, temporary);
  DirectVerdict verdict;
  const int asked = fs.Alignment(fd, &verdict.alignment);
  if (asked < 0) return Refused(fmt::format("asking for its alignment: {}", ErrnoText(-asked)));
  const DirectAlignment& needs = verdict.alignment;
  if (needs.memory == 0 || needs.offset == 0) return Refused("the file system does not support it");
  if (needs.offset > unit || needs.memory > kPageSize) {
    return Refused(fmt::format("it asks for {}-byte offsets and {}-byte addresses, more than {}",
                               needs.offset, needs.memory, unit));
  }
  verdict.reason = TryPage(fs, fd, unit);
  verdict.usable = verdict.reason.empty();
  return verdict;
}

}  // namespace ucmstore
