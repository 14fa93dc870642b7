# SPDX-License-Identifier: Apache-2.0
"""What it costs to ask for a block: many at once and one alone; present, absent and seen before,
absent and new to the kernel. Beside each, a raw fstatat of the same names in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.bare import Folder
from bench.measure import Bytes, Figure, Spread, in_turns, random_ids, scratch
from bench.stores import fill, namespace_folder, open_posix

BATCH = 1024
BLOCK_BYTES = 4096
PRESENT = 20_000
REPEATS = 50  # of a batch in one run, where repeating does not change what is asked
SINGLES = 2_000


def _median_us(samples: list[int]) -> float:
    return float(np.median(samples)) / 1e3


def run(root: Path | None, pairs: int) -> list[Figure]:
    """Take the figures."""
    random = np.random.default_rng(7)
    with scratch(root) as folder, open_posix(folder, BLOCK_BYTES) as store:
        ids = random_ids(PRESENT, random)
        fill(store, ids, BLOCK_BYTES)
        bare = Folder(namespace_folder(folder), prefix_digits=3)  # as Posix has it unasked
        present, absent = ids[:BATCH].copy(), random_ids(BATCH, random)
        setting = f"{BATCH:,} ids a call; a folder of {PRESENT:,} blocks"

        def batch(
            take: Callable[[], Bytes], expected: int, repeats: int
        ) -> tuple[Callable[[int], float], Callable[[int], float]]:
            def ours(_round: int) -> float:
                samples = []
                for _ in range(repeats):
                    asked = take()
                    started = time.perf_counter_ns()
                    found = store.lookup(asked)
                    samples.append(time.perf_counter_ns() - started)
                    assert int(np.count_nonzero(found)) == expected
                return _median_us(samples) / BATCH

            def raw(_round: int) -> float:
                samples = []
                for _ in range(repeats):
                    spent, found = bare.stat(take())
                    samples.append(spent)
                    assert found == expected
                return _median_us(samples) / BATCH

            return ours, raw

        def single(
            take: Callable[[], Bytes],
        ) -> tuple[Callable[[int], float], Callable[[int], float]]:
            def ours(_round: int) -> float:
                samples = []
                for _ in range(SINGLES):
                    asked = take()
                    started = time.perf_counter_ns()
                    store.lookup(asked)
                    samples.append(time.perf_counter_ns() - started)
                return _median_us(samples)

            def raw(_round: int) -> float:
                return _median_us([bare.stat(take())[0] for _ in range(SINGLES)])

            return ours, raw

        def fresh(count: int) -> Callable[[], Bytes]:
            return lambda: random_ids(count, random)

        # "Seen before": the kernel remembers the absence of these names.
        store.lookup(absent)
        cases = [
            ("lookup, present", batch(lambda: present, BATCH, REPEATS), 1.2),
            ("lookup, absent and seen before", batch(lambda: absent, 0, REPEATS), 1.2),
            ("lookup, absent and never asked", batch(fresh(BATCH), 0, 5), 2.6),
        ]
        figures = [
            _figure(name, setting, "µs a key", runs, target, pairs) for name, runs, target in cases
        ]
        one, gone = present[:1].copy(), absent[:1].copy()
        alone = f"1 id a call, {SINGLES:,} calls; a folder of {PRESENT:,} blocks"
        singles = [
            ("lookup of one, present, p50", single(lambda: one)),
            ("lookup of one, absent and seen before, p50", single(lambda: gone)),
            ("lookup of one, absent and never asked, p50", single(fresh(1))),
        ]
        for index, (name, runs) in enumerate(singles):
            figures.append(_figure(name, alone, "µs", runs, 2.7 if index < 2 else None, pairs))
        bare.close()
    return figures


def _figure(
    name: str,
    setting: str,
    unit: str,
    runs: tuple[Callable[[int], float], Callable[[int], float]],
    target: float | None,
    pairs: int,
) -> Figure:
    ours, raw = in_turns(pairs, *runs)
    value = Spread.of(ours)
    return Figure(
        name,
        setting,
        value,
        unit,
        target=f"at most {target} {unit}" if target else "",
        met=value.median <= target if target else None,
        beside={"raw fstatat": Spread.of(raw)},
    )
