# SPDX-License-Identifier: Apache-2.0
"""The options of each stage, as types. Generated from the stages' own tables; do not edit.

`python -m ucmstore._generate_options` prints this file. What they are at run time: plain dicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Literal, Required, TypeAlias, TypedDict

Size: TypeAlias = int | str  # bytes, or a text such as "512KiB"
Texts: TypeAlias = str | PathLike[str] | Sequence[str | PathLike[str]]  # one, or several


class CacheOptions(TypedDict, total=False):
    """Of the stage Cache."""

    # Memory of the ring, for all processes together. auto: the smaller of a quarter of the
    # memory limit and 80 % of the free room in `path`. Counts when the ring is made.
    # (default: auto; auto|4096..1PiB)
    capacity: Size
    # The folder of the ring's segment: a file system in memory, the same in all processes
    # that are to share it. (default: /dev/shm)
    path: str
    # The segment's name: [A-Za-z0-9._-], 1 to 80 characters. Default: from namespace,
    # geometry and the store below, so that the same blocks share one. Over a store that is
    # this process's alone (Dram) there is none to give. (default: none)
    name: str
    # When a dump is confirmed. back: the whole block is in the ring, and outlives the
    # process. through: the store below has it. (default: back)
    write: Literal["back", "through"]
    # Who on this machine may use the segment: its owner alone (mode 0600), the group, or
    # everybody. (default: private)
    share: Literal["private", "group", "world"]
    # Map all of the ring's memory into the process in the background after opening: seconds
    # of one core for tens of gigabytes. Otherwise the first dump into each page pays for it.
    # (default: true)
    prefault: bool
    # Remove the segment when the last process closes it. Otherwise it stays, warm. (default:
    # false)
    unlink: bool
    # Blocks on their way to the store below at once. (default: 8; 1..1024)
    write_back_tasks: int
    # A block that cannot be written back for so long is lost once the ring needs its room;
    # the log and the figures say so. (default: 60000; 0..86400000)
    write_back_give_up_ms: int
    # Slots leased at once by all processes together, so that the others stay free for loads
    # and dumps; at most all but one. 0: a quarter of the ring. (default: 0; 0..2147483647)
    max_leases: int


class DramOptions(TypedDict, total=False):
    """Of the stage Dram."""

    # Memory for blocks; the coldest are evicted to stay below it. Holds whole blocks.
    # (default: 1GiB; 1..1PiB)
    capacity: Size


class NullOptions(TypedDict, total=False):
    """Of the stage Null."""

    # None yet.


class PosixOptions(TypedDict, total=False):
    """Of the stage Posix."""

    # Folders that keep the blocks, in any order; a block's id chooses one. (must be given)
    roots: Required[Texts]
    # Bytes on disk that a root may take, all its namespaces and whatever else is in it
    # together; above it the blocks go that were not used for longest. auto: 80 % of its file
    # system. 0: no limit, nothing is ever removed. (default: auto; auto|0..8191PiB)
    capacity: Size
    # Per cent of the capacity: use above it makes reclaim begin. (default: 97; 2..100)
    high_mark: int
    # Per cent of the capacity that reclaim comes down to. Less than high_mark. (default: 95;
    # 1..99)
    low_mark: int
    # A block that is used counts as young again, but the time of its file is set once in so
    # long at most. 0: at each use. (default: 60000; 0..86400000)
    touch_interval_ms: int
    # auto: past the page cache where the file system can; direct: that or an error. (default:
    # auto)
    io: Literal["auto", "direct", "buffered"]
    # data: a dump waits until its blocks survive a power cut; none: they may be lost.
    # (default: none)
    durability: Literal["none", "data"]
    # Create a root that is missing, if the folder above it exists. (default: true)
    create_root: bool
    # Who may read and write what is stored: the owner, its group, or everybody. (default:
    # private)
    mode: Literal["private", "group", "world"]
    # Digits of an id that name its folder, in a new namespace; an old one keeps its own.
    # (default: 3; 1..5)
    prefix_digits: int
    # Footers kept in memory for loads of single shards; 8 MiB at most in any case. (default:
    # 1024; 0..65536)
    footer_cache_entries: int
    # Whether a lookup may have to wait for somebody else, so that it goes by threads of its
    # own. auto: by the file system's type. (default: auto)
    network: Literal["auto", "yes", "no"]
    # Whatever takes longer, writing four times as long, lets its root rest: misses and failed
    # dumps at once, until it answers in time. 0: never. (default: 2000; 0..3600000)
    rest_after_ms: int
    # Threads that lookups on a network file system ask with, at once. (default: 16; 1..256)
    lookup_threads: int
    # How long a lookup on a network file system waits if it has no deadline itself. (default:
    # 10000; 1..3600000)
    lookup_timeout_ms: int


class StageOptions(TypedDict, total=False):
    """A keyword of `open` for each stage."""

    cache: CacheOptions | None
    dram: DramOptions | None
    null: NullOptions | None
    posix: PosixOptions | None


class OpenOptions(StageOptions, total=False):
    """The keywords of `open`: the stages', and those of the store as a whole."""

    # Threads that move bytes, at most; started when first needed. (default: 16; 1..1024)
    workers: int
    # Loads and dumps that have not been waited for, at most; one more is refused as busy.
    # (default: 16384; 1..16777216)
    max_tasks: int
    # Blocks of which only some shards have come, at most, but more than workers; above it the
    # oldest is given up. (default: 4096; 1..16777216)
    max_incomplete_blocks: int
    # A block of which no shard has come for so long is given up. (default: 600000;
    # 1..2147483647)
    incomplete_age_ms: int
    # How long a store that is closed without a time-out waits for what moves. (default: 5000;
    # 0..2147483647)
    close_timeout_ms: int
    # Folders searched for stages, before UCMSTORE_PLUGIN_PATH and the package's own.
    # (default: none)
    plugin_path: Texts
    # The least that is logged to stderr; its default can be set by UCMSTORE_LOG_LEVEL.
    # (default: warning)
    log_level: Literal["debug", "info", "warning", "error", "off"]
