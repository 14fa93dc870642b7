// SPDX-License-Identifier: Apache-2.0
//
// Locking, writing and comparing.
#include "store/posix/accord.h"

#include <spdlog/fmt/fmt.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <thread>

#include "io/psync.h"

namespace ucmstore {
namespace {

enum class Outcome : std::uint8_t { kAgreed, kDiffer, kAgain, kImpossible };

// One try. Thread-compatible; lives on the stack of Join.
class Attempt {
 public:
  Attempt(FileSystem& fs, const Limits& limits) : fs_(fs), limits_(limits) {}

  Outcome Try(int root, const Modes& modes);
  [[nodiscard]] File TakeFile() noexcept { return std::move(file_); }
  [[nodiscard]] const std::string& words() const noexcept { return words_; }

 private:
  Outcome Impossible(int error, const char* doing) {
    words_ = fmt::format("{}: {}", doing, ErrnoText(-error));
    return Outcome::kImpossible;
  }
  Outcome WriteAlone();
  Outcome Compare();

  FileSystem& fs_;
  const Limits& limits_;
  File file_;
  std::string words_;
};

Outcome Attempt::Try(int root, const Modes& modes) {
  const int fd =
      fs_.OpenAt(root, kCapacityName, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, modes.file);
  if (fd < 0) return Impossible(fd, "opening");
  file_ = File(fs_, fd);
  int taken = fs_.TryLock(fd, LockKind::kExclusive);
  const bool alone = taken == 0;
  if (taken == -EAGAIN) taken = fs_.TryLock(fd, LockKind::kShared);
  if (taken == -EAGAIN) return Outcome::kAgain;  // somebody is just writing
  if (taken < 0) return Impossible(taken, "locking");
  FileStat stat;
  const int known = fs_.Stat(fd, &stat);
  if (known < 0) return Impossible(known, "asking for its links");
  if (stat.kind != FileKind::kRegular) {
    words_ = "it is no regular file";
    return Outcome::kImpossible;
  }
  if (stat.links == 0) return Outcome::kAgain;
  if (!alone) return Compare();
  if (modes.exact) (void)fs_.SetMode(fd, modes.file);
  return WriteAlone();
}

Outcome Attempt::WriteAlone() {
  std::string text = PrintLimits(limits_);
  IoBatch batch;
  batch.Add(0, text.data(), text.size());
  const int written = batch.Write(fs_, file_.get());
  if (written < 0) return Impossible(written, "writing");
  const int shared = fs_.TryLock(file_.get(), LockKind::kShared);
  return shared < 0 ? Impossible(shared, "sharing its lock") : Outcome::kAgreed;
}

Outcome Attempt::Compare() {
  std::array<char, kMaxLimitsText> memory{};
  const iovec piece{.iov_base = memory.data(), .iov_len = memory.size()};
  const ssize_t size = fs_.ReadV(file_.get(), &piece, 1, 0);
  if (size < 0) return Impossible(static_cast<int>(size), "reading");
  const Result<Limits> there =
      ParseLimits(std::string_view(memory.data(), static_cast<std::size_t>(size)));
  if (there) {
    words_ = LimitsInWords(*there);
    return *there == limits_ ? Outcome::kAgreed : Outcome::kDiffer;
  }
  words_ = there.error().text();
  // Half a text: of one that was killed, and another newcomer is here, too.
  return there.error().code == Code::kUnsupported ? Outcome::kDiffer : Outcome::kAgain;
}

}  // namespace

Result<std::unique_ptr<Accord>> Accord::Join(FileSystem& fs, int root, const std::string& path,
                                             const Limits& limits, const Modes& modes) {
  std::unique_ptr<Accord> accord(new Accord(fs));
  std::string words;
  for (int i = 0; i < kMaxTries; ++i) {
    Attempt attempt(fs, limits);
    const Outcome outcome = attempt.Try(root, modes);
    words = attempt.words();
    switch (outcome) {
      case Outcome::kAgreed:
        accord->file_ = attempt.TakeFile();
        accord->guard_.emplace(accord->file_.get());
        return accord;
      case Outcome::kImpossible:
        accord->why_not_ = fmt::format("{}/{}: {}", path, kCapacityName, words);
        return accord;
      case Outcome::kDiffer:
        return Failure(
            Code::kInvalidArgument,
            fmt::format("{}: stores that are open here have {}; this one was given {}. All stores "
                        "of a root share one limit: give the same, or close those",
                        path, words, LimitsInWords(limits)));
      case Outcome::kAgain: break;
    }
    // A lock of another process: the kernel offers no wait for it that ends.
    std::this_thread::sleep_for(std::chrono::milliseconds(kPauseMs));  // style: nothing to wait for
  }
  return Failure(Code::kBusy, fmt::format("{}/{}: somebody has kept it locked for {} ms{}{}", path,
                                          kCapacityName, kMaxTries * kPauseMs,
                                          words.empty() ? "" : "; ", words));
}

bool Accord::StillNamed() const noexcept {
  FileStat stat;
  return held() && fs_.Stat(file_.get(), &stat) == 0 && stat.links > 0;
}

void RemoveUnheld(FileSystem& fs, int root) {
  bool alone = true;
  const int listed = fs.List(root, [&alone](std::string_view name) {
    alone = name == kCapacityName || name == kCollectorName;
    return alone;
  });
  if (listed < 0 || !alone) return;
  for (const char* name : {kCapacityName, kCollectorName}) {
    const File file(fs, fs.OpenAt(root, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0));
    // Under the lock: whoever has opened it meanwhile sees that it has no name.
    if (file && fs.TryLock(file.get(), LockKind::kExclusive) == 0) (void)fs.Unlink(root, name);
  }
}

}  // namespace ucmstore
