// SPDX-License-Identifier: Apache-2.0
//
// BlockReader: gives shards of one block exactly as they were dumped, or says why not. The name
// says where, fstat says whole, the footer says right: magic, id, fingerprint, geometry, content,
// then each shard's checksum. What is wrong is read once more, past every cache of ours; wrong
// twice in the same file is corrupt, and the file is set aside. An I/O error is an error, and the
// file stays. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "store/posix/counters.h"
#include "store/posix/footer_cache.h"
#include "store/posix/root.h"
#include "store/posix/transfer.h"
#include "task/terminal_stage.h"

namespace ucmstore {

class BlockReader {
 public:
  BlockReader(Root& root, FooterCache& cache, PosixCounters& counters, Log& log) noexcept
      : root_(root), cache_(cache), counters_(counters), log_(log) {}

  // Ends every shard.
  void Read(const BlockId& id, std::span<ShardIo> shards);
  // The time of the file that was read; nothing: there was none.
  [[nodiscard]] const std::optional<std::int64_t>& mtime_ns() const noexcept { return mtime_ns_; }

 private:
  struct Attempt;

  // One reading: ends what is right or plainly failed, leaves what is suspicious.
  void Try(const BlockId& id, std::span<ShardIo> shards, bool use_cache, Attempt* attempt);
  void Open(const BlockId& id, Attempt* attempt);
  void LearnFooter(const BlockId& id, std::span<ShardIo> shards, bool use_cache, Attempt* attempt);
  void Plan(std::span<ShardIo> shards, Attempt* attempt);
  void Move(const BlockId& id, Attempt* attempt);
  void ReadFooter(const BlockId& id, Attempt* attempt);
  void Accept(const BlockId& id, Result<Footer>& parsed, Attempt* attempt);
  void Settle(const BlockId& id, std::span<ShardIo> shards, Attempt* attempt);

  void GiveUp(const BlockId& id, std::span<ShardIo> shards, const Attempt& attempt);
  [[nodiscard]] TransferFile FileOf(const Attempt& attempt) const noexcept;
  [[nodiscard]] std::string PathOf(const BlockId& id) const;
  [[nodiscard]] Status Failed(const BlockId& id, int error, const char* doing) const;

  Root& root_;
  FooterCache& cache_;
  PosixCounters& counters_;
  Log& log_;
  std::optional<std::int64_t> mtime_ns_;
};

// "" if the footer is that of `id` in a namespace of this file; else what differs.
[[nodiscard]] std::string FooterMismatch(const Footer& footer, const BlockId& id,
                                         const RootFile& root, bool full);

}  // namespace ucmstore
