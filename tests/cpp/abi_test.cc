// SPDX-License-Identifier: Apache-2.0
//
// The frozen headers, number by number, on a 64-bit machine. A plugin built years ago relies on
// each of them. If a test here fails, do not change the test: undo the change of the header.
// An addition is a new name, a new struct, or a field taken from a zeroed reserve.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>

#include "ucmstore/admin_v1.h"
#include "ucmstore/plugin_v1.h"
#include "ucmstore/status.h"
#include "ucmstore/store_v1.h"
#include "ucmstore/types.h"

namespace ucmstore {
namespace {

// Frozen: size, alignment, and that bytes are all there is to it.
template <typename T>
void ExpectPlain(std::size_t size, std::size_t alignment) {
  EXPECT_EQ(sizeof(T), size);
  EXPECT_EQ(alignof(T), alignment);
  EXPECT_TRUE(std::is_standard_layout_v<T>);
  EXPECT_TRUE(std::is_trivially_copyable_v<T>);
  EXPECT_TRUE(std::is_trivially_destructible_v<T>);
}

template <typename Struct, typename Member>
constexpr std::size_t SizeOf(Member Struct::* /*member*/) {
  return sizeof(Member);
}

#define EXPECT_FIELD(type, member, offset, size) \
  EXPECT_EQ(offsetof(type, member), offset##U);  \
  EXPECT_EQ(SizeOf(&type::member), size##U)

#define EXPECT_VALUE(name, value)                    \
  EXPECT_EQ(static_cast<std::int64_t>(name), value); \
  EXPECT_EQ(sizeof(name), 4U)

TEST(Abi, Types) {
  ExpectPlain<BlockId>(16, 1);
  EXPECT_FIELD(BlockId, bytes, 0, 16);

  ExpectPlain<Segment>(16, 8);
  EXPECT_FIELD(Segment, data, 0, 8);
  EXPECT_FIELD(Segment, size, 8, 8);

  ExpectPlain<Shard>(32, 8);
  EXPECT_FIELD(Shard, block, 0, 16);
  EXPECT_FIELD(Shard, segments, 16, 8);
  EXPECT_FIELD(Shard, segment_count, 24, 4);
  EXPECT_FIELD(Shard, index, 28, 4);

  ExpectPlain<ShardResult>(12, 4);
  EXPECT_FIELD(ShardResult, code, 0, 4);
  EXPECT_FIELD(ShardResult, sys_errno, 4, 4);
  EXPECT_FIELD(ShardResult, bytes, 8, 4);

  EXPECT_TRUE((std::is_same_v<TaskId, std::uint64_t>));
}

TEST(Abi, Codes) {
  EXPECT_TRUE((std::is_same_v<std::underlying_type_t<Code>, std::int32_t>));
  EXPECT_VALUE(Code::kOk, 0);
  EXPECT_VALUE(Code::kPending, 1);
  EXPECT_VALUE(Code::kNotFound, 2);
  EXPECT_VALUE(Code::kInvalidArgument, 3);
  EXPECT_VALUE(Code::kUnsupported, 4);
  EXPECT_VALUE(Code::kBusy, 5);
  EXPECT_VALUE(Code::kNoSpace, 6);
  EXPECT_VALUE(Code::kTimeout, 7);
  EXPECT_VALUE(Code::kCancelled, 8);
  EXPECT_VALUE(Code::kAborted, 9);
  EXPECT_VALUE(Code::kCorruption, 10);
  EXPECT_VALUE(Code::kIoError, 11);
  EXPECT_VALUE(Code::kLimit, 12);
  EXPECT_VALUE(Code::kClosed, 13);
  EXPECT_VALUE(Code::kInternal, 14);
}

// Words that logs and other languages compare with.
TEST(Abi, CodeNames) {
  EXPECT_STREQ(CodeName(Code::kOk), "ok");
  EXPECT_STREQ(CodeName(Code::kPending), "pending");
  EXPECT_STREQ(CodeName(Code::kNotFound), "not found");
  EXPECT_STREQ(CodeName(Code::kInvalidArgument), "invalid argument");
  EXPECT_STREQ(CodeName(Code::kUnsupported), "unsupported");
  EXPECT_STREQ(CodeName(Code::kBusy), "busy");
  EXPECT_STREQ(CodeName(Code::kNoSpace), "no space");
  EXPECT_STREQ(CodeName(Code::kTimeout), "timeout");
  EXPECT_STREQ(CodeName(Code::kCancelled), "cancelled");
  EXPECT_STREQ(CodeName(Code::kAborted), "aborted");
  EXPECT_STREQ(CodeName(Code::kCorruption), "corruption");
  EXPECT_STREQ(CodeName(Code::kIoError), "i/o error");
  EXPECT_STREQ(CodeName(Code::kLimit), "system limit");
  EXPECT_STREQ(CodeName(Code::kClosed), "closed");
  EXPECT_STREQ(CodeName(Code::kInternal), "internal error");
}

TEST(Abi, Status) {
  ExpectPlain<Status>(256, 4);
  EXPECT_FIELD(Status, code, 0, 4);
  EXPECT_FIELD(Status, sys_errno, 4, 4);
  EXPECT_FIELD(Status, message, 8, 248);
}

TEST(Abi, LookupDesc) {
  ExpectPlain<LookupDesc>(24, 8);
  EXPECT_FIELD(LookupDesc, struct_size, 0, 4);
  EXPECT_FIELD(LookupDesc, flags, 4, 4);
  EXPECT_FIELD(LookupDesc, blocks, 8, 8);
  EXPECT_FIELD(LookupDesc, count, 16, 4);
  EXPECT_FIELD(LookupDesc, timeout_ms, 20, 4);
  EXPECT_EQ(LookupDesc{}.struct_size, 24U);

  EXPECT_VALUE(kStopAtMiss, 1);
  EXPECT_VALUE(kNoTouch, 2);
  EXPECT_VALUE(kLookupFlags, 3);
  EXPECT_EQ(kAbsent, 0);
  EXPECT_EQ(kInMemory, 1);
  EXPECT_EQ(kBelow, 2);
  EXPECT_TRUE((std::is_same_v<decltype(kBelow), const std::uint8_t>));
}

TEST(Abi, TaskDesc) {
  ExpectPlain<TaskDesc>(112, 8);
  EXPECT_FIELD(TaskDesc, struct_size, 0, 4);
  EXPECT_FIELD(TaskDesc, flags, 4, 4);
  EXPECT_FIELD(TaskDesc, shards, 8, 8);
  EXPECT_FIELD(TaskDesc, results, 16, 8);
  EXPECT_FIELD(TaskDesc, shard_count, 24, 4);
  EXPECT_FIELD(TaskDesc, timeout_ms, 28, 4);
  EXPECT_FIELD(TaskDesc, priority, 32, 4);
  EXPECT_FIELD(TaskDesc, device, 36, 4);
  EXPECT_FIELD(TaskDesc, stream, 40, 8);
  EXPECT_FIELD(TaskDesc, ready_event, 48, 8);
  EXPECT_FIELD(TaskDesc, done_event, 56, 8);
  EXPECT_FIELD(TaskDesc, on_done, 64, 8);
  EXPECT_FIELD(TaskDesc, on_done_ctx, 72, 8);
  EXPECT_FIELD(TaskDesc, tenant, 80, 8);
  EXPECT_FIELD(TaskDesc, reserved, 88, 24);

  const TaskDesc desc;
  EXPECT_EQ(desc.struct_size, 112U);
  EXPECT_EQ(desc.device, -1);
  TaskDesc zero = desc;
  zero.struct_size = 0;
  zero.device = 0;
  EXPECT_EQ(std::memcmp(&zero, std::string(112, '\0').data(), 112), 0) << "other defaults are 0";
}

// Calls its methods by their place in the table, as a plugin or host of another time does.
class CountingStore final : public StoreV1 {
 public:
  Status Setup(const SetupV1&) noexcept override { return Step("setup"); }
  Status Lookup(const LookupDesc&, std::uint8_t*) noexcept override { return Step("lookup"); }
  Status Load(const TaskDesc&, TaskId*) noexcept override { return Step("load"); }
  Status Dump(const TaskDesc&, TaskId*) noexcept override { return Step("dump"); }
  Status Check(TaskId, bool*) noexcept override { return Step("check"); }
  Status Wait(TaskId, std::uint32_t) noexcept override { return Step("wait"); }

 private:
  static Status Step(const char* name) { return Status::Error(Code::kInternal, name); }
};

TEST(Abi, StoreHasSixMethodsInOrder) {
#if defined(__x86_64__) || defined(__aarch64__)
  EXPECT_EQ(sizeof(StoreV1), 8U);
  EXPECT_FALSE(std::has_virtual_destructor_v<StoreV1>);
  EXPECT_FALSE(std::is_destructible_v<StoreV1>) << "only the plugin ends a stage";

  CountingStore store;
  StoreV1* as_store = &store;
  // Itanium C++ ABI: the object begins with the address of its table of functions; `this` comes
  // first, after the place for the result.
  using Method = Status (*)(StoreV1*, const void*, void*);
  const auto* table = *reinterpret_cast<Method* const*>(as_store);
  const char* const names[] = {"setup", "lookup", "load", "dump", "check", "wait"};
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(table[i](as_store, nullptr, nullptr).text(), names[i]) << "place " << i;
  }
#else
  GTEST_SKIP() << "the tables of this CPU's ABI are not known here";
#endif
}

TEST(Abi, MethodsAreNoexceptAndTakeWhatTheyTook) {
  EXPECT_TRUE(
      (std::is_same_v<decltype(&StoreV1::Setup), Status (StoreV1::*)(const SetupV1&) noexcept>));
  EXPECT_TRUE((std::is_same_v<decltype(&StoreV1::Lookup),
                              Status (StoreV1::*)(const LookupDesc&, std::uint8_t*) noexcept>));
  EXPECT_TRUE((std::is_same_v<decltype(&StoreV1::Load),
                              Status (StoreV1::*)(const TaskDesc&, TaskId*) noexcept>));
  EXPECT_TRUE((std::is_same_v<decltype(&StoreV1::Dump),
                              Status (StoreV1::*)(const TaskDesc&, TaskId*) noexcept>));
  EXPECT_TRUE(
      (std::is_same_v<decltype(&StoreV1::Check), Status (StoreV1::*)(TaskId, bool*) noexcept>));
  EXPECT_TRUE((std::is_same_v<decltype(&StoreV1::Wait),
                              Status (StoreV1::*)(TaskId, std::uint32_t) noexcept>));
}

TEST(Abi, Options) {
  EXPECT_VALUE(OptionType::kBool, 0);
  EXPECT_VALUE(OptionType::kInt, 1);
  EXPECT_VALUE(OptionType::kFloat, 2);
  EXPECT_VALUE(OptionType::kSize, 3);
  EXPECT_VALUE(OptionType::kString, 4);
  EXPECT_VALUE(OptionType::kList, 5);

  ExpectPlain<OptionSpecV1>(40, 8);
  EXPECT_FIELD(OptionSpecV1, name, 0, 8);
  EXPECT_FIELD(OptionSpecV1, type, 8, 4);
  EXPECT_FIELD(OptionSpecV1, flags, 12, 4);
  EXPECT_FIELD(OptionSpecV1, default_text, 16, 8);
  EXPECT_FIELD(OptionSpecV1, range, 24, 8);
  EXPECT_FIELD(OptionSpecV1, help, 32, 8);

  ExpectPlain<OptionValueV1>(56, 8);
  EXPECT_FIELD(OptionValueV1, name, 0, 8);
  EXPECT_FIELD(OptionValueV1, type, 8, 4);
  EXPECT_FIELD(OptionValueV1, is_default, 12, 4);
  EXPECT_FIELD(OptionValueV1, integer, 16, 8);
  EXPECT_FIELD(OptionValueV1, number, 24, 8);
  EXPECT_FIELD(OptionValueV1, text, 32, 8);
  EXPECT_FIELD(OptionValueV1, list, 40, 8);
  EXPECT_FIELD(OptionValueV1, list_count, 48, 8);
}

TEST(Abi, Setup) {
  ExpectPlain<SetupV1>(136, 8);
  EXPECT_FIELD(SetupV1, struct_size, 0, 4);
  EXPECT_FIELD(SetupV1, flags, 4, 4);
  EXPECT_FIELD(SetupV1, below, 8, 8);
  EXPECT_FIELD(SetupV1, shard_size, 16, 8);
  EXPECT_FIELD(SetupV1, shards_per_block, 24, 4);
  EXPECT_FIELD(SetupV1, option_count, 28, 4);
  EXPECT_FIELD(SetupV1, namespace_text, 32, 8);
  EXPECT_FIELD(SetupV1, namespace_label, 40, 8);
  EXPECT_FIELD(SetupV1, fingerprint, 48, 32);
  EXPECT_FIELD(SetupV1, content, 80, 8);
  EXPECT_FIELD(SetupV1, options, 88, 8);
  EXPECT_FIELD(SetupV1, runtime, 96, 8);
  EXPECT_FIELD(SetupV1, below_plugin, 104, 8);
  EXPECT_FIELD(SetupV1, reserved, 112, 24);
  EXPECT_EQ(SetupV1{}.struct_size, 136U);
  EXPECT_STREQ(SetupV1{}.content, "raw");
}

TEST(Abi, OptionalTables) {
  ExpectPlain<CancelTableV1>(16, 8);
  EXPECT_FIELD(CancelTableV1, struct_size, 0, 4);
  EXPECT_FIELD(CancelTableV1, reserved, 4, 4);
  EXPECT_FIELD(CancelTableV1, cancel, 8, 8);

  EXPECT_VALUE(MetricKind::kCounter, 0);
  EXPECT_VALUE(MetricKind::kGauge, 1);
  ExpectPlain<MetricV1>(24, 8);
  EXPECT_FIELD(MetricV1, name, 0, 8);
  EXPECT_FIELD(MetricV1, kind, 8, 4);
  EXPECT_FIELD(MetricV1, reserved, 12, 4);
  EXPECT_FIELD(MetricV1, value, 16, 8);
  ExpectPlain<StatsTableV1>(16, 8);
  EXPECT_FIELD(StatsTableV1, struct_size, 0, 4);
  EXPECT_FIELD(StatsTableV1, reserved, 4, 4);
  EXPECT_FIELD(StatsTableV1, visit, 8, 8);

  ExpectPlain<FlushTableV1>(16, 8);
  EXPECT_FIELD(FlushTableV1, struct_size, 0, 4);
  EXPECT_FIELD(FlushTableV1, reserved, 4, 4);
  EXPECT_FIELD(FlushTableV1, flush, 8, 8);

  ExpectPlain<RemoveTableV1>(16, 8);
  EXPECT_FIELD(RemoveTableV1, struct_size, 0, 4);
  EXPECT_FIELD(RemoveTableV1, reserved, 4, 4);
  EXPECT_FIELD(RemoveTableV1, remove, 8, 8);
}

TEST(Abi, Leases) {
  ExpectPlain<LeaseV1>(24, 8);
  EXPECT_FIELD(LeaseV1, lease, 0, 8);
  EXPECT_FIELD(LeaseV1, base, 8, 8);
  EXPECT_FIELD(LeaseV1, code, 16, 4);
  EXPECT_FIELD(LeaseV1, reserved, 20, 4);
  ExpectPlain<LeaseMemoryV1>(32, 8);
  EXPECT_FIELD(LeaseMemoryV1, base, 0, 8);
  EXPECT_FIELD(LeaseMemoryV1, bytes, 8, 8);
  EXPECT_FIELD(LeaseMemoryV1, shard_stride, 16, 8);
  EXPECT_FIELD(LeaseMemoryV1, reserved, 24, 8);
  ExpectPlain<LeasesTableV1>(64, 8);
  EXPECT_FIELD(LeasesTableV1, struct_size, 0, 4);
  EXPECT_FIELD(LeasesTableV1, reserved, 4, 4);
  EXPECT_FIELD(LeasesTableV1, open, 8, 8);
  EXPECT_FIELD(LeasesTableV1, close, 16, 8);
  EXPECT_FIELD(LeasesTableV1, memory, 24, 8);
  EXPECT_FIELD(LeasesTableV1, acquire, 32, 8);
  EXPECT_FIELD(LeasesTableV1, reserve, 40, 8);
  EXPECT_FIELD(LeasesTableV1, commit, 48, 8);
  EXPECT_FIELD(LeasesTableV1, release, 56, 8);
  EXPECT_TRUE((std::is_same_v<LeaseId, std::uint64_t>));
}

TEST(Abi, Plugin) {
  EXPECT_VALUE(kPluginAbi, 1);
  EXPECT_STREQ(kPluginSymbol, "ucmstore_plugin_v1");
  ExpectPlain<PluginV1>(80, 8);
  EXPECT_FIELD(PluginV1, abi, 0, 4);
  EXPECT_FIELD(PluginV1, struct_size, 4, 4);
  EXPECT_FIELD(PluginV1, name, 8, 8);
  EXPECT_FIELD(PluginV1, version, 16, 8);
  EXPECT_FIELD(PluginV1, options, 24, 8);
  EXPECT_FIELD(PluginV1, option_count, 32, 4);
  EXPECT_FIELD(PluginV1, is_terminal, 36, 4);
  EXPECT_FIELD(PluginV1, shard_overhead_bytes, 40, 8);
  EXPECT_FIELD(PluginV1, content, 48, 8);
  EXPECT_FIELD(PluginV1, create, 56, 8);
  EXPECT_FIELD(PluginV1, destroy, 64, 8);
  EXPECT_FIELD(PluginV1, query, 72, 8);

  EXPECT_TRUE((std::is_same_v<decltype(PluginV1::create), StoreV1* (*)()>));
  EXPECT_TRUE((std::is_same_v<decltype(PluginV1::destroy), bool (*)(StoreV1*, std::uint32_t)>));
  EXPECT_TRUE((std::is_same_v<decltype(PluginV1::query), const void* (*)(StoreV1*, const char*)>));
  EXPECT_TRUE((std::is_same_v<PluginEntryV1, const PluginV1* (*)()>));
}

TEST(Abi, AdminEnums) {
  EXPECT_VALUE(AdminKind::kNamespace, 0);
  EXPECT_VALUE(AdminKind::kBlock, 1);
  EXPECT_VALUE(AdminKind::kActivated, 2);
  EXPECT_VALUE(AdminKind::kSetAside, 3);
  EXPECT_VALUE(AdminKind::kWriter, 4);
  EXPECT_VALUE(AdminKind::kForeign, 5);
  EXPECT_VALUE(AdminKind::kSegment, 6);

  EXPECT_VALUE(AdminVerdict::kGood, 0);
  EXPECT_VALUE(AdminVerdict::kTorn, 1);
  EXPECT_VALUE(AdminVerdict::kCorrupt, 2);
  EXPECT_VALUE(AdminVerdict::kInUse, 3);
  EXPECT_VALUE(AdminVerdict::kLeftover, 4);
  EXPECT_VALUE(AdminVerdict::kUnreadable, 5);
  EXPECT_VALUE(AdminVerdict::kUnknown, 6);

  EXPECT_VALUE(AdminAction::kNone, 0);
  EXPECT_VALUE(AdminAction::kSetAside, 1);
  EXPECT_VALUE(AdminAction::kRemoved, 2);
  EXPECT_VALUE(AdminAction::kFailed, 3);

  EXPECT_VALUE(kAdminRead, 1);
  EXPECT_VALUE(kAdminRepair, 2);
  EXPECT_VALUE(kAdminPurge, 4);
  EXPECT_VALUE(kAdminFlags, 7);
}

TEST(Abi, AdminTables) {
  ExpectPlain<AdminEntryV1>(64, 8);
  EXPECT_FIELD(AdminEntryV1, struct_size, 0, 4);
  EXPECT_FIELD(AdminEntryV1, kind, 4, 4);
  EXPECT_FIELD(AdminEntryV1, verdict, 8, 4);
  EXPECT_FIELD(AdminEntryV1, action, 12, 4);
  EXPECT_FIELD(AdminEntryV1, path, 16, 8);
  EXPECT_FIELD(AdminEntryV1, namespace_label, 24, 8);
  EXPECT_FIELD(AdminEntryV1, text, 32, 8);
  EXPECT_FIELD(AdminEntryV1, size_bytes, 40, 8);
  EXPECT_FIELD(AdminEntryV1, disk_bytes, 48, 8);
  EXPECT_FIELD(AdminEntryV1, mtime_ns, 56, 8);

  ExpectPlain<AdminTableV1>(24, 8);
  EXPECT_FIELD(AdminTableV1, struct_size, 0, 4);
  EXPECT_FIELD(AdminTableV1, reserved, 4, 4);
  EXPECT_FIELD(AdminTableV1, inspect, 8, 8);
  EXPECT_FIELD(AdminTableV1, walk, 16, 8);
}

}  // namespace
}  // namespace ucmstore
