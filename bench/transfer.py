# SPDX-License-Identifier: Apache-2.0
"""Dump and load of whole blocks against the bare loops open/pwrite/rename and open/pread, which
write no footer and check no checksum. Ratios above 1 mean that the store is faster.

Both loops exist twice: through the page cache, as plain code would, and past it (O_DIRECT). Before
a timed run everything dirty is written, so that no run pays for another.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import ucmstore
from bench.bare import Folder
from bench.measure import (
    Bytes,
    Figure,
    Spread,
    aligned,
    drop_cached,
    in_turns,
    random_ids,
    ratios,
    scratch,
    settle,
)
from bench.stores import namespace_folder, open_posix

SIZES = (256 << 10, 1 << 20, 4 << 20)
RUN_BYTES = 128 << 20
SHARDS = 4
TARGET = 0.95


@dataclass
class Medium:
    """One store and the folders of the bare loops, on the same file system."""

    folder: Path
    store: ucmstore.Store
    bare: Folder
    data: Bytes  # n blocks: source of dumps
    landing: Bytes  # n blocks: destination of loads
    random: np.random.Generator

    @property
    def count(self) -> int:
        """Blocks in a run."""
        return len(self.data)

    def clear(self) -> None:
        """Remove every block of store and loops, and let the disk come to rest."""
        for top in (namespace_folder(self.folder / "store"), self.bare.path):
            for prefix in top.iterdir():
                if prefix.is_dir():
                    for path in prefix.iterdir():
                        path.unlink()
        settle(self.folder)


def _size_name(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def _dump_runs(
    medium: Medium, each: bool, direct: bool
) -> tuple[Callable[[int], float], Callable[[int], float]]:
    def ours(_round: int) -> float:
        medium.clear()
        ids = random_ids(medium.count, medium.random)
        if not each:
            started = time.perf_counter_ns()
            medium.store.dump(ids, source=medium.data).wait()
            return float(time.perf_counter_ns() - started)
        samples = []
        for row in range(medium.count):
            started = time.perf_counter_ns()
            medium.store.dump(ids[row : row + 1], source=medium.data[row : row + 1]).wait()
            samples.append(time.perf_counter_ns() - started)
        return float(np.median(samples))

    def raw(_round: int) -> float:
        medium.clear()
        ids = random_ids(medium.count, medium.random)
        whole, singles = medium.bare.write(ids, medium.data, direct=direct)
        return float(np.median(singles)) if each else float(whole)

    return ours, raw


def _load_runs(
    medium: Medium, ids: Bytes, each: bool, direct: bool, cold: bool
) -> tuple[Callable[[int], float], Callable[[int], float]]:
    def prepare() -> None:
        if cold:
            drop_cached(medium.folder)

    def ours(_round: int) -> float:
        prepare()
        medium.landing.fill(0)
        if not each:
            started = time.perf_counter_ns()
            medium.store.load(ids, into=medium.landing).wait()
            spent = time.perf_counter_ns() - started
            assert np.array_equal(medium.landing, medium.data)
            return float(spent)
        samples = []
        for row in range(medium.count):
            started = time.perf_counter_ns()
            medium.store.load(ids[row : row + 1], into=medium.landing[row : row + 1]).wait()
            samples.append(time.perf_counter_ns() - started)
        return float(np.median(samples))

    def raw(_round: int) -> float:
        prepare()
        medium.landing.fill(0)
        whole, singles = medium.bare.read(ids, medium.landing, direct=direct)
        return float(np.median(singles)) if each else float(whole)

    return ours, raw


def _ratio(
    name: str,
    setting: str,
    ours: list[float],
    raw: list[float],
    target: float | None,
    run_bytes: int | None,
) -> Figure:
    value = ratios(raw, ours)
    beside = {}
    for who, spent in (("store", ours), ("bare loop", raw)):
        if run_bytes:
            beside[f"{who}, GB/s"] = Spread.of([run_bytes / ns for ns in spent])
        else:
            beside[f"{who}, µs"] = Spread.of([ns / 1e3 for ns in spent])
    return Figure(
        name,
        setting,
        value,
        "x the bare loop",
        target=f"at least {target}" if target else "",
        met=value.median >= target if target else None,
        beside=beside,
    )


def _figures_of(medium: Medium, size: int, pairs: int) -> list[Figure]:
    figures = []
    word = _size_name(size)
    setting = (
        f"{medium.count} new blocks of {word} ({RUN_BYTES >> 20} MiB), {SHARDS} shards a block"
    )
    for direct in (False, True):
        against = f"against a {'direct' if direct else 'buffered'} loop"
        target = TARGET if not direct else None
        for each in (False, True):
            ours, raw = in_turns(pairs, *_dump_runs(medium, each, direct))
            what = f"dump, {word}, {'one block a task, p50' if each else 'one task'}, {against}"
            figures.append(
                _ratio(
                    what, setting, ours, raw, None if each else target, None if each else RUN_BYTES
                )
            )
    medium.clear()
    ids = random_ids(medium.count, medium.random)
    medium.store.dump(ids, source=medium.data).wait()
    medium.bare.write(ids, medium.data, direct=False)
    settle(medium.folder)
    setting = setting.replace(" new", "")
    for cold, direct in ((True, False), (True, True), (False, False)):
        against = f"against a {'direct' if direct else 'buffered'} loop"
        state = "not in the page cache" if cold else "page cache left as it is"
        for each in (False, True):
            ours, raw = in_turns(pairs, *_load_runs(medium, ids, each, direct, cold))
            what = f"load, {word}, {'one block a task, p50' if each else 'one task'}, {against}"
            target = TARGET if cold and not direct and not each else None
            figures.append(
                _ratio(what, f"{setting}, {state}", ours, raw, target, None if each else RUN_BYTES)
            )
    return figures


def run(root: Path | None, pairs: int) -> list[Figure]:
    """Take the figures."""
    figures: list[Figure] = []
    for size in SIZES:
        count = RUN_BYTES // size
        with scratch(root) as folder:
            (folder / "store").mkdir()
            with open_posix(folder / "store", size, SHARDS) as store:
                bare = Folder(folder / "bare")
                medium = Medium(
                    folder,
                    store,
                    bare,
                    aligned(count, size),
                    aligned(count, size),
                    np.random.default_rng(size),
                )
                store.dump(random_ids(1, medium.random), source=medium.data[:1]).wait()
                figures += _figures_of(medium, size, pairs)
                bare.close()
                shutil.rmtree(folder / "bare")
    return figures
