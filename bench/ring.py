# SPDX-License-Identifier: Apache-2.0
"""What Cache costs: asking for resident blocks in rings of several sizes, and moving them against a
plain memcpy of the same bytes between the same kinds of memory, with a second process attached."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np

import ucmstore
from bench.measure import Figure, Spread, against, in_turns, random_ids, scratch
from bench.neighbour import Mover
from bench.stores import NAMESPACE

MEMORY = Path("/dev/shm")
BATCH = 1024
CALLS = 100  # of a batch in one run
SINGLES = 2_000
SLOT_BYTES = 64 + 64 + 32 + 16  # of a ring of one tiny shard a block, metadata included
LIMITS_US = {1 << 12: 0.03, 1 << 16: 0.06, 1 << 20: 0.11}
SIZES = {256 << 10: 0.85, 1 << 20: 0.9, 4 << 20: 0.9}
OUTSIDE = 256 << 20  # bytes a run, far outside the CPU's cache
INSIDE = 8 << 20  # source and destination are in it
TOGETHER = 0.9  # of two memcpys
LOADED = 7  # the seed of the blocks that are loaded
TIMES = 2  # with two processes: so that both are at it for most of the time


class Neighbour:
    """The second process."""

    def __init__(self, folder: Path, size: int, capacity: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.neighbour", str(folder), str(size), str(capacity)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.answer() == "attached"

    def begin(self, what: str, seed: int, count: int, times: int) -> None:
        """Let it move blocks."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what} {seed} {count} {times}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextmanager
def ring(
    folder: Path, shard_size: int, capacity: int, write: Literal["back", "through"]
) -> Iterator[tuple[ucmstore.Store, Neighbour]]:
    """A ring over nothing, and a second process that has it open."""
    with ucmstore.open(
        "Cache|Null",
        shard_size=shard_size,
        shards_per_block=1,
        namespace=NAMESPACE,
        log_level="error",
        cache={"path": str(folder), "capacity": capacity, "unlink": True, "write": write},
    ) as store:
        neighbour = Neighbour(folder, shard_size, capacity)
        try:
            yield store, neighbour
        finally:
            neighbour.process.communicate(timeout=60)


def _lookups(folder: Path, slots: int, pairs: int) -> list[Figure]:
    random = np.random.default_rng(5)
    # Written through, so that nothing is on its way below while lookups are timed.
    with ring(folder, 64, slots * SLOT_BYTES + (1 << 16), "through") as (store, _):
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


def _runs(
    move: Callable[[str, int], float], what: str
) -> tuple[Callable[[int], float], Callable[[int], float]]:
    """Ours and the copy; loads ask for the blocks of one seed, dumps bring new ones each time."""
    return (
        lambda round_: move(what, LOADED if what == "load" else 1000 + 2 * round_),
        lambda _: move("copy", 0),
    )


def _alone(folder: Path, size: int, inside: bool, pairs: int) -> list[Figure]:
    working_set = INSIDE if inside else OUTSIDE
    repeat = OUTSIDE // working_set
    # Inside, a dump's slots should be, too; two more, for those that are being written back.
    capacity = INSIDE + 2 * size + (1 << 18) if inside else 2 * OUTSIDE + (1 << 20)
    figures = []
    with ring(folder, size, capacity, "back") as (store, neighbour):
        mover = Mover(store, size, working_set // size)
        for seed in range(3):  # every page of the ring has been touched
            mover.move("dump", seed, 1)
        for what in ("load", "dump"):
            mover.move("dump", LOADED, 1)
            ours, plain = in_turns(pairs, *_runs(lambda w, s: mover.move(w, s, repeat), what))
            figures.append(
                against(
                    f"ring {what}, {size >> 10} KiB blocks, one task",
                    f"{working_set >> 20} MiB, {'inside' if inside else 'far outside'} the CPU's "
                    "cache",
                    ("ring", ours),
                    ("memcpy", plain),
                    "x memcpy",
                    SIZES[size],
                    OUTSIDE,
                )
            )
        past = store.stats()["cache"]["dump_past_shards"]
        assert past == 0, f"{past} dumps found no slot, and were not copied"
        if not inside:
            figures += _together(mover, neighbour, size, pairs)
    return figures


def _together(mover: Mover, neighbour: Neighbour, size: int, pairs: int) -> list[Figure]:
    """Two processes at the same ring against two that copy."""

    def both(what: str, seed: int) -> float:
        its_seed = seed + 1 if what == "dump" else seed
        neighbour.begin(what, its_seed, OUTSIDE // size, TIMES)
        mine = mover.move(what, seed, TIMES)
        return max(mine, float(neighbour.answer()))

    figures = []
    for what in ("load", "dump"):
        both("copy", 0)  # the neighbour has its memory
        mover.move("dump", LOADED, 1)
        ours, plain = in_turns(pairs, *_runs(both, what))
        figures.append(
            against(
                f"ring {what}, {size >> 10} KiB blocks, two processes at once",
                f"{OUTSIDE >> 20} MiB each, {TIMES} times",
                ("ring", ours),
                ("memcpy", plain),
                "x memcpy",
                TOGETHER,
                2 * TIMES * OUTSIDE,
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
            figures += _alone(folder, size, False, pairs)
        with scratch(MEMORY) as folder:
            figures += _alone(folder, size, True, pairs)
    return figures
