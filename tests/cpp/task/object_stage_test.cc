// SPDX-License-Identifier: Apache-2.0
//
// ObjectStage over a medium in memory that a test can spoil: every object that comes back wrong is
// noticed, forgotten once it is good again, and nothing of another kind, block or namespace is ever
// given. (That it keeps the whole contract is tested with the other stacks, as Shelf.)
#include "task/object_stage.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>

#include "base/checksum.h"
#include "base/hex.h"
#include "support/checks.h"
#include "task/runtime.h"

namespace ucmstore::test {
namespace {

constexpr Geometry kTwo = {100, 2};
const BlockId kA = MakeId(1, 1);
const BlockId kB = MakeId(1, 2);

// What a server keeps; stores come and go.
struct Server {
  std::map<std::string, Object> objects;
  int puts = 0;
  int gets = 0;
  // What each call does first; may throw.
  std::function<Status()> on_has, on_get, on_put;
  std::function<void(Object&)> on_the_way;  // of a get

  Object& At(const BlockId& id) { return objects.at("label/" + ToHex(id)); }
};

class Client final : public ObjectStage {
 public:
  Client(Server& server, const ObjectTraits& traits)
      : ObjectStage("Client", traits), server_(server) {}

 private:
  static Status Pass(const std::function<Status()>& hook) { return hook ? hook() : Status::Ok(); }

  Result<bool> Has(const std::string& name) override {
    const MutexLock lock(mutex_);
    if (const Status status = Pass(server_.on_has); !status.ok()) return std::unexpected(status);
    return server_.objects.contains(name);
  }
  Result<Object> Get(const std::string& name) override {
    const MutexLock lock(mutex_);
    ++server_.gets;
    if (const Status status = Pass(server_.on_get); !status.ok()) return std::unexpected(status);
    const auto found = server_.objects.find(name);
    if (found == server_.objects.end()) return Failure(Code::kNotFound, "no such key");
    Object object = found->second;
    if (server_.on_the_way) server_.on_the_way(object);
    return object;
  }
  Status Put(const std::string& name, Object object) override {
    const MutexLock lock(mutex_);
    ++server_.puts;
    if (const Status status = Pass(server_.on_put); !status.ok()) return status;
    server_.objects[name] = std::move(object);
    return Status::Ok();
  }

  Mutex mutex_;
  Server& server_;
};

class ClientStore final : public TestStore {
 public:
  ClientStore(Server& server, const Geometry& geometry, const ObjectTraits& traits = {},
              const char* content = "raw")
      : runtime_(std::make_unique<Runtime>(RuntimeOptions{.workers = 4})),
        stage_(std::make_unique<Client>(server, traits)) {
    SetupV1 setup;
    setup.shard_size = geometry.shard_size;
    setup.shards_per_block = geometry.shards_per_block;
    setup.namespace_text = "model: test\n";
    setup.namespace_label = "label";
    setup.content = content;
    setup.runtime = runtime_.get();
    opened = stage_->Setup(setup);
  }
  ~ClientStore() override { EXPECT_TRUE(Close(kPatienceMs)); }

  Status Lookup(const LookupDesc& desc, std::uint8_t* found) override {
    return stage_->Lookup(desc, found);
  }
  Status Load(const TaskDesc& desc, TaskId* task) override { return stage_->Load(desc, task); }
  Status Dump(const TaskDesc& desc, TaskId* task) override { return stage_->Dump(desc, task); }
  Status Check(TaskId task, bool* done) override { return stage_->Check(task, done); }
  Status Wait(TaskId task, std::uint32_t ms) override { return stage_->Wait(task, ms); }
  Status Cancel(TaskId task) override { return stage_->Cancel(task); }
  bool Close(std::uint32_t ms) override { return stage_->Close(ms) && runtime_->Shutdown(ms); }
  std::map<std::string, double> Stats() override { return {}; }

  Status opened;

 private:
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Client> stage_;
};

testing::AssertionResult Says(const Status& status, std::string_view words) {
  if (status.text().find(words) != std::string_view::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << status.text() << "' does not say '" << words << "'";
}

Status LoadError(TestStore& store, const BlockId& id) {
  LoadBatch load(kTwo);
  return Finish(store, load.AddBlock(id));
}

TEST(ObjectStage, KeepsTheContractByItself) {
  Server server;
  ClientStore store(server, kTwo);
  ASSERT_TRUE(store.opened.ok()) << store.opened.message;
  CheckRoundTrip(store, kTwo, {kA, kB});
  CheckShortShards(store, kTwo, MakeId(2, 1));
  CheckInvisibleUntilComplete(store, kTwo, MakeId(2, 2));
  CheckResultsOfAMixedTask(store, kTwo, MakeId(2, 3), MakeId(2, 4));
  CheckRetirement(store, kTwo, MakeId(2, 5));
  CheckOnDone(store, kTwo, MakeId(2, 6));
  CheckRefusalLeavesNothing(store, kTwo, MakeId(2, 7));
}

// docs/format.md holds the same example; both were made without this program.
TEST(ObjectFormat, IsWrittenBitByBitAsWrittenDown) {
  const ObjectKind kind{.fingerprint =
                            [] {
                              std::array<std::uint8_t, 32> all{};
                              for (std::uint8_t i = 0; i < 32; ++i) all[i] = i;
                              return all;
                            }(),
                        .shard_size = 16,
                        .shards_per_block = 2,
                        .content = "raw"};
  Object object(kind.header_size());
  for (int i = 0x40; i < 0x50; ++i) object.push_back(static_cast<std::byte>(i));
  for (const char c : std::string_view("short")) object.push_back(static_cast<std::byte>(c));
  const std::uint32_t lengths[] = {16, 5};
  const BlockId id = *ParseHex("00112233445566778899aabbccddeeff");
  PrintObjectHeader(kind, id, lengths, object);
  const std::string hex =
      ToHex(std::span(reinterpret_cast<const std::uint8_t*>(object.data()), object.size()));
  EXPECT_EQ(hex,
            "55434d4f424a4354010000008400000000112233445566778899aabbccddeeff"
            "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
            "1000000000000000020000000000000072617700000000000000000000000000"
            "00000000000000000000000000000000100000001a343c27050000007b56c360"
            "850dd67a404142434445464748494a4b4c4d4e4f73686f7274");
  const auto parsed = ParsedObject::Parse(kind, id, object);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->Shard(0)->size(), 16U);
  EXPECT_EQ(parsed->Shard(1)->size(), 5U);
}

TEST(ObjectStage, A_EveryFlippedBitIsNoticed) {
  Server server;
  ClientStore store(server, kTwo);
  ASSERT_TRUE(DumpBlock(store, kTwo, kA, 7).ok());
  const Object good = server.At(kA);
  const std::size_t header = good.size() - 2 * kTwo.shard_size;
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    server.At(kA) = good;
    server.At(kA)[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    LoadBatch load(kTwo);
    EXPECT_EQ(Finish(store, load.AddBlock(kA)).code, Code::kCorruption) << "bit " << bit;
    for (const std::size_t shard : {0U, 1U}) {
      const std::size_t begin = header + shard * kTwo.shard_size;
      const bool spared =
          bit / 8 >= header && (bit / 8 < begin || bit / 8 >= begin + kTwo.shard_size);
      if (spared) {
        EXPECT_EQ(load.Problem(shard, 7), "") << "the other shard is good, bit " << bit;
      } else {
        EXPECT_EQ(load.result(shard).code, Code::kCorruption) << "bit " << bit;
        EXPECT_TRUE(load.Untouched(shard)) << "bit " << bit;
      }
    }
  }
  server.At(kA) = good;
  EXPECT_EQ(BlockProblem(store, kTwo, kA, 7), "") << "a failure is forgotten";
  EXPECT_TRUE(IsPresent(store, kA));
}

TEST(ObjectStage, A_EveryOtherLengthIsNoticed) {
  Server server;
  ClientStore store(server, kTwo);
  ASSERT_TRUE(DumpBlock(store, kTwo, kA, 7).ok());
  const Object good = server.At(kA);
  for (std::size_t size = 0; size < good.size() + 5; ++size) {
    if (size == good.size()) continue;
    server.At(kA) = good;
    server.At(kA).resize(size);
    EXPECT_EQ(LoadError(store, kA).code, Code::kCorruption) << size;
  }
}

TEST(ObjectStage, A_AnotherBlocksObjectIsNeverGiven) {
  Server server;
  ClientStore store(server, kTwo);
  ASSERT_TRUE(DumpBlock(store, kTwo, kA, 1).ok());
  ASSERT_TRUE(DumpBlock(store, kTwo, kB, 2).ok());
  std::swap(server.At(kA), server.At(kB));
  const Status status = LoadError(store, kA);
  EXPECT_EQ(status.code, Code::kCorruption);
  EXPECT_TRUE(Says(status, "another block's"));
  EXPECT_TRUE(Says(status, ToHex(kA)));
}

TEST(ObjectStage, D02_AWrongObjectIsAMissUntilItIsPutAnew) {
  Server server;
  ClientStore store(server, kTwo);
  ASSERT_TRUE(DumpBlock(store, kTwo, kA, 1).ok());
  ASSERT_TRUE(DumpBlock(store, kTwo, kB, 1).ok());
  server.At(kA).back() ^= std::byte{1};
  EXPECT_TRUE(IsPresent(store, kA)) << "nobody has looked";
  EXPECT_EQ(LoadError(store, kA).code, Code::kCorruption);
  EXPECT_FALSE(IsPresent(store, kA));
  EXPECT_EQ(Presence(store, std::vector{kB, kA, kB}, kStopAtMiss), "100");
  EXPECT_TRUE(IsPresent(store, kB));
  ASSERT_TRUE(DumpBlock(store, kTwo, kA, 2).ok());
  EXPECT_TRUE(IsPresent(store, kA));
  EXPECT_EQ(BlockProblem(store, kTwo, kA, 2), "");
}

TEST(ObjectStage, S07_OneFlakyTransferIsAskedForAgain) {
  Server server;
  ClientStore store(server, kTwo);
  ASSERT_TRUE(DumpBlock(store, kTwo, kA, 1).ok());
  int flips = 1;
  server.on_the_way = [&](Object& object) {
    if (flips-- > 0) object[object.size() / 2] ^= std::byte{4};
  };
  server.gets = 0;
  EXPECT_EQ(BlockProblem(store, kTwo, kA, 1), "");
  EXPECT_EQ(server.gets, 2);
  EXPECT_TRUE(IsPresent(store, kA));
}

TEST(ObjectStage, F11_ABlockIsPutOnceAndWhole) {
  Server server;
  ClientStore store(server, kTwo);
  const int before = server.puts;
  ASSERT_TRUE(DumpShard(store, kTwo, kA, 1, 1).ok());
  EXPECT_EQ(server.puts, before);
  ASSERT_TRUE(DumpShard(store, kTwo, kA, 0, 1).ok());
  EXPECT_EQ(server.puts, before + 1);
  ASSERT_TRUE(DumpBlock(store, kTwo, kA, 2).ok());
  EXPECT_EQ(server.puts, before + 1) << "it is visible";
  ClientStore other(server, kTwo);
  EXPECT_EQ(BlockProblem(other, kTwo, kA, 1), "");
}

TEST(ObjectStage, S08_AnotherKindOfBlocksIsRefusedInWords) {
  Server server;
  {
    ClientStore store(server, kTwo);
    ASSERT_TRUE(DumpBlock(store, kTwo, kA, 1).ok());
  }
  const auto refused = [&](const Geometry& geometry, const char* content) {
    return ClientStore(server, geometry, {}, content).opened;
  };
  Status status = refused({200, 2}, "raw");
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_TRUE(Says(status, "shard_size: 100"));
  EXPECT_TRUE(Says(status, "shard_size: 200"));
  status = refused({100, 4}, "raw");
  EXPECT_TRUE(Says(status, "shards_per_block: 2"));
  status = refused(kTwo, "frame/1");
  EXPECT_TRUE(Says(status, "content: raw"));
  EXPECT_TRUE(Says(status, "content: frame/1"));
  Object& kind = server.objects.at("label/UCMSTORE");
  const Object good = kind;
  const std::string_view newer = "ucmstore objects, format 2\n";
  kind.assign(reinterpret_cast<const std::byte*>(newer.data()),
              reinterpret_cast<const std::byte*>(newer.data()) + newer.size());
  EXPECT_EQ(refused(kTwo, "raw").code, Code::kUnsupported);
  kind = {std::byte{1}};
  EXPECT_EQ(refused(kTwo, "raw").code, Code::kCorruption);
  kind.clear();
  EXPECT_EQ(refused(kTwo, "raw").code, Code::kCorruption);
  kind = good;
  ClientStore store(server, kTwo);
  EXPECT_EQ(BlockProblem(store, kTwo, kA, 1), "") << "nothing was touched";
}

TEST(ObjectStage, AnObjectOfANewerFormatIsAnErrorAndStays) {
  Server server;
  ClientStore store(server, kTwo);
  ASSERT_TRUE(DumpBlock(store, kTwo, kA, 1).ok());
  // The version is behind the checksum, so make it anew as a later release would.
  const ObjectKind kind{.shard_size = 100, .shards_per_block = 2, .content = "raw"};
  Object& object = server.At(kA);
  object[8] = std::byte{2};
  const auto header = std::span(object).first(kind.header_size());
  const std::uint32_t crc = Crc32c(header.first(header.size() - 4));
  std::memcpy(header.data() + header.size() - 4, &crc, sizeof(crc));
  const Status status = LoadError(store, kA);
  EXPECT_EQ(status.code, Code::kUnsupported);
  EXPECT_TRUE(Says(status, "format 2"));
  EXPECT_TRUE(IsPresent(store, kA));
}

TEST(ObjectStage, ErrorsOfTheMediumAreErrorsAndPass) {
  Server server;
  ClientStore store(server, kTwo);
  ASSERT_TRUE(DumpBlock(store, kTwo, kA, 1).ok());
  const auto fails = [] { return Status::Error(Code::kIoError, "connection lost", ECONNRESET); };
  const auto throws = []() -> Status { throw std::runtime_error("the client library threw"); };

  server.on_get = fails;
  Status status = LoadError(store, kA);
  EXPECT_EQ(status.code, Code::kIoError);
  EXPECT_EQ(status.sys_errno, ECONNRESET);
  EXPECT_TRUE(Says(status, "Client: label/" + ToHex(kA) + ": connection lost"));
  server.on_get = throws;
  EXPECT_EQ(LoadError(store, kA).code, Code::kInternal);
  server.on_get = nullptr;

  std::uint8_t found = 9;
  LookupDesc lookup;
  lookup.blocks = &kA;
  lookup.count = 1;
  server.on_has = fails;
  EXPECT_EQ(store.Lookup(lookup, &found).code, Code::kIoError);
  EXPECT_EQ(found, kAbsent);
  server.on_has = throws;
  EXPECT_EQ(store.Lookup(lookup, &found).code, Code::kInternal);
  int left = 1;  // one of two fails: that one is a miss
  server.on_has = [&] { return left-- > 0 ? fails() : Status::Ok(); };
  EXPECT_EQ(Presence(store, std::vector{kA, kA}), "01");
  server.on_has = nullptr;

  for (const std::function<Status()>& hook : {std::function<Status()>(fails), {throws}}) {
    server.on_put = hook;
    EXPECT_FALSE(DumpBlock(store, kTwo, kB, 1).ok());
    EXPECT_FALSE(IsPresent(store, kB));
    server.on_put = nullptr;
  }
  ASSERT_TRUE(DumpBlock(store, kTwo, kB, 3).ok());
  EXPECT_EQ(BlockProblem(store, kTwo, kB, 3), "");
  EXPECT_EQ(BlockProblem(store, kTwo, kA, 1), "");
}

TEST(ObjectStage, S10_IncompleteBlocksAreBoundedInBytes) {
  Server server;
  const ObjectKind kind{.shard_size = 100, .shards_per_block = 2, .content = "raw"};
  ClientStore store(server, kTwo, {.max_incomplete_bytes = 2 * kind.object_size()});
  ASSERT_TRUE(DumpShard(store, kTwo, MakeId(3, 1), 0, 1).ok());
  ASSERT_TRUE(DumpShard(store, kTwo, MakeId(3, 2), 0, 1).ok());
  const Status status = DumpShard(store, kTwo, MakeId(3, 3), 0, 1);
  EXPECT_EQ(status.code, Code::kBusy);
  EXPECT_TRUE(Says(status, "wait for their last shards"));
  ASSERT_TRUE(DumpShard(store, kTwo, MakeId(3, 1), 1, 1).ok());  // room for another
  ASSERT_TRUE(DumpBlock(store, kTwo, MakeId(3, 3), 2).ok());
  EXPECT_EQ(BlockProblem(store, kTwo, MakeId(3, 3), 2), "");
  ClientStore narrow(server, kTwo, {.max_incomplete_bytes = 1});
  EXPECT_TRUE(DumpBlock(narrow, kTwo, MakeId(3, 4), 1).ok()) << "one block always fits";
}

TEST(ObjectStage, AMediumThatLosesWhatIsPutIsNoticedAtOpen) {
  Server server;
  server.on_get = [] { return Status::Error(Code::kNotFound, "never heard of it"); };
  EXPECT_EQ(ClientStore(server, kTwo).opened.code, Code::kIoError);
  server.on_get = [] { return Status::Error(Code::kTimeout, "no answer"); };
  EXPECT_EQ(ClientStore(server, kTwo).opened.code, Code::kTimeout);
  EXPECT_EQ(ClientStore(server, {100, 70'000}).opened.code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace ucmstore::test
