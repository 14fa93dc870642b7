# SPDX-License-Identifier: Apache-2.0
"""The options of each stage, as types. Generated from the stages' own tables; do not edit.

`python -m ucmstore._generate_options` prints this file. What they are at run time: plain dicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Literal, TypeAlias, TypedDict

Size: TypeAlias = int | str  # bytes, or a text such as "512KiB"
Texts: TypeAlias = str | PathLike[str] | Sequence[str | PathLike[str]]  # one, or several


class DramOptions(TypedDict, total=False):
    """Of the stage Dram."""

    # Memory for blocks; the coldest are evicted to stay below it. Holds whole blocks.
    # (default: 1GiB; 1..1PiB)
    capacity: Size


class NullOptions(TypedDict, total=False):
    """Of the stage Null."""

    # None yet.


class StageOptions(TypedDict, total=False):
    """A keyword of `open` for each stage."""

    dram: DramOptions | None
    null: NullOptions | None


class OpenOptions(StageOptions, total=False):
    """The keywords of `open`: the stages', and those of the store as a whole."""

    # Threads that move bytes, at most; started when first needed. (default: 16; 1..1024)
    workers: int
    # Loads and dumps that have not been waited for, at most; one more is refused as busy.
    # (default: 16384; 1..16777216)
    max_tasks: int
    # Blocks of which only some shards have come, at most; above it the oldest is given up.
    # (default: 4096; 1..16777216)
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
