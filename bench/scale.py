# SPDX-License-Identifier: Apache-2.0
"""What many blocks, and many failures, cost: the time to open a store, memory, descriptors. Each
figure of memory is taken in a process of its own, so that nothing else is in it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import ucmstore
from bench.measure import Figure, Spread, descriptors, in_turns, random_ids, resident_bytes, scratch
from bench.stores import fill, open_posix

MANY = 200_000
FEW = 2_000
FAILURES = 10_000
BLOCK_BYTES = 4096
SHARDS = 4  # of a block that is abandoned, 3 are dumped
_OPENS = 20
_CLOSE_S = 120.0


def _open_ms(root: Path) -> Callable[[int], float]:
    def once(_round: int) -> float:
        samples = []
        for _ in range(_OPENS):
            started = time.perf_counter_ns()
            store = open_posix(root, BLOCK_BYTES)
            samples.append(time.perf_counter_ns() - started)
            store.close()
        return float(np.median(samples)) / 1e6

    return once


def _open_figure(full: Path, empty: Path, pairs: int) -> Figure:
    slow, fast = in_turns(pairs, _open_ms(full), _open_ms(empty))
    value = Spread.of([a - b for a, b in zip(slow, fast, strict=True)])
    return Figure(
        "open, more on a full folder than on an empty one",
        f"{MANY:,} blocks against none; median of {_OPENS} opens a run",
        value,
        "ms",
        target="at most 10 ms",
        met=value.median <= 10,
        beside={"full": Spread.of(slow), "empty": Spread.of(fast)},
    )


def grow(root: Path) -> dict[str, float]:
    """Dump MANY blocks into one store; resident memory after FEW and after all, in MB."""
    random = np.random.default_rng(1)
    before = descriptors()
    with open_posix(root, BLOCK_BYTES) as store:
        source = np.zeros((500, BLOCK_BYTES), dtype=np.uint8)
        few = 0
        for done in range(0, MANY, len(source)):
            if done == FEW:
                few = resident_bytes()
            store.dump(random_ids(len(source), random), source=source).wait()
        many = resident_bytes()
    return {"few": few / 1e6, "more": (many - few) / 1e6, "descriptors": descriptors() - before}


def abandon(root: Path) -> dict[str, float]:
    """Dump 3 of 4 shards of FAILURES blocks, in one store."""
    random = np.random.default_rng(2)
    before = descriptors()
    store = open_posix(root, BLOCK_BYTES, SHARDS)
    source = np.zeros((100, BLOCK_BYTES // SHARDS), dtype=np.uint8)
    _warm(store, random)
    few = resident_bytes()
    for _ in range(0, FAILURES, len(source)):
        ids = random_ids(len(source), random)
        for shard in range(SHARDS - 1):
            store.dump(ids, source=source, shard=shard).wait()
    many = resident_bytes()
    store.close(_CLOSE_S)  # it removes what was abandoned, file by file
    return {"few": few / 1e6, "more": (many - few) / 1e6, "descriptors": descriptors() - before}


def time_out(root: Path) -> dict[str, float]:
    """FAILURES loads, each with a deadline that has passed before its turn comes."""
    random = np.random.default_rng(3)
    before = descriptors()
    big = 1 << 20
    timed_out = 0
    with open_posix(root, big, SHARDS) as store:
        ids = random_ids(64, random)
        fill(store, ids, big, batch=16)
        landing = np.empty((len(ids), big), dtype=np.uint8)
        spare = np.empty((1, big), dtype=np.uint8)  # nobody looks at it, so all may share it
        store.load(ids, into=landing).wait()
        few = resident_bytes()
        while timed_out < FAILURES:
            busy = store.load(ids, into=landing)  # keeps the workers busy past the deadlines
            late = [store.load(ids[:1], into=spare, timeout=0.001) for _ in range(200)]
            for task in late:
                try:
                    task.wait()
                except ucmstore.DeadlineError:
                    timed_out += 1
            busy.wait()
        many = resident_bytes()
    return {
        "few": few / 1e6,
        "more": (many - few) / 1e6,
        "descriptors": descriptors() - before,
        "timed_out": timed_out,
    }


def _warm(store: ucmstore.Store, random: np.random.Generator) -> None:
    """What any use allocates once: threads, buffers, tables."""
    fill(store, random_ids(FEW, random), BLOCK_BYTES)


def _in_new_process(what: str, root: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.scale", what, str(root)],
        check=True,
        capture_output=True,
        text=True,
    )
    figures = json.loads(done.stdout)
    assert isinstance(figures, dict)
    return figures


def _memory_figures(
    what: str, name: str, setting: str, results: list[dict[str, float]]
) -> list[Figure]:
    more = Spread.of([result["more"] for result in results])
    left = Spread.of([result["descriptors"] for result in results])
    return (
        [
            Figure(
                f"memory, {name}",
                setting,
                more,
                "MB more",
                target="at most 5 MB",
                met=more.median <= 5,
                beside={"before": Spread.of([r["few"] for r in results])},
            ),
            Figure(
                f"descriptors, {name}", setting, left, "left open", target="0", met=left.high <= 0
            ),
        ]
        if what
        else []
    )


def run(root: Path | None, pairs: int) -> list[Figure]:
    """Take the figures. The large folder is filled once, the failures are tried `pairs` times."""
    figures = []
    with scratch(root) as folder:
        full, empty = folder / "full", folder / "empty"
        full.mkdir()
        empty.mkdir()
        grown = [_in_new_process("grow", full)]
        figures += _memory_figures(
            "grow",
            f"{MANY:,} dumps against {FEW:,}",
            f"one run; blocks of {BLOCK_BYTES} B, 500 a task",
            grown,
        )
        figures.append(_open_figure(full, empty, pairs))
    for what, name, setting in (
        ("abandon", f"{FAILURES:,} abandoned blocks", f"{SHARDS - 1} of {SHARDS} shards dumped"),
        ("time_out", f"{FAILURES:,} time-outs", "loads of 1 MiB with a deadline of 1 ms"),
    ):
        results = []
        for _ in range(pairs):
            with scratch(root) as folder:
                results.append(_in_new_process(what, folder))
        figures += _memory_figures(what, name, f"{setting}; each run in a new process", results)
    return figures


if __name__ == "__main__":
    _PARTS = {"grow": grow, "abandon": abandon, "time_out": time_out}
    print(json.dumps(_PARTS[sys.argv[1]](Path(sys.argv[2]))))
