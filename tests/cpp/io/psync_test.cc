// SPDX-License-Identifier: Apache-2.0
//
// IoBatch: whatever the kernel leaves short, interrupts or refuses, all bytes move or an error says
// so.
#include "io/psync.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <vector>

#include "base/aligned_buffer.h"
#include "io/hooked_fs.h"
#include "support/temp_dir.h"

namespace ucmstore::test {
namespace {

class IoBatchTest : public ::testing::Test {
 protected:
  File Open(int flags) {
    const std::string path = dir_.string() + "/file";
    const int fd = fs_.OpenAt(AT_FDCWD, path.c_str(), O_RDWR | O_CREAT | flags, 0600);
    EXPECT_GE(fd, 0) << fd;
    return {fs_, fd};
  }
  static std::vector<std::byte> Pattern(std::size_t size) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 131 + i / 256);
    return bytes;
  }

  TempDir dir_;
  HookedFs fs_;
  IoBatch batch_;
};

// Writes `bytes` cut into pieces at offset 0, reads them back in other pieces.
void ForthAndBack(FileSystem& fs, int fd, IoBatch& batch, std::vector<std::byte> bytes,
                  std::size_t write_piece, std::size_t read_piece) {
  const auto move = [&](std::vector<std::byte>& memory, std::size_t piece, bool write) {
    std::size_t at = 0;
    while (at < memory.size()) {
      while (at < memory.size() && !batch.full()) {
        const std::size_t part = std::min(piece, memory.size() - at);
        batch.Add(at, memory.data() + at, part);
        at += part;
      }
      ASSERT_EQ(write ? batch.Write(fs, fd) : batch.Read(fs, fd), 0);
    }
  };
  move(bytes, write_piece, true);
  std::vector<std::byte> back(bytes.size());
  move(back, read_piece, false);
  EXPECT_EQ(back, bytes);
}

TEST_F(IoBatchTest, MovesPiecesThatFollowOneAnotherInOneCall) {
  const File file = Open(0);
  std::vector<std::byte> bytes = Pattern(3000);
  fs_.Set([](const Call& /*call*/) { return HookedFs::kGoOn; });
  batch_.Add(0, bytes.data(), 1000);
  batch_.Add(1000, bytes.data() + 1000, 0);
  batch_.Add(1000, bytes.data() + 1000, 2000);
  EXPECT_EQ(batch_.Write(fs_, file.get()), 0);
  EXPECT_EQ(fs_.calls(), 1U);
  batch_.Add(0, bytes.data(), 10);
  batch_.Add(20, bytes.data(), 10);
  EXPECT_EQ(batch_.Read(fs_, file.get()), 0);
  EXPECT_EQ(fs_.calls(), 3U);
}

TEST_F(IoBatchTest, SplitsWhatIsMoreThanOneCallTakes) {
  const File file = Open(0);
  ForthAndBack(fs_, file.get(), batch_, Pattern(40'000), 7, 13);
}

TEST_F(IoBatchTest, FinishesShortTransfers) {
  const File file = Open(0);
  fs_.Set([](const Call& call) { return call.nth % 2 == 0 ? HookedFs::kShort : HookedFs::kGoOn; });
  ForthAndBack(fs_, file.get(), batch_, Pattern(100'000), 5000, 3333);
  fs_.Set([](const Call& /*call*/) { return HookedFs::kShort; });
  ForthAndBack(fs_, file.get(), batch_, Pattern(10'000), 500, 333);
}

TEST_F(IoBatchTest, RepeatsWhatASignalInterruptedButNotForEver) {
  const File file = Open(0);
  fs_.Set([](const Call& call) { return call.nth % 3 != 2 ? -EINTR : HookedFs::kGoOn; });
  ForthAndBack(fs_, file.get(), batch_, Pattern(50'000), 5000, 7000);
  fs_.Set([](const Call& /*call*/) { return -EINTR; });
  std::byte byte{};
  batch_.Add(0, &byte, 1);
  EXPECT_EQ(batch_.Read(fs_, file.get()), -EINTR);
}

TEST_F(IoBatchTest, SaysWhatFailed) {
  const File file = Open(0);
  std::vector<std::byte> bytes = Pattern(100);
  fs_.Set([](const Call& call) { return call.nth == 1 ? -ENOSPC : HookedFs::kShort; });
  batch_.Add(0, bytes.data(), 100);
  EXPECT_EQ(batch_.Write(fs_, file.get()), -ENOSPC);
  EXPECT_TRUE(batch_.empty());
  fs_.Clear();
  batch_.Add(0, bytes.data(), 100);
  EXPECT_EQ(batch_.Read(fs_, file.get()), -ENODATA) << "the file ends after 50 bytes";
}

TEST_F(IoBatchTest, DropsDirectWhereItIsRefusedAndSaysSo) {
  const File file = Open(0);
  std::vector<std::byte> bytes = Pattern(3 * kPageSize);
  int refusals = 1;
  fs_.Set([&refusals](const Call& call) {
    return call.op == Op::kWrite && refusals-- > 0 ? -EINVAL : HookedFs::kGoOn;
  });
  batch_.Add(0, bytes.data(), bytes.size());
  EXPECT_EQ(batch_.Write(fs_, file.get()), 0);
  EXPECT_EQ(batch_.fallbacks(), 1U);
  refusals = 2;  // a refusal that is not about O_DIRECT
  batch_.Add(0, bytes.data(), bytes.size());
  EXPECT_EQ(batch_.Write(fs_, file.get()), -EINVAL);
}

TEST_F(IoBatchTest, AShortDirectTransferThatLeavesItMisalignedIsFinishedBuffered) {
  File file = Open(O_DIRECT);
  AlignedBuffer buffer;
  const std::span<std::byte> memory = buffer.Reserve(4 * kPageSize);
  const std::vector<std::byte> pattern = Pattern(memory.size());
  std::ranges::copy(pattern, memory.begin());
  batch_.Add(0, memory.data(), 1024);  // half of it, 512, is aligned; half of the rest is not
  batch_.Add(1024, memory.data() + 1024, memory.size() - 1024);
  fs_.Set([](const Call& call) { return call.nth < 4 ? HookedFs::kShort : HookedFs::kGoOn; });
  EXPECT_EQ(batch_.Write(fs_, file.get()), 0);
  fs_.Clear();
  file = Open(0);
  std::vector<std::byte> back(memory.size());
  batch_.Add(0, back.data(), back.size());
  EXPECT_EQ(batch_.Read(fs_, file.get()), 0);
  EXPECT_EQ(back, pattern);
}

TEST_F(IoBatchTest, MemoryThatIsNoneIsAnErrorNotASignal) {
  const File file = Open(0);
  batch_.Add(0, reinterpret_cast<void*>(kPageSize), 100);
  EXPECT_EQ(batch_.Write(fs_, file.get()), -EFAULT);
}

}  // namespace
}  // namespace ucmstore::test
