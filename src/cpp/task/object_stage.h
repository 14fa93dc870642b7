// SPDX-License-Identifier: Apache-2.0
//
// ObjectStage: everything of a terminal stage whose medium can only tell, get and put whole objects
// by name, as a key-value server or an object store can. It makes one object of each block, which
// says what it is and carries checksums (object_format.h), and asks a derived class for three
// things: Has, Get and Put. With it a medium is thirty lines; see docs/plugins.md.
// Part of the SDK, NOT frozen. Thread-safety: StoreV1's; Has, Get and Put are called from many
// threads at once, may block and may throw.
//
// Names are "<namespace>/<32 hex digits>" for blocks, and "<namespace>/UCMSTORE" for the object
// that says of what kind they are: a store that is opened with another geometry or content is
// refused. A load gets the whole object, however few of its shards it wants: load whole blocks.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/block_id_hash.h"
#include "base/mutex.h"
#include "task/object_format.h"
#include "task/terminal_stage.h"

namespace ucmstore {

using Object = std::vector<std::byte>;

struct ObjectTraits {
  bool in_memory = false;  // what Lookup says of a hit: kInMemory, else kBelow
  // Blocks that are being written wait in memory for their last shard; more bytes than that are
  // refused (kBusy), but for a single block.
  std::uint64_t max_incomplete_bytes = std::uint64_t{1} << 30;
};

class ObjectStage : public TerminalStage {
 public:
  ~ObjectStage() override;

 protected:
  explicit ObjectStage(std::string name, const ObjectTraits& traits = {});

  // Opens the medium. Called once, from one thread, before the others.
  virtual Status OpenMedium(const StageSetup& /*setup*/) { return Status::Ok(); }
  // Whether there is an object of this name. An error means that this could not be found out.
  virtual Result<bool> Has(const std::string& name) = 0;
  // The object as it was put, whole; kNotFound if there is none. What else comes is noticed.
  virtual Result<Object> Get(const std::string& name) = 0;
  // Puts the object, in the place of one that is there. Atomic by the medium's own promise: nobody
  // ever sees a part of it.
  virtual Status Put(const std::string& name, Object object) = 0;
  // Writes 1 to found[i] where names[i] is there; it comes zeroed. For a medium that can be asked
  // for many at once; as it stands it is asked for one after the other. `stop_at_miss`: what
  // follows the first miss may be left out.
  virtual Status HasEach(std::span<const std::string> names, bool stop_at_miss,
                         std::uint8_t* found);

 private:
  class Writer;

  Status Open(const StageSetup& setup) final;
  Status Find(std::span<const BlockId> blocks, std::uint32_t flags, std::uint8_t* found) final;
  void Read(const BlockId& block, std::span<ShardIo> shards) final;
  Result<std::unique_ptr<BlockWriter>> Create(const BlockId& block) final;

  [[nodiscard]] std::string NameOf(const BlockId& block) const;
  // Makes the object that says of what kind the blocks are, or compares it with this store's.
  Status AdoptKind();
  // Ends those shards whose bytes are right. Not ok: the others are not, and why.
  [[nodiscard]] Status Deliver(const BlockId& block, const Object& object,
                               std::span<ShardIo> shards) const;
  [[nodiscard]] bool Reserve(std::uint64_t bytes) noexcept;
  void Release(std::uint64_t bytes) noexcept;
  void Suspect(const BlockId& block);
  void Trust(const BlockId& block);
  [[nodiscard]] bool IsSuspect(const BlockId& block);

  const ObjectTraits traits_;
  ObjectKind kind_;
  std::string prefix_;
  std::atomic<std::uint64_t> incomplete_bytes_{0};

  // Blocks whose object is there but wrong: absent, until a dump puts them anew. Bounded; one that
  // is forgotten is found out again by the next load.
  Mutex mutex_;
  std::unordered_set<BlockId, BlockIdHash> suspects_ UCMSTORE_GUARDED_BY(mutex_);
  std::deque<BlockId> suspects_by_age_ UCMSTORE_GUARDED_BY(mutex_);
};

}  // namespace ucmstore
