// SPDX-License-Identifier: Apache-2.0
//
// PosixWriter: one attempt at writing one block, into an activated file that no other attempt of
// any process shares. A whole block costs what a bare program's would: open, one pwritev of shards
// and footer, close, rename. Between calls no descriptor is held, so that any number of incomplete
// blocks costs none. Without a Commit that succeeded, the destructor removes the file.
// Thread-safe as BlockWriter asks: Writes of different shards may run at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/log.h"
#include "base/mutex.h"
#include "store/posix/counters.h"
#include "store/posix/footer.h"
#include "store/posix/reclaim.h"
#include "store/posix/root.h"
#include "store/posix/transfer.h"
#include "task/terminal_stage.h"

namespace ucmstore {

class PosixWriter final : public BlockWriter {
 public:
  // Called with a root whose folder seems to be gone: gives the one to use instead, or why not.
  using Renew = std::function<Result<std::shared_ptr<Root>>(const Root& gone)>;

  // `reclaim` (null: nobody) hears of the room that is taken, or missing.
  PosixWriter(std::shared_ptr<Root> root, const BlockId& id, PosixCounters& counters, Log& log,
              Renew renew = {}, Reclaim* reclaim = nullptr);
  PosixWriter(const PosixWriter&) = delete;
  PosixWriter& operator=(const PosixWriter&) = delete;
  ~PosixWriter() override;

  void Write(std::span<ShardIo> shards, bool last) override;
  Status Commit() override;
  void Abandon() noexcept override;

 private:
  struct Opened {
    File file;
    bool direct = false;
  };

  Status TryCommit();
  Status WriteShards(std::span<ShardIo> shards, bool last);
  Result<Opened> OpenActivated() UCMSTORE_EXCLUDES(mutex_);
  Result<Opened> Create() UCMSTORE_REQUIRES(mutex_);
  // kNotFound: the namespace's folder is gone.
  Result<Opened> TryCreate() UCMSTORE_REQUIRES(mutex_);
  // A descriptor or a negative errno. Where O_DIRECT is refused, goes on without.
  int OpenFile(int flags, bool* direct);
  Status MakeFolder();
  [[nodiscard]] TransferFile FileOf(const Opened& opened) const noexcept;
  // Syncs if asked to, and closes; gives what either reports.
  Status Finish(File& file, bool complete);
  Status SyncFolder();
  void TellIfFull(const Status& status) const noexcept;
  // The activated file's. Made when it is wanted: thousands of writers wait for their last shards.
  [[nodiscard]] Name name() const noexcept;
  [[nodiscard]] Status Removed() const;
  [[nodiscard]] Status Failed(int error, const char* doing) const;

  std::shared_ptr<Root> root_;  // constant once created_
  PosixCounters& counters_;
  Log& log_;
  const Renew renew_;
  Reclaim* const reclaim_;
  Footer footer_;                // shards[i] is written by the one Write of shard i
  bool footer_written_ = false;  // by the last Write, or by Commit: never at once
  bool committed_ = false;

  Mutex mutex_;
  WriterMark* mark_ UCMSTORE_GUARDED_BY(mutex_) = nullptr;
  bool created_ UCMSTORE_GUARDED_BY(mutex_) = false;
  WriterId writer_ = 0;  // these two are constant once created_
  std::uint64_t attempt_ = 0;
};

}  // namespace ucmstore
