// SPDX-License-Identifier: Apache-2.0
//
// The loops a store is measured against: the system calls that no file store can do without, on one
// thread, with nothing around them. Built as a shared object by bench/bare.py and called from
// the process that measures the store, in turns with it.
// Ids are 16 bytes each; the file of an id is <folder>/<first digits>/<32 digits>, as a store's is.
// `prefix_digits`: at most 5. Each function gives the nanoseconds it took, or -errno. No state, so
// thread-safe.
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

namespace {

std::int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// "<first digits>/<32 digits>", then, if temporary, ".tmp".
struct Name {
  std::array<char, 48> text{};

  Name(const std::uint8_t* id, std::uint32_t prefix_digits, bool temporary) {
    constexpr char kDigits[] = "0123456789abcdef";
    char* out = text.data();
    for (std::uint32_t i = 0; i < prefix_digits; ++i) {
      *out++ = kDigits[i % 2 == 0 ? id[i / 2] >> 4U : id[i / 2] & 15U];
    }
    *out++ = '/';
    for (const std::uint8_t byte : std::span(id, 16)) {
      *out++ = kDigits[byte >> 4U];
      *out++ = kDigits[byte & 15U];
    }
    if (temporary) {
      for (const char c : {'.', 't', 'm', 'p'}) *out++ = c;
    }
  }
  [[nodiscard]] const char* c_str() const { return text.data(); }
};

// 0, or an errno.
int WriteWhole(int fd, const char* data, std::uint64_t size) {
  for (std::uint64_t done = 0; done < size;) {
    const ssize_t n = pwrite(fd, data + done, size - done, static_cast<off_t>(done));
    if (n < 0) return errno;
    done += static_cast<std::uint64_t>(n);
  }
  return 0;
}

int ReadWhole(int fd, char* data, std::uint64_t size) {
  for (std::uint64_t done = 0; done < size;) {
    const ssize_t n = pread(fd, data + done, size - done, static_cast<off_t>(done));
    if (n < 0) return errno;
    if (n == 0) return EIO;
    done += static_cast<std::uint64_t>(n);
  }
  return 0;
}

}  // namespace

#define BENCH_EXPORT extern "C" __attribute__((visibility("default")))

// Stats each id's file; `found` gets how many there are.
BENCH_EXPORT std::int64_t bare_stat(int folder, std::uint32_t prefix_digits,
                                    const std::uint8_t* ids, std::uint64_t count,
                                    std::uint64_t* found) {
  const std::int64_t begin = NowNs();
  *found = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    struct stat status{};
    const Name name(ids + 16 * i, prefix_digits, false);
    if (fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
      ++*found;
    } else if (errno != ENOENT) {
      return -errno;
    }
  }
  return NowNs() - begin;
}

// Writes each block to a temporary name and renames it. `each_ns`: one figure a block, or null.
BENCH_EXPORT std::int64_t bare_write(int folder, std::uint32_t prefix_digits,
                                     const std::uint8_t* ids, std::uint64_t count, const char* data,
                                     std::uint64_t block_bytes, int direct, std::int64_t* each_ns) {
  const std::int64_t begin = NowNs();
  std::int64_t last = begin;
  for (std::uint64_t i = 0; i < count; ++i) {
    const Name temporary(ids + 16 * i, prefix_digits, true);
    const int flags = O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | (direct != 0 ? O_DIRECT : 0);
    const int fd = openat(folder, temporary.c_str(), flags, 0600);
    if (fd < 0) return -errno;
    const int error = WriteWhole(fd, data + block_bytes * i, block_bytes);
    close(fd);
    if (error != 0) return -error;
    const Name final_name(ids + 16 * i, prefix_digits, false);
    if (renameat(folder, temporary.c_str(), folder, final_name.c_str()) != 0) return -errno;
    const std::int64_t now = NowNs();
    if (each_ns != nullptr) each_ns[i] = now - last;
    last = now;
  }
  return last - begin;
}

// Reads each block whole.
BENCH_EXPORT std::int64_t bare_read(int folder, std::uint32_t prefix_digits,
                                    const std::uint8_t* ids, std::uint64_t count, char* data,
                                    std::uint64_t block_bytes, int direct, std::int64_t* each_ns) {
  const std::int64_t begin = NowNs();
  std::int64_t last = begin;
  for (std::uint64_t i = 0; i < count; ++i) {
    const int flags = O_RDONLY | O_CLOEXEC | (direct != 0 ? O_DIRECT : 0);
    const int fd = openat(folder, Name(ids + 16 * i, prefix_digits, false).c_str(), flags);
    if (fd < 0) return -errno;
    const int error = ReadWhole(fd, data + block_bytes * i, block_bytes);
    close(fd);
    if (error != 0) return -error;
    const std::int64_t now = NowNs();
    if (each_ns != nullptr) each_ns[i] = now - last;
    last = now;
  }
  return last - begin;
}
