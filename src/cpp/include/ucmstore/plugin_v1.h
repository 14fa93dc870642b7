// SPDX-License-Identifier: Apache-2.0
//
// PluginV1: how a shared object provides one stage. It exports one symbol, `ucmstore_plugin_v1`, a
// function that returns a constant table. FROZEN (see types.h): a table may only grow at its end,
// and the host reads no further than `struct_size`.
//
// The side that creates destroys: the host never frees a stage itself. Objects are loaded with
// RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE and never unloaded, since a stage's threads may outlive it.
// Thread-safety: the table is constant; create, destroy and query may be called from any thread.
#pragma once

#include "ucmstore/store_v1.h"

namespace ucmstore {

inline constexpr std::uint32_t kPluginAbi = 1;
inline constexpr const char* kPluginSymbol = "ucmstore_plugin_v1";

// ---- options ---------------------------------------------------------------------------------

enum class OptionType : std::uint32_t {
  kBool = 0,    // true | false
  kInt = 1,     // a signed integer; range "MIN..MAX"
  kFloat = 2,   // a number; range "MIN..MAX"
  kSize = 3,    // bytes, written as 4096, "64KiB", "2GB"; range "MIN..MAX" in the same form, or
                // "auto|MIN..MAX": the word is allowed, too, and comes as 0, or -1 if 0 is allowed
  kString = 4,  // text; range "" (any), or the allowed words "a|b|c"
  kList = 5,    // a list of texts, or one text
};

// One option of a stage: the only place it is written. The host checks, completes, documents and
// types from it. `default_text` is parsed as the type says; null: the option must be given.
// `range` null or "": any value of the type.
struct OptionSpecV1 {
  const char* name;  // snake_case, units last
  OptionType type;
  std::uint32_t flags;  // zero
  const char* default_text;
  const char* range;
  const char* help;  // one line
};

// One option's value, already checked against its spec. The host hands over exactly one for each
// spec of the stage, in the order of the table. Owned by the host, valid during Setup.
struct OptionValueV1 {
  const char* name;
  OptionType type;
  std::uint32_t is_default;  // 1: the user did not give it
  std::int64_t integer;      // kBool (0, 1), kInt, kSize
  double number;             // kFloat
  const char* text;          // kString
  const char* const* list;   // kList
  std::uint64_t list_count;
};

// ---- setup -----------------------------------------------------------------------------------

struct PluginV1;

struct SetupV1 {
  std::uint32_t struct_size = sizeof(SetupV1);
  std::uint32_t flags = 0;             // none defined yet
  StoreV1* below = nullptr;            // the store below; null for a terminal stage
  std::uint64_t shard_size = 0;        // of what this stage gets from above, in bytes
  std::uint32_t shards_per_block = 0;  // at least 1
  std::uint32_t option_count = 0;      // of `options`
  const char* namespace_text = "";     // canonical description, lines of "field: value"
  const char* namespace_label = "";    // short, [A-Za-z0-9._-]{1,80}, unique to the fingerprint
  std::uint8_t fingerprint[32] = {};   // SHA-256 of namespace_text
  const char* content = "raw";         // how the stages above transformed the bytes of a shard
  const OptionValueV1* options = nullptr;
  void* runtime =
      nullptr;  // opaque; a stage that does not know it ignores it (SDK: task/runtime.h)
  // The table of the store below, so that a stage can ask it for cancel, flush, remove and so on
  // (PluginV1::query with `below`). Null for a terminal stage, and where the host has none.
  const PluginV1* below_plugin = nullptr;
  std::uint64_t reserved[3] = {};
};

// ---- optional tables, by name through PluginV1::query ------------------------------------------
// Each begins with its own struct_size. A name, once published, is frozen as everything here is;
// a new ability is a new name. So none of these ever needs a StoreV2.

// "cancel/1": cancels, at best, the shards of a task that have not begun. kNotFound: no such task.
struct CancelTableV1 {
  std::uint32_t struct_size;
  std::uint32_t reserved;
  Status (*cancel)(StoreV1* store, TaskId task);
};

// "stats/1": gives each of the stage's figures once. A counter only grows.
enum class MetricKind : std::uint32_t { kCounter = 0, kGauge = 1 };
struct MetricV1 {
  const char* name;  // snake_case, unit last: "load_bytes", "lookup_hits"
  MetricKind kind;
  std::uint32_t reserved;
  double value;
};
struct StatsTableV1 {
  std::uint32_t struct_size;
  std::uint32_t reserved;
  void (*visit)(StoreV1* store, void* ctx, void (*metric)(void* ctx, const MetricV1* metric));
};

// "flush/1": waits, at most timeout_ms, until everything confirmed so far is on the medium below.
struct FlushTableV1 {
  std::uint32_t struct_size;
  std::uint32_t reserved;
  Status (*flush)(StoreV1* store, std::uint32_t timeout_ms);
};

// "remove/1": makes the blocks absent; a block that is not there is not an error.
struct RemoveTableV1 {
  std::uint32_t struct_size;
  std::uint32_t reserved;
  Status (*remove)(StoreV1* store, const BlockId* blocks, std::uint32_t count);
};

// "identity/1": says, in words, which stored blocks this store reaches: the same in every process
// that reaches the same ones, another where they are others. Stages in front share what they keep
// by it. No text at all: it reaches what no other process does. Call it after Setup.
struct IdentityTableV1 {
  std::uint32_t struct_size;
  std::uint32_t reserved;
  void (*identity)(StoreV1* store, void* ctx, void (*text)(void* ctx, const char* text));
};

// "leases/1": lends the memory in which a stage keeps blocks, so that the caller reads and writes
// it in place. A lease pins one block there until it is released; its memory is the caller's for so
// long, also when the store has been closed meanwhile. Shard i of a lease lies at
// base + i * shard_stride of the memory (`memory`), which may be registered with a device once.
//
// Leases are had and given back through a book, which outlives its store. What is left in a book
// that is closed is released; after that nothing of the memory may be touched. Leases end with
// their process. After a fork the child's calls are kClosed, and close does nothing.
// Thread-safe, but for close: no other call of the book may be in progress or follow.
struct LeaseBook;               // the stage's own
using LeaseId = std::uint64_t;  // 0 is never a lease; one of another book, or released, is unknown

// What became of one block of a call.
struct LeaseV1 {
  LeaseId lease = 0;     // 0: there is none
  void* base = nullptr;  // of the block's first shard
  Code code = Code::kOk;
  std::uint32_t reserved = 0;
};

struct LeaseMemoryV1 {
  void* base = nullptr;  // of all blocks' shards together
  std::uint64_t bytes = 0;
  std::uint64_t shard_stride = 0;  // at least shard_size
  std::uint64_t reserved = 0;
};

struct LeasesTableV1 {
  std::uint32_t struct_size;
  std::uint32_t reserved;
  // Null when out of memory. The store is set up already.
  LeaseBook* (*open)(StoreV1* store);
  void (*close)(LeaseBook* book);
  void (*memory)(LeaseBook* book, LeaseMemoryV1* memory);
  // Pins, for reading, the blocks that are whole and in memory; fetches nothing. An id may be given
  // twice. `lengths` (null: not wanted) gets the length of each shard, shards_per_block for each
  // block. For each block:
  //   kOk        a lease
  //   kNotFound  it is not in memory, or not whole
  //   kBusy      too many leases are out
  // A code that is neither of the first two is also the call's status, in words; what was leased is
  // leased all the same. kInvalidArgument, kClosed from the call: nothing was leased.
  Status (*acquire)(LeaseBook* book, const BlockId* blocks, std::uint32_t count, LeaseV1* leases,
                    std::uint32_t* lengths);
  // Claims room for shards [first_shard, first_shard + shard_count) of blocks, for writing; all of
  // them or none. Nobody else can bring those shards until they are committed or released. May ask
  // the store below. For each block:
  //   kOk        a lease; lease 0: the block is visible already, there is nothing to bring
  //   kPending   somebody brings, or has brought, one of these shards; a dump still may
  //   kBusy      too many leases are out, or no slot can be had; dump it instead
  //   kAborted   the block was given up while it was incomplete: bring all of it anew
  // The last two are also the call's status, as above.
  Status (*reserve)(LeaseBook* book, const BlockId* blocks, std::uint32_t count,
                    std::uint32_t first_shard, std::uint32_t shard_count, LeaseV1* leases);
  // The first `bytes` bytes of this reserved shard are there, and will not change any more: the
  // caller writes it no more. As a dump of the shard that has ended: the block is visible when all
  // its shards have come, and is written to the store below some time later, whatever the stage
  // does for dumps. The lease goes on, for reading.
  //   kNotFound         no such lease, or released
  //   kInvalidArgument  not reserved in it, or committed before; or `bytes` not in 1..shard_size
  Status (*commit)(LeaseBook* book, LeaseId lease, std::uint32_t shard, std::uint32_t bytes);
  // Ends leases; the caller touches their memory no more. What was reserved and not committed is
  // given up. kNotFound: one is not known, or released already; the others are released.
  Status (*release)(LeaseBook* book, const LeaseId* leases, std::uint32_t count);
};

// ---- the table -------------------------------------------------------------------------------

struct PluginV1 {
  std::uint32_t abi;          // kPluginAbi
  std::uint32_t struct_size;  // sizeof(PluginV1) of the header the plugin was built with
  const char* name;           // the stage's name in a spec, [A-Za-z][A-Za-z0-9]*
  const char* version;        // the plugin's own
  const OptionSpecV1* options;
  std::uint32_t option_count;
  std::uint32_t is_terminal;           // 1: nothing is below it
  std::uint64_t shard_overhead_bytes;  // what it adds to a shard on the way down
  const char* content;  // what it makes of the content above; null: leaves it as it is
  // Null when out of memory. The stage is not set up yet.
  StoreV1* (*create)();
  // Ends the stage: cancels what has not begun and waits, at most timeout_ms, for what moves.
  // Called once; no other call may be in progress or follow. True: nothing of it moves any more,
  // and it is freed. False: something still moves; the stage is left alone for ever with all that
  // it needs, and the host must never free what it was given at Setup: the runtime and the stages
  // below, which it may still call.
  bool (*destroy)(StoreV1* store, std::uint32_t timeout_ms);
  // Optional; an unknown name gives null. The table lives as long as the process.
  const void* (*query)(StoreV1* store, const char* name);
};

using PluginEntryV1 = const PluginV1* (*)();

static_assert(sizeof(OptionSpecV1) == 40 && sizeof(OptionValueV1) == 56);
static_assert(sizeof(SetupV1) == 136 && sizeof(PluginV1) == 80);
static_assert(sizeof(LeaseV1) == 24 && sizeof(LeaseMemoryV1) == 32 && sizeof(LeasesTableV1) == 64);

}  // namespace ucmstore

// Declared here so that a plugin that misspells or mistypes it does not compile quietly.
extern "C" UCMSTORE_EXPORT const ucmstore::PluginV1* ucmstore_plugin_v1();
