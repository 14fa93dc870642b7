// SPDX-License-Identifier: Apache-2.0
//
// AdminTableV1: the optional table "admin/1" of a stage whose medium lies at rest, such as files.
// It looks at the medium without opening a store, so it has no StoreV1: ask PluginV1::query with a
// null store. `ucmstore ls`, `inspect`, `verify` and `purge` are made of it. FROZEN (types.h).
// Thread-safety: every function may be called from any thread, in any process, while stores use
// the medium. Strings passed to callbacks are valid during the callback only.
#pragma once

#include "ucmstore/status.h"

namespace ucmstore {

enum class AdminKind : std::uint32_t {
  kNamespace = 0,  // a namespace and its description
  kBlock = 1,      // a visible block
  kActivated = 2,  // a block being written, or left behind by a dead writer
  kSetAside = 3,   // a block once judged corrupt
  kWriter = 4,     // the mark of a writer
  kForeign = 5,    // anything else
  kSegment = 6,    // shared memory that processes keep blocks in
};

enum class AdminVerdict : std::uint32_t {
  kGood = 0,        // as far as it was looked at: see kAdminRead
  kTorn = 1,        // a wrong size: a miss
  kCorrupt = 2,     // a checksum, id, fingerprint or field is wrong
  kInUse = 3,       // belongs to a live writer
  kLeftover = 4,    // belongs to a dead writer
  kUnreadable = 5,  // the medium failed; the file may be good
  kUnknown = 6,     // foreign or set aside: nothing is promised about it
};

// What was done with an entry.
enum class AdminAction : std::uint32_t { kNone = 0, kSetAside = 1, kRemoved = 2, kFailed = 3 };

struct AdminEntryV1 {
  std::uint32_t struct_size;
  AdminKind kind;
  AdminVerdict verdict;
  AdminAction action;
  const char* path;
  const char* namespace_label;
  const char* text;          // why, in words; "" if good
  std::uint64_t size_bytes;  // apparent
  std::uint64_t disk_bytes;  // what it costs on the medium
  std::int64_t mtime_ns;     // since the epoch
};

// Flags of walk.
inline constexpr std::uint32_t kAdminRead = 1U << 0;    // read everything, check every checksum
inline constexpr std::uint32_t kAdminRepair = 1U << 1;  // set bad blocks aside, remove leftovers
inline constexpr std::uint32_t kAdminPurge = 1U << 2;   // remove the blocks, leftovers, set-asides
inline constexpr std::uint32_t kAdminFlags = kAdminRead | kAdminRepair | kAdminPurge;

struct AdminTableV1 {
  std::uint32_t struct_size;
  std::uint32_t reserved;
  // Describes the block file, namespace or root at `path`: one call of `field` for each fact.
  Status (*inspect)(const char* path, void* ctx,
                    void (*field)(void* ctx, const char* name, const char* value));
  // Visits everything below `root`, or below one namespace of it (label; null: all). Never touches
  // what a live writer owns. `entry` returns false to stop early. Each entry is reported after it
  // was dealt with. `total` gets the number of files beforehand, for a progress bar (may be null).
  Status (*walk)(const char* root, const char* namespace_label, std::uint32_t flags, void* ctx,
                 void (*total)(void* ctx, std::uint64_t files),
                 bool (*entry)(void* ctx, const AdminEntryV1* entry));
};

static_assert(sizeof(AdminEntryV1) == 64 && sizeof(AdminTableV1) == 24);

}  // namespace ucmstore
