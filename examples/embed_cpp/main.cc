// SPDX-License-Identifier: Apache-2.0
//
// A C++ program that holds a store: opens a pipeline, dumps blocks, finds them, loads them and
// compares every byte.
//
//   embed_cpp Dram
//   embed_cpp Posix posix.roots=/tmp/kv
//   embed_cpp Shelf store.plugin_path=/folder/of/libucmstore_shelf.so
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <ucmstore/sdk/pipeline/pipeline.h>

namespace {

constexpr std::uint32_t kBlocks = 16;
constexpr std::uint32_t kShardsPerBlock = 4;
constexpr std::size_t kShardBytes = std::size_t{64} << 10U;
constexpr std::uint32_t kWaitMs = 10'000;

int Complain(const char* what, const ucmstore::Status& status) {
  std::fprintf(stderr, "%s: %s: %s\n", what, ucmstore::CodeName(status.code), status.message);
  return 1;
}

// An option's value has its type: a whole number where the text is one, else text.
ucmstore::OptionInput Value(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), number);
  if (error == std::errc() && end == text.end()) return number;
  return std::string(text);
}

// One shard for each part of `memory`, in order of block and index.
class Batch {
 public:
  explicit Batch(std::vector<std::byte>& memory) {
    for (std::uint32_t i = 0; i < kBlocks * kShardsPerBlock; ++i) {
      segments_.push_back({memory.data() + i * kShardBytes, kShardBytes});
    }
    for (std::uint32_t i = 0; i < kBlocks * kShardsPerBlock; ++i) {
      shards_.push_back({Id(i / kShardsPerBlock), &segments_[i], 1, i % kShardsPerBlock});
    }
  }

  // Any 16 bytes will do here; an engine derives them from its tokens (block_id/namespace.h).
  static ucmstore::BlockId Id(std::uint32_t block) {
    ucmstore::BlockId id{};
    id.bytes.fill(static_cast<std::byte>(block + 1));
    return id;
  }

  [[nodiscard]] ucmstore::TaskDesc Desc() const {
    ucmstore::TaskDesc desc;
    desc.shards = shards_.data();
    desc.shard_count = static_cast<std::uint32_t>(shards_.size());
    return desc;
  }

 private:
  std::vector<ucmstore::Segment> segments_;
  std::vector<ucmstore::Shard> shards_;
};

}  // namespace

int main(int argc, char** argv) {
  ucmstore::PipelineConfig config;
  config.spec = argc > 1 ? argv[1] : "Dram";
  config.shard_size = kShardBytes;
  config.shards_per_block = kShardsPerBlock;
  for (int i = 2; i < argc; ++i) {  // stage.option=value
    const std::string_view text(argv[i]);
    const std::size_t dot = text.find('.');
    const std::size_t equals = text.find('=');
    if (dot == std::string_view::npos || equals == std::string_view::npos || equals < dot) {
      std::fprintf(stderr, "not stage.option=value: %s\n", argv[i]);
      return 2;
    }
    ucmstore::OptionMap& stage = config.options[std::string(text.substr(0, dot))];
    stage[std::string(text.substr(dot + 1, equals - dot - 1))] = Value(text.substr(equals + 1));
  }

  const auto name_space = ucmstore::Namespace::FromFields({{"model", "example"}, {"dtype", "u8"}});
  if (!name_space) return Complain("namespace", name_space.error());
  const auto store = ucmstore::Pipeline::Open(config, *name_space);
  if (!store) return Complain("open", store.error());

  std::vector<std::byte> memory(kBlocks * kShardsPerBlock * kShardBytes);
  std::uint32_t value = 1;
  for (std::byte& byte : memory) {
    value = value * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(value >> 24U);
  }
  const std::vector<std::byte> original = memory;

  const Batch batch(memory);
  const auto dump = (*store)->Dump(batch.Desc());
  if (!dump) return Complain("dump", dump.error());
  if (const auto status = (*store)->Wait(*dump, kWaitMs); !status.ok()) {
    return Complain("dump", status);
  }

  std::vector<ucmstore::BlockId> ids;
  for (std::uint32_t block = 0; block < kBlocks; ++block) ids.push_back(Batch::Id(block));
  const auto hits = (*store)->LookupPrefix(ids);
  if (!hits) return Complain("lookup", hits.error());

  std::ranges::fill(memory, std::byte{0});
  const auto load = (*store)->Load(batch.Desc());
  if (!load) return Complain("load", load.error());
  if (const auto status = (*store)->Wait(*load, kWaitMs); !status.ok()) {
    return Complain("load", status);
  }
  if (const auto status = (*store)->Close(kWaitMs); !status.ok()) return Complain("close", status);

  const bool same = memory == original;
  std::printf("%s: %u of %u blocks found, bytes %s\n", config.spec.c_str(), *hits, kBlocks,
              same ? "equal" : "DIFFER");
  return same && *hits == kBlocks ? 0 : 1;
}
