# SPDX-License-Identifier: Apache-2.0
"""What an open store costs while nobody asks it anything, and how long it takes to close."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from bench.measure import Figure, Spread, random_ids, scratch
from bench.stores import fill, open_posix

BLOCK_BYTES = 64 << 10
IDLE_S = 2.0


def run(root: Path | None, pairs: int) -> list[Figure]:
    """Take the figures."""
    random = np.random.default_rng(11)
    busy, closing = [], []
    with scratch(root) as folder:
        for _ in range(pairs):
            store = open_posix(folder, BLOCK_BYTES)
            fill(store, random_ids(500, random), BLOCK_BYTES)
            time.sleep(0.2)
            before = time.process_time_ns()
            time.sleep(IDLE_S)
            busy.append((time.process_time_ns() - before) / (IDLE_S * 1e9) * 100)
            started = time.perf_counter_ns()
            store.close()
            closing.append((time.perf_counter_ns() - started) / 1e6)
    used, closed = Spread.of(busy), Spread.of(closing)
    setting = "after 500 dumps of 64 KiB"
    return [
        Figure(
            "idle",
            f"{setting}, {IDLE_S:.0f} s of nothing",
            used,
            "% of one CPU",
            target="0 %",
            met=used.median < 0.05,
        ),
        Figure("close", setting, closed, "ms", target="under 50 ms", met=closed.median < 50),
    ]
