# SPDX-License-Identifier: Apache-2.0
"""What Cache costs in front of Posix: cold loads through both against Posix alone, dumps that are
confirmed from memory against a memcpy, and the processor time of loading and of doing nothing.

Both stores read the same files, past the page cache where the file system allows it. The ring has
room for one of two sets of blocks, which are loaded in turn, so that no load finds any of its own
set in it, and so that its memory has been touched, as it is in a process that has run for a while.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import ucmstore
from bench.measure import (
    Bytes,
    Figure,
    Spread,
    against,
    aligned,
    drop_cached,
    in_turns,
    random_ids,
    scratch,
    settle,
)
from bench.stores import NAMESPACE, drain, namespace_folder, open_posix

MEMORY = "/dev/shm"
SIZES = (256 << 10, 1 << 20, 4 << 20)
SHARDS = 4
WORKING_SET = 512 << 20
PREFIX_DIGITS = 1  # few folders, so that emptying them between runs is quick
LOAD_TARGET = 0.95
DUMP_TARGETS = {256 << 10: 0.85, 1 << 20: 0.9, 4 << 20: 0.9}
IDLE_S = 2.0


def _ring_bytes(blocks: int, size: int) -> int:
    """Room for so many blocks and not for one more: see src/cpp/shm/layout.h."""
    buckets = 1 << (blocks // 7 * 2).bit_length()
    metadata = 16384 + 64 * buckets + (64 + 8 + 4 * SHARDS) * blocks
    return (metadata + 4095) // 4096 * 4096 + size * blocks


@contextmanager
def _cached(root: Path, ring: Path, size: int, blocks: int) -> Iterator[ucmstore.Store]:
    with ucmstore.open(
        "Cache|Posix",
        shard_size=size // SHARDS,
        shards_per_block=SHARDS,
        namespace=NAMESPACE,
        log_level="error",
        cache={"path": str(ring), "capacity": _ring_bytes(blocks, size), "unlink": True},
        posix={"roots": [str(root)], "prefix_digits": PREFIX_DIGITS},
    ) as store:
        assert store.stats()["cache"]["ring_slots"] == blocks
        yield store


def _loads(folder: Path, ring: Path, size: int, pairs: int) -> list[Figure]:
    count = WORKING_SET // size
    random = np.random.default_rng(size)
    data, landing = aligned(count, size), aligned(count, size)
    root = folder / "store"
    root.mkdir()
    processor: dict[str, list[float]] = {"through": [], "alone": []}
    with (
        open_posix(root, size, SHARDS, prefix_digits=PREFIX_DIGITS) as alone,
        _cached(root, ring, size, count) as through,
    ):
        sets = [random_ids(count, random), random_ids(count, random)]
        for ids in sets:
            alone.dump(ids, source=data).wait()
        settle(folder)

        def load(store: ucmstore.Store, ids: Bytes, who: str) -> float:
            drop_cached(folder)
            landing.fill(0)
            used, started = time.process_time(), time.perf_counter()
            store.load(ids, into=landing).wait()
            spent = time.perf_counter() - started
            processor[who].append(100 * (time.process_time() - used) / spent)
            assert np.array_equal(landing, data)
            return spent

        for ids in sets:  # every page of the ring has been touched, and both stores have started
            load(through, ids, "through")
            load(alone, ids, "alone")
        processor = {"through": [], "alone": []}
        before = through.stats()["cache"]
        ours, bare = in_turns(
            pairs,
            lambda round_: load(through, sets[round_ % 2], "through"),
            lambda round_: load(alone, sets[round_ % 2], "alone"),
        )
        after = through.stats()["cache"]
        assert after["load_filled_shards"] - before["load_filled_shards"] == pairs * count * SHARDS
    name = f"Cache|Posix, load, {size >> 10} KiB blocks, cold"
    setting = f"{count} blocks, {WORKING_SET >> 20} MiB, {SHARDS} shards a block, one task"
    return [
        against(
            name,
            setting,
            ("Cache|Posix", ours),
            ("Posix", bare),
            "x Posix alone",
            LOAD_TARGET,
            WORKING_SET,
        ),
        Figure(
            f"{name}: processor time",
            setting,
            Spread.of(processor["through"]),
            "% of one CPU",
            beside={"Posix alone": Spread.of(processor["alone"])},
        ),
    ]


def _idle(pairs: int) -> list[float]:
    percents = []
    for _ in range(pairs):
        used = time.process_time()
        time.sleep(IDLE_S)
        percents.append(100 * (time.process_time() - used) / IDLE_S)
    return percents


def _dumps(folder: Path, ring: Path, size: int, pairs: int) -> list[Figure]:
    count = WORKING_SET // size
    random = np.random.default_rng(size)
    source, other = aligned(count, size), aligned(count, size)
    root = folder / "store"
    root.mkdir()
    with _cached(root, ring, size, 2 * count) as store:

        def clear() -> None:
            drain(store)
            for prefix in namespace_folder(root).iterdir():
                if prefix.is_dir():
                    for path in prefix.iterdir():
                        path.unlink()
            settle(folder)

        def dump(_round: int) -> float:
            clear()
            ids = random_ids(count, random)
            started = time.perf_counter()
            store.dump(ids, source=source).wait()
            return time.perf_counter() - started

        def copy(_round: int) -> float:
            clear()
            started = time.perf_counter()
            for row in range(count):
                other[row] = source[row]
            return time.perf_counter() - started

        for round_ in range(3):  # every page of the ring has been touched
            dump(round_)
        ours, plain = in_turns(pairs, dump, copy)
        clear()
        idle = Spread.of(_idle(min(pairs, 3)))
    setting = f"{count} blocks, {WORKING_SET >> 20} MiB, {SHARDS} shards a block, one task"
    return [
        against(
            f"Cache|Posix, dump until confirmed, {size >> 10} KiB blocks",
            f"{setting}; written back meanwhile",
            ("Cache|Posix", ours),
            ("memcpy", plain),
            "x memcpy",
            DUMP_TARGETS[size],
            WORKING_SET,
        ),
        Figure(
            f"Cache|Posix, idle after that, {size >> 10} KiB blocks",
            f"{IDLE_S:.0f} s",
            idle,
            "% of one CPU",
            target="0 %",
            met=idle.median < 0.5,
        ),
    ]


def run(root: Path | None, pairs: int) -> list[Figure]:
    """Take the figures. The ring lies in memory, the files below `root`."""
    figures: list[Figure] = []
    for size in SIZES:
        for part in (_loads, _dumps):
            with scratch(root) as folder, scratch(Path(MEMORY)) as ring:
                figures += part(folder, ring, size, pairs)
    return figures
