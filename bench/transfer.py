# SPDX-License-Identifier: Apache-2.0
"""Dump and load of whole blocks against the bare loops open/pwrite/rename and open/pread, which
write no footer and check no checksum. Ratios above 1 mean that the store is faster.

Like is compared with like: a store that goes past the page cache with a loop that does (O_DIRECT),
a buffered store with a buffered loop. The lines "as it comes against a buffered loop" are not
alike: the store waits for the disk, the loop for memory. Before a timed run everything dirty is
written, so that no run pays for another.
"""

from __future__ import annotations

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
    against,
    aligned,
    drop_cached,
    in_turns,
    random_ids,
    scratch,
    settle,
)
from bench.stores import namespace_folder, open_posix

SIZES = (256 << 10, 1 << 20, 4 << 20)
RUN_BYTES = 128 << 20
SHARDS = 4
PREFIX_DIGITS = 1  # few folders, so that emptying them between runs is quick
TARGET = 0.95


@dataclass
class Medium:
    """One store, and the folder of the bare loops, on the same file system."""

    folder: Path
    root: Path  # of the store
    store: ucmstore.Store
    direct: bool  # whether the store goes past the page cache
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
        for top in (namespace_folder(self.root), self.bare.path):
            for prefix in top.iterdir():
                if prefix.is_dir():
                    for path in prefix.iterdir():
                        path.unlink()
        settle(self.folder)

    def keep(self) -> Bytes:
        """Store `data` in store and bare folder for the loads to come; give the ids."""
        self.clear()
        ids = random_ids(self.count, self.random)
        self.store.dump(ids, source=self.data).wait()
        self.bare.write(ids, self.data, direct=False)
        settle(self.folder)
        return ids


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
    """The runs took nanoseconds."""
    store = ("store", [1e-9 * ns for ns in ours])
    loop = ("bare loop", [1e-9 * ns for ns in raw])
    return against(name, setting, store, loop, "x the bare loop", target, run_bytes)


def _word(direct: bool) -> str:
    return "direct" if direct else "buffered"


def _dump_figures(medium: Medium, size: int, pairs: int) -> list[Figure]:
    setting = f"{medium.count} new blocks, {RUN_BYTES >> 20} MiB, {SHARDS} shards a block"
    cases = [(medium.direct, False, TARGET), (medium.direct, True, None)]
    if medium.direct:
        cases.append((False, False, None))
    figures = []
    for loop_is_direct, each, target in cases:
        ours, raw = in_turns(pairs, *_dump_runs(medium, each, loop_is_direct))
        who = _word(medium.direct) if loop_is_direct == medium.direct else "as it comes"
        what = (
            f"dump, {_size_name(size)}, {'one block a task, p50' if each else 'one task'}: "
            f"{who} against a {_word(loop_is_direct)} loop"
        )
        figures.append(_ratio(what, setting, ours, raw, target, None if each else RUN_BYTES))
    return figures


def _load_figures(medium: Medium, size: int, pairs: int) -> list[Figure]:
    ids = medium.keep()
    setting = f"{medium.count} blocks, {RUN_BYTES >> 20} MiB, {SHARDS} shards a block"
    direct = medium.direct
    cases: list[tuple[bool, bool, bool, float | None]] = [
        (direct, True, False, TARGET),  # loop is direct, cold, one block a task, target
        (direct, True, True, None),
    ]
    if not direct:
        cases += [(False, False, False, TARGET), (False, False, True, None)]
    else:
        cases.append((False, False, False, None))
    figures = []
    for loop_is_direct, cold, each, target in cases:
        if not cold:  # so that the first run is as warm as the others
            medium.bare.read(ids, medium.landing, direct=False)
            medium.store.load(ids, into=medium.landing).wait()
        runs = _load_runs(medium, ids, each, loop_is_direct, cold)
        ours, raw = in_turns(pairs, *runs)
        who = _word(direct) if loop_is_direct == direct else "as it comes"
        what = (
            f"load, {_size_name(size)}, {'one block a task, p50' if each else 'one task'}: "
            f"{who} against a {_word(loop_is_direct)} loop, {'cold' if cold else 'warm'}"
        )
        figures.append(_ratio(what, setting, ours, raw, target, None if each else RUN_BYTES))
    return figures


def run(root: Path | None, pairs: int) -> list[Figure]:
    """Take the figures."""
    figures: list[Figure] = []
    for size in SIZES:
        count = RUN_BYTES // size
        data, landing = aligned(count, size), aligned(count, size)
        random = np.random.default_rng(size)
        for direct in (True, False):
            with scratch(root) as folder:
                bare = Folder(folder / "bare", PREFIX_DIGITS)
                place = folder / "store"
                place.mkdir()
                mode = "auto" if direct else "buffered"
                with open_posix(place, size, SHARDS, io=mode, prefix_digits=PREFIX_DIGITS) as store:
                    medium = Medium(folder, place, store, direct, bare, data, landing, random)
                    store.dump(random_ids(1, random), source=data[:1]).wait()  # starts threads
                    figures += _dump_figures(medium, size, pairs)
                    figures += _load_figures(medium, size, pairs)
                bare.close()
    return figures
