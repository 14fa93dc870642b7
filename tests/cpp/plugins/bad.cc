// SPDX-License-Identifier: Apache-2.0
//
// Plugins with one thing wrong each. BAD_NAME is the stage's name, BAD_KIND the fault. What is not
// wrong is a terminal stage that finds nothing.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

#include "ucmstore/plugin_v1.h"

// The faults, as numbers for the preprocessor.
#define NO_SYMBOL 1
#define NULL_TABLE 2
#define WRONG_ABI 3
#define SHORT_TABLE 4
#define WRONG_NAME 5
#define NULL_CREATE 6
#define THROWING_CREATE 7
#define THROWING_ENTRY 8
#define BAD_DEFAULT 9
#define TERMINAL_OVERHEAD 10
#define UNDEFINED 11
#define OLD_TABLE 12
#define NEWER_TABLE 13
#define CREATE_GIVES_NULL 14
#define OTHER_LAYOUT 15

namespace {

using ucmstore::Status;

class Nothing final : public ucmstore::StoreV1 {
 public:
  Status Setup(const ucmstore::SetupV1&) noexcept override { return Status::Ok(); }
  Status Lookup(const ucmstore::LookupDesc& desc, std::uint8_t* found) noexcept override {
    std::memset(found, 0, desc.count);
    return Status::Ok();
  }
  Status Load(const ucmstore::TaskDesc&, ucmstore::TaskId*) noexcept override {
    return Status::Error(ucmstore::Code::kUnsupported, "nothing to load");
  }
  Status Dump(const ucmstore::TaskDesc&, ucmstore::TaskId*) noexcept override {
    return Status::Error(ucmstore::Code::kUnsupported, "no dumps");
  }
  Status Check(ucmstore::TaskId, bool*) noexcept override {
    return Status::Error(ucmstore::Code::kNotFound, "no such task");
  }
  Status Wait(ucmstore::TaskId, std::uint32_t) noexcept override {
    return Status::Error(ucmstore::Code::kNotFound, "no such task");
  }
};

ucmstore::StoreV1* Create() {
  if (BAD_KIND == THROWING_CREATE) throw std::runtime_error("create throws");
  if (BAD_KIND == CREATE_GIVES_NULL) return nullptr;
  static Nothing nothing;
  return &nothing;
}
bool Destroy(ucmstore::StoreV1*, std::uint32_t) { return true; }

constexpr ucmstore::OptionSpecV1 kBadOptions[] = {
    {"threads", ucmstore::OptionType::kInt, 0, "0", "1..8", "Its default is out of range."}};

[[maybe_unused]] ucmstore::PluginV1 Table() {
  ucmstore::PluginV1 table{};
  table.abi = BAD_KIND == WRONG_ABI ? 7 : ucmstore::kPluginAbi;
  table.struct_size = sizeof(table);
  if (BAD_KIND == SHORT_TABLE) table.struct_size = 40;
  if (BAD_KIND == OLD_TABLE) table.struct_size = offsetof(ucmstore::PluginV1, query);
  if (BAD_KIND == NEWER_TABLE) table.struct_size = sizeof(table) + 64;
  table.name = BAD_KIND == WRONG_NAME ? "Elsewhere" : BAD_NAME;
  table.version = "1.0";
  if (BAD_KIND == BAD_DEFAULT) {
    table.options = kBadOptions;
    table.option_count = 1;
  }
  table.is_terminal = 1;
  if (BAD_KIND == TERMINAL_OVERHEAD) table.shard_overhead_bytes = 16;
  table.create = BAD_KIND == NULL_CREATE ? nullptr : &Create;
  table.destroy = &Destroy;
  return table;
}

// The table at the very end of a page, before one that cannot be read: who reads further dies.
[[maybe_unused]] const ucmstore::PluginV1* AtTheEdge(const ucmstore::PluginV1& table,
                                                     std::size_t size) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* map = ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  auto* edge = static_cast<char*>(map) + page;
  if (::mprotect(edge, page, PROT_NONE) != 0) return nullptr;
  std::memcpy(edge - size, &table, size);
  return reinterpret_cast<const ucmstore::PluginV1*>(edge - size);
}

}  // namespace

#if BAD_KIND == UNDEFINED
extern "C" int ucmstore_test_symbol_that_is_nowhere();
#endif

#if BAD_KIND == NO_SYMBOL
extern "C" UCMSTORE_EXPORT int something_else() { return Create() == nullptr ? 1 : 0; }
#elif BAD_KIND == OTHER_LAYOUT
// As a stage of some other system may look: the same symbol, another meaning.
extern "C" const ucmstore::PluginV1* ucmstore_plugin_v1() {
  static const char* const kStrings[2] = {"store factory", "2.1"};
  return reinterpret_cast<const ucmstore::PluginV1*>(kStrings);
}
#else
extern "C" const ucmstore::PluginV1* ucmstore_plugin_v1() {
  static const ucmstore::PluginV1 kTable = Table();
#if BAD_KIND == UNDEFINED
  if (ucmstore_test_symbol_that_is_nowhere() != 0) return nullptr;
#endif
  if (BAD_KIND == THROWING_ENTRY) throw std::runtime_error("the entry point throws");
  if (BAD_KIND == NULL_TABLE) return nullptr;
  if (BAD_KIND == SHORT_TABLE || BAD_KIND == OLD_TABLE) {
    static const ucmstore::PluginV1* const kEdge = AtTheEdge(kTable, kTable.struct_size);
    return kEdge;
  }
  return &kTable;
}
#endif
