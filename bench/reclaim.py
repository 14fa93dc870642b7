# SPDX-License-Identifier: Apache-2.0
"""What a Posix root of limited capacity keeps of real traces, beside exact LRU, and what a cycle of
reclaim costs. `python -m bench reclaim --trace FILE [--trace FILE] [--files N] [--root DIR]`.

The replay runs many times as fast as the trace was recorded, so after each request it waits until
reclaim has come below the capacity: otherwise the store would keep more than LRU was given room
for. Blocks are touched at each use. Take it on a tmpfs, where folders take no room of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ucmstore
from bench.measure import random_ids
from bench.policies import Lru
from bench.policy import simulate
from bench.stores import fill, open_posix
from ucmstore.cli.trace import Trace, chain, read_trace
from ucmstore.cli.workload import Client

PERCENTS = (5, 10, 25)
BLOCK_BYTES = 4096
DISK_BYTES = 2 * BLOCK_BYTES  # with its footer
ROOT_BYTES = 64 << 10  # files of the root and the namespace themselves: a few pages
PATIENCE_S = 5.0
WORST = 0.95  # of what LRU keeps


@dataclass(frozen=True)
class Kept:
    """Prefix hits of all references, in per cent, with room for some of the distinct blocks."""

    trace: str
    percent: int
    slots: int
    lru: float
    ours: float
    most_held: int  # after a request
    mismatches: int
    cycles: int

    @property
    def met(self) -> bool:
        return self.ours >= WORST * self.lru and self.mismatches == 0


def _held(store: ucmstore.Store) -> tuple[int, int]:
    figures = store.stats()["posix"]
    held = figures["committed_blocks"] - figures["reclaimed_blocks"]
    return int(held), int(figures["reclaim_cycles"])


def replay(trace: Trace, slots: int, root: Path) -> tuple[Client, int, int]:
    """Serve a trace from room for so many blocks; the client, the most held, and the cycles."""
    name_space = ucmstore.Namespace(model="bench", dtype="uint8")
    with ucmstore.open(
        "Posix",
        shard_size=BLOCK_BYTES,
        shards_per_block=1,
        namespace=name_space,
        log_level="error",
        posix={
            "roots": [str(root)],
            "capacity": slots * DISK_BYTES + ROOT_BYTES,
            "prefix_digits": 2,
            "touch_interval_ms": 0,
        },
    ) as store:
        client = Client(store, BLOCK_BYTES, trace.longest)
        most = cycles = 0
        for request in trace.requests:
            client.serve(name_space.derive(chain(request), width=32))
            until = time.monotonic() + PATIENCE_S
            held, cycles = _held(store)
            while held > slots and time.monotonic() < until:
                time.sleep(0.0005)
                held, cycles = _held(store)
            most = max(most, held)
    return client, most, cycles


def kept_of(trace: Trace, parent: Path) -> list[Kept]:
    """The hit rates of one trace."""
    references = trace.references
    distinct = len({block for request in trace.requests for block in request})
    rows = []
    for percent in PERCENTS:
        slots = distinct * percent // 100
        exact = 100 * simulate(trace.requests, Lru(slots)) / references
        with tempfile.TemporaryDirectory(prefix="ucmstore-bench-", dir=parent) as folder:
            client, most, cycles = replay(trace, slots, Path(folder))
        ours = 100 * client.figures.hit_rate
        wrong = client.figures.mismatches + client.figures.failed
        rows.append(Kept(trace.name, percent, slots, exact, ours, most, wrong, cycles))
    return rows


def cycle_seconds(files: int, parent: Path) -> dict[str, float]:
    """The time of a measure and of a cycle that removes a tenth, with so many blocks."""

    def cycle(capacity: int) -> float:
        started = time.perf_counter()
        with open_posix(root, BLOCK_BYTES, capacity=capacity) as store:
            while store.stats()["posix"]["reclaim_cycles"] == 0:
                time.sleep(0.001)
        return time.perf_counter() - started

    with tempfile.TemporaryDirectory(prefix="ucmstore-bench-", dir=parent) as folder:
        root = Path(folder)
        with open_posix(root, BLOCK_BYTES, capacity=0) as store:
            fill(store, random_ids(files, np.random.default_rng(1)), BLOCK_BYTES)
        measure = cycle(1 << 50)
        used = sum(entry.stat().st_blocks * 512 for entry in root.rglob("*"))
        sweep = cycle(used)
    return {"files": files, "measure_s": measure, "cycle_s": sweep}


def _print(rows: list[Kept]) -> None:
    print("| trace | room for | exact LRU, % | Posix, % | of LRU's | most blocks held | cycles |")
    print("|" + " --- |" * 7)
    for row in rows:
        print(
            f"| {row.trace} | {row.percent} %, {row.slots:,} blocks | {row.lru:.2f} "
            f"| {row.ours:.2f} | {row.ours / row.lru:.3f} | {row.most_held:,} | {row.cycles:,} |"
        )


def main(arguments: list[str]) -> int:
    """Print the figures; 1 if the store keeps less than it should, or a byte was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench reclaim", description=__doc__)
    parser.add_argument("--trace", type=Path, action="append", default=[], metavar="FILE")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N requests")
    parser.add_argument("--files", type=int, help="time a cycle with so many blocks")
    parser.add_argument("--root", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    if not given.trace and not given.files:
        parser.error("--trace FILE or --files N must be given")
    rows: list[Kept] = []
    for path in given.trace:
        rows += kept_of(read_trace(path, given.limit), given.root)
    if rows and not given.json:
        _print(rows)
    times: dict[str, Any] = cycle_seconds(given.files, given.root) if given.files else {}
    if given.json:
        print(json.dumps({"kept": [vars(row) for row in rows], "cycle": times}, indent=2))
    elif times:
        print(
            f"{times['files']:,} blocks: {times['measure_s']:.2f} s to measure, "
            f"{times['cycle_s']:.2f} s for a cycle; load {os.getloadavg()[0]:.1f}"
        )
    return int(not all(row.met for row in rows))
