// SPDX-License-Identifier: Apache-2.0
//
// Opening a shared object and distrusting its table.
#include "pipeline/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include "options/option_set.h"
#include "options/words.h"
#include "pipeline/spec.h"

namespace ucmstore {
namespace {

// What every table has: all but the nullable tail. A table of an older release may end here.
constexpr std::size_t kLeastTable = offsetof(PluginV1, query);
constexpr std::size_t kMaxTableName = 64;
constexpr std::uint64_t kMaxOverhead = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kMaxOptions = 1024;

std::unexpected<Status> Refuse(std::string_view reason) {
  return Failure(Code::kUnsupported, reason);
}

bool IsStageName(const char* name) {
  if (name == nullptr) return false;
  const std::string_view text(name, ::strnlen(name, kMaxTableName + 1));
  const auto stages = ParseSpec(text);
  return stages && stages->size() == 1 && !stages->front().is_url && stages->front().name == text;
}

// dlerror's words, without the path that our caller says anyway.
std::string LoaderWords(const std::string& path) {
  const char* words = ::dlerror();
  std::string text = words != nullptr ? words : "the loader gives no reason";
  if (text.starts_with(path + ": ")) text.erase(0, path.size() + 2);
  return text;
}

// "" if the fields make sense.
std::string FieldFault(const PluginV1& table, std::string_view wanted) {
  if (!IsStageName(table.name)) return "its name is not a letter, then letters or digits";
  if (!wanted.empty() && wanted != table.name) {
    return "it provides the stage " + Quote(table.name) + ", not " + Quote(wanted);
  }
  if (table.version == nullptr) return "its version is missing";
  if (table.is_terminal > 1) return "is_terminal is neither 0 nor 1";
  if (table.create == nullptr || table.destroy == nullptr) return "create or destroy is missing";
  if (table.shard_overhead_bytes > kMaxOverhead) return "it adds 4 GiB or more to a shard";
  const bool transforms = table.shard_overhead_bytes != 0 || table.content != nullptr;
  if (table.is_terminal != 0 && transforms) {
    return "it is terminal, yet declares an overhead or a content for a stage below";
  }
  if (table.content != nullptr && *table.content == '\0') return "its content is an empty text";
  if (table.option_count > kMaxOptions) return "it lists more than 1024 options";
  if (table.option_count != 0 && table.options == nullptr) return "its option table is missing";
  return {};
}

}  // namespace

Plugin::Plugin(const PluginV1& table, std::string path) : table_(table), path_(std::move(path)) {}

Result<PluginPtr> Plugin::Load(const std::string& path, std::string_view wanted) {
  // NOW: a missing symbol is an error here and not a crash later. LOCAL: two plugins never see each
  // other's symbols. NODELETE: a thread of a stage that was left alone may run in it for ever.
  void* object = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (object == nullptr) return Refuse(LoaderWords(path));
  void* symbol = ::dlsym(object, kPluginSymbol);
  if (symbol == nullptr) {
    return Refuse("it has no symbol ucmstore_plugin_v1, so it is no stage");
  }
  const auto entry = reinterpret_cast<PluginEntryV1>(symbol);
  try {
    return FromTable(entry(), path, wanted);
  } catch (...) {  // the ABI's edge: a foreign function may do anything
    return Refuse("ucmstore_plugin_v1 threw an exception");
  }
}

Result<PluginPtr> Plugin::FromTable(const PluginV1* table, std::string path,
                                    std::string_view wanted) {
  if (table == nullptr) return Refuse("ucmstore_plugin_v1 returned null");
  if (table->abi != kPluginAbi) {
    return Refuse("it is built for plugin abi " + std::to_string(table->abi) + ", this is abi " +
                  std::to_string(kPluginAbi));
  }
  if (table->struct_size < kLeastTable) {
    return Refuse("its table has " + std::to_string(table->struct_size) + " bytes, at least " +
                  std::to_string(kLeastTable) + " are needed");
  }
  // Read no further than the plugin says, and no half of a pointer.
  const bool has_query = table->struct_size >= kLeastTable + sizeof(table->query);
  PluginV1 copy{};
  std::memcpy(&copy, table, has_query ? sizeof(copy) : kLeastTable);
  copy.struct_size = sizeof(copy);  // of the copy, which other stages may get to see

  const std::string fault = FieldFault(copy, wanted);
  if (!fault.empty()) return Refuse(fault);
  const Status options = CheckOptionTable(LowerCase(copy.name), {copy.options, copy.option_count});
  if (!options.ok()) return std::unexpected(options);
  return PluginPtr(new Plugin(copy, std::move(path)));
}

const void* Plugin::QueryRaw(StoreV1* store, const char* name, std::size_t size) const noexcept {
  if (table_.query == nullptr) return nullptr;
  try {
    const void* found = table_.query(store, name);
    if (found == nullptr) return nullptr;
    std::uint32_t struct_size = 0;  // every optional table begins with it
    std::memcpy(&struct_size, found, sizeof(struct_size));
    return struct_size >= size ? found : nullptr;
  } catch (...) {  // the ABI's edge
    return nullptr;
  }
}

}  // namespace ucmstore
