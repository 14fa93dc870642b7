// SPDX-License-Identifier: Apache-2.0
//
// From option values to a segment's name, identity and size.
#include "store/cache/cache_options.h"

#include <spdlog/fmt/fmt.h>

#include "base/checksum.h"
#include "base/hex.h"

namespace ucmstore {
namespace {

constexpr OptionSpecV1 kTable[] = {
    {.name = "capacity",
     .type = OptionType::kSize,
     .flags = 0,
     .default_text = "auto",
     .range = "auto|4096..1PiB",
     .help = "Memory of the ring, for all processes together. auto: the smaller of a quarter of "
             "the memory limit and 80 % of the free room in `path`. Counts when the ring is made."},
    {.name = "path",
     .type = OptionType::kString,
     .flags = 0,
     .default_text = "/dev/shm",
     .range = "",
     .help = "The folder of the ring's segment: a file system in memory, the same in all "
             "processes that are to share it."},
    {.name = "name",
     .type = OptionType::kString,
     .flags = 0,
     .default_text = "",
     .range = "",
     .help = "The segment's name: [A-Za-z0-9._-], 1 to 80 characters. Default: from namespace, "
             "geometry and the store below, so that the same blocks share one. Over a store that "
             "is this process's alone (Dram) there is none to give."},
    {.name = "write",
     .type = OptionType::kString,
     .flags = 0,
     .default_text = "back",
     .range = "back|through",
     .help = "When a dump is confirmed. back: the whole block is in the ring, and outlives the "
             "process. through: the store below has it."},
    {.name = "share",
     .type = OptionType::kString,
     .flags = 0,
     .default_text = "private",
     .range = "private|group|world",
     .help = "Who on this machine may use the segment: its owner alone (mode 0600), the group, "
             "or everybody."},
    {.name = "prefault",
     .type = OptionType::kBool,
     .flags = 0,
     .default_text = "true",
     .range = "",
     .help = "Map all of the ring's memory into the process in the background after opening: "
             "seconds of one core for tens of gigabytes. Otherwise the first dump into each page "
             "pays for it."},
    {.name = "unlink",
     .type = OptionType::kBool,
     .flags = 0,
     .default_text = "false",
     .range = "",
     .help = "Remove the segment when the last process closes it. Otherwise it stays, warm."},
    {.name = "write_back_tasks",
     .type = OptionType::kInt,
     .flags = 0,
     .default_text = "8",
     .range = "1..1024",
     .help = "Blocks on their way to the store below at once."},
    {.name = "write_back_give_up_ms",
     .type = OptionType::kInt,
     .flags = 0,
     .default_text = "60000",
     .range = "0..86400000",
     .help = "A block that cannot be written back for so long is lost once the ring needs its "
             "room; the log and the figures say so."},
    {.name = "max_leases",
     .type = OptionType::kInt,
     .flags = 0,
     .default_text = "0",
     .range = "0..2147483647",
     .help = "Slots leased at once by all processes together, so that the others stay free for "
             "loads and dumps; at most all but one. 0: a quarter of the ring."},
};

std::uint32_t ModeOf(const std::string& share) {
  if (share == "group") return 0660;
  return share == "world" ? 0666 : 0600;
}

}  // namespace

std::span<const OptionSpecV1> CacheOptionTable() noexcept { return kTable; }

Result<CacheOptions> CacheOptions::From(const StageSetup& setup, const std::string& below) {
  CacheOptions options;
  options.through = setup.Text("write") == "through";
  options.prefault = setup.Bool("prefault");
  options.unlink = setup.Bool("unlink");
  options.write_back.in_flight = static_cast<std::uint32_t>(setup.Int("write_back_tasks"));
  options.write_back.give_up = milliseconds(setup.Int("write_back_give_up_ms"));

  options.max_leases = static_cast<std::uint32_t>(setup.Int("max_leases"));

  SegmentRequest& segment = options.segment;
  segment.directory = setup.Text("path");
  segment.capacity_bytes = setup.Size("capacity");
  segment.shard_size = setup.shard_size;
  segment.shards_per_block = setup.shards_per_block;
  segment.mode = ModeOf(setup.Text("share"));
  segment.only_private = below.empty();
  segment.identity =
      fmt::format("namespace: {}\nfingerprint: {}\ncontent: {}\nbelow: {}\n", setup.namespace_label,
                  ToHex(setup.fingerprint), setup.content, below);
  segment.name = setup.Text("name");
  if (segment.only_private && !segment.name.empty()) {
    return Failure(Code::kInvalidArgument,
                   fmt::format("name '{}': no other process reaches what the store below keeps, so "
                               "this ring cannot be shared and has no name; leave the option out",
                               segment.name));
  }
  if (segment.name.empty()) {
    const std::string rest =
        fmt::format("{}{}x{}", segment.identity, setup.shard_size, setup.shards_per_block);
    const std::string_view label(setup.namespace_label);
    segment.name =
        fmt::format("{}-{:08x}", label.substr(0, 64), Crc32c(std::as_bytes(std::span(rest))));
  }
  if (segment.identity.size() > kMaxIdentityBytes) {
    return Failure(Code::kInvalidArgument,
                   fmt::format("the store below describes itself in {} bytes; a segment's header "
                               "has room for {} in all: use fewer or shorter roots",
                               below.size(), kMaxIdentityBytes));
  }
  return options;
}

}  // namespace ucmstore
