# SPDX-License-Identifier: Apache-2.0
"""What Cache costs: asking for resident blocks in rings of several sizes, and moving them against a
plain memcpy of the same bytes between the same kinds of memory, with a second process attached."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np

import ucmstore
from bench.measure import Bytes, Figure, Spread, aligned, in_turns, random_ids, ratios, scratch
from bench.stores import NAMESPACE

MEMORY = Path("/dev/shm")
BATCH = 1024
CALLS = 100  # of a batch in one run
SINGLES = 2_000
SLOT_BYTES = 64 + 64 + 32 + 16  # of a ring of one tiny shard a block, metadata included
LIMITS_US = {1 << 12: 0.03, 1 << 16: 0.06, 1 << 20: 0.11}
SIZES = {256 << 10: 0.85, 1 << 20: 0.9, 4 << 20: 0.9}
WORKING_SET = 256 << 20  # far outside the CPU's cache

NEIGHBOUR = """
import sys, ucmstore
store = ucmstore.open(
    "Cache|Null", shard_size=int(sys.argv[1]), shards_per_block=1, log_level="error",
    namespace=ucmstore.Namespace(model="bench", dtype="uint8"),
    stages={"cache": {"path": sys.argv[2], "capacity": sys.argv[3] + "B"}})
print("attached", flush=True)
sys.stdin.read()
"""


@contextmanager
def _ring(
    folder: Path, shard_size: int, capacity: int, write: Literal["back", "through"]
) -> Iterator[ucmstore.Store]:
    """A ring over nothing, and a second process that has it open."""
    with ucmstore.open(
        "Cache|Null",
        shard_size=shard_size,
        shards_per_block=1,
        namespace=NAMESPACE,
        log_level="error",
        cache={"path": str(folder), "capacity": capacity, "unlink": True, "write": write},
    ) as store:
        neighbour = subprocess.Popen(
            [sys.executable, "-c", NEIGHBOUR, str(shard_size), str(folder), str(capacity)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert neighbour.stdout is not None
            assert neighbour.stdout.readline() == b"attached\n"
            yield store
        finally:
            neighbour.communicate(timeout=60)


def _lookups(folder: Path, slots: int, pairs: int) -> list[Figure]:
    random = np.random.default_rng(5)
    # Written through, so that nothing is on its way below while lookups are timed.
    with _ring(folder, 64, slots * SLOT_BYTES + (1 << 16), "through") as store:
        ids = random_ids(slots * 9 // 10, random)
        source = np.zeros((1 << 12, 64), np.uint8)
        for at in range(0, len(ids), len(source)):
            part = ids[at : at + len(source)]
            store.dump(part, source[: len(part)]).wait()
        batches, singles = [], []
        for _ in range(pairs):
            samples = []
            for _ in range(CALLS):
                asked = np.ascontiguousarray(ids[random.integers(0, len(ids), BATCH)])
                started = time.perf_counter_ns()
                found = store.lookup(asked)
                samples.append(time.perf_counter_ns() - started)
                assert (found == 1).all()
            batches.append(float(np.median(samples)) / BATCH / 1e3)
            samples = []
            for _ in range(SINGLES):
                one = ids[random.integers(0, len(ids))].tobytes()
                started = time.perf_counter_ns()
                store.lookup(one)
                samples.append(time.perf_counter_ns() - started)
            singles.append(float(np.median(samples)) / 1e3)
    many, one_alone = Spread.of(batches), Spread.of(singles)
    setting = f"{slots:,} slots, nine of ten in use, in random order"
    limit = LIMITS_US[slots]
    return [
        Figure(
            "ring lookup, resident",
            f"{BATCH:,} ids a call; {setting}",
            many,
            "µs a key",
            target=f"at most {limit} µs a key",
            met=many.median <= limit,
        ),
        Figure(
            "ring lookup of one, resident, p50",
            setting,
            one_alone,
            "µs",
            target="at most 0.8 µs" if slots == min(LIMITS_US) else "",
            met=one_alone.median <= 0.8 if slots == min(LIMITS_US) else None,
        ),
    ]


def _moves(folder: Path, size: int, pairs: int) -> list[Figure]:
    random = np.random.default_rng(6)
    count = WORKING_SET // size
    source, into, other = aligned(count, size), aligned(count, size), aligned(count, size)
    with _ring(folder, size, 2 * WORKING_SET + (64 << 20), "back") as store:

        def copy(to: Bytes, of: Bytes) -> float:
            started = time.perf_counter()
            for row in range(count):
                to[row] = of[row]
            return time.perf_counter() - started

        # Every page of the ring has been touched before anything is timed.
        for _ in range(3):
            store.dump(random_ids(count, random), source).wait()
        ids = random_ids(count, random)
        store.dump(ids, source).wait()

        def load(_round: int) -> float:
            started = time.perf_counter()
            store.load(ids, into).wait()
            return time.perf_counter() - started

        def dump(_round: int) -> float:
            fresh = random_ids(count, random)
            started = time.perf_counter()
            store.dump(fresh, source).wait()
            return time.perf_counter() - started

        loads, plain = in_turns(pairs, load, lambda _: copy(into, other))
        assert (into[:4] == source[:4]).all()
        dumps, plain_again = in_turns(pairs, dump, lambda _: copy(other, source))
    figures = []
    for name, ours, bare in (("load", loads, plain), ("dump", dumps, plain_again)):
        ratio = ratios(bare, ours)
        figures.append(
            Figure(
                f"ring {name}, {size >> 10} KiB blocks, one task",
                f"{WORKING_SET >> 20} MiB, outside the CPU's cache",
                ratio,
                "x memcpy",
                target=f"at least {SIZES[size]}",
                met=ratio.median >= SIZES[size],
                beside={
                    "ring, GB/s": Spread.of([WORKING_SET / 1e9 / s for s in ours]),
                    "memcpy, GB/s": Spread.of([WORKING_SET / 1e9 / s for s in bare]),
                },
            )
        )
    return figures


def run(_root: Path | None, pairs: int) -> list[Figure]:
    """Take the figures. The ring lies in memory, whatever `--root` says."""
    figures: list[Figure] = []
    for slots in LIMITS_US:
        with scratch(MEMORY) as folder:
            figures += _lookups(folder, slots, pairs)
    for size in SIZES:
        with scratch(MEMORY) as folder:
            figures += _moves(folder, size, pairs)
    return figures
