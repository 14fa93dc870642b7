// SPDX-License-Identifier: Apache-2.0
//
// The options of the Posix stage: the only place they are written.
#include "store/posix/posix_stage.h"

namespace ucmstore {

namespace {

constexpr OptionSpecV1 kTable[] = {
    {.name = "roots",
     .type = OptionType::kList,
     .flags = 0,
     .default_text = nullptr,
     .range = "",
     .help = "Folders that keep the blocks, in any order; a block's id chooses one."},
    {.name = "capacity",
     .type = OptionType::kSize,
     .flags = 0,
     .default_text = "auto",
     .range = "auto|0..8191PiB",
     .help = "Bytes on disk that a root may take, all its namespaces and whatever else is in it "
             "together; above it the blocks go that were not used for longest. auto: 80 % of its "
             "file system. 0: no limit, nothing is ever removed."},
    {.name = "high_mark",
     .type = OptionType::kInt,
     .flags = 0,
     .default_text = "97",
     .range = "2..100",
     .help = "Per cent of the capacity: use above it makes reclaim begin."},
    {.name = "low_mark",
     .type = OptionType::kInt,
     .flags = 0,
     .default_text = "95",
     .range = "1..99",
     .help = "Per cent of the capacity that reclaim comes down to. Less than high_mark."},
    {.name = "touch_interval_ms",
     .type = OptionType::kInt,
     .flags = 0,
     .default_text = "60000",
     .range = "0..86400000",
     .help = "A block that is used counts as young again, but the time of its file is set once in "
             "so long at most. 0: at each use."},
    {.name = "io",
     .type = OptionType::kString,
     .flags = 0,
     .default_text = "auto",
     .range = "auto|direct|buffered",
     .help = "auto: past the page cache where the file system can; direct: that or an error."},
    {.name = "durability",
     .type = OptionType::kString,
     .flags = 0,
     .default_text = "none",
     .range = "none|data",
     .help = "data: a dump waits until its blocks survive a power cut; none: they may be lost."},
    {.name = "create_root",
     .type = OptionType::kBool,
     .flags = 0,
     .default_text = "true",
     .range = "",
     .help = "Create a root that is missing, if the folder above it exists."},
    {.name = "mode",
     .type = OptionType::kString,
     .flags = 0,
     .default_text = "private",
     .range = "private|group|world",
     .help = "Who may read and write what is stored: the owner, its group, or everybody."},
    {.name = "prefix_digits",
     .type = OptionType::kInt,
     .flags = 0,
     .default_text = "3",
     .range = "1..5",
     .help = "Digits of an id that name its folder, in a new namespace; an old one keeps its own."},
    {.name = "footer_cache_entries",
     .type = OptionType::kInt,
     .flags = 0,
     .default_text = "1024",
     .range = "0..65536",
     .help = "Footers kept in memory for loads of single shards; 8 MiB at most in any case."},
    {.name = "network",
     .type = OptionType::kString,
     .flags = 0,
     .default_text = "auto",
     .range = "auto|yes|no",
     .help = "Whether a lookup may have to wait for somebody else, so that it goes by threads of "
             "its own. auto: by the file system's type."},
    {.name = "rest_after_ms",
     .type = OptionType::kInt,
     .flags = 0,
     .default_text = "2000",
     .range = "0..3600000",
     .help = "Whatever takes longer, writing four times as long, lets its root rest: misses and "
             "failed dumps at once, until it answers in time. 0: never."},
    {.name = "lookup_threads",
     .type = OptionType::kInt,
     .flags = 0,
     .default_text = "16",
     .range = "1..256",
     .help = "Threads that lookups on a network file system ask with, at once."},
    {.name = "lookup_timeout_ms",
     .type = OptionType::kInt,
     .flags = 0,
     .default_text = "10000",
     .range = "1..3600000",
     .help = "How long a lookup on a network file system waits if it has no deadline itself."},
};

}  // namespace

std::span<const OptionSpecV1> PosixOptions() noexcept { return kTable; }

}  // namespace ucmstore
