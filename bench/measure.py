# SPDX-License-Identifier: Apache-2.0
"""How figures are taken: in pairs, in turns, each with its spread; and what they were taken on.

A pair is one run of ours and one of what it is compared with, in alternating order. A figure is the
median of the pairs' ratios (or times), beside the lowest and the highest. Single-threaded.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Spread:
    """The median of some runs, and the lowest and highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """The spread of at least one value."""
        return cls(statistics.median(values), min(values), max(values))

    def text(self, unit: str = "") -> str:
        """ "1.02 µs (0.98 - 1.10)"."""
        digits = 2 if not 0 < self.median < 0.1 else 3
        return (
            f"{self.median:.{digits}f}{' ' if unit else ''}{unit} "
            f"({self.low:.{digits}f} - {self.high:.{digits}f})"
        )


@dataclass
class Figure:
    """One figure: what was measured, on what, and how it came out."""

    name: str
    setting: str  # task size and working set, in words
    value: Spread
    unit: str
    target: str = ""
    met: bool | None = None  # None: there is no target
    beside: dict[str, Spread] = field(default_factory=dict)  # what it was compared with, same unit

    def to_json(self) -> dict[str, Any]:
        """Plain data."""

        def plain(spread: Spread) -> dict[str, float]:
            return {"median": spread.median, "low": spread.low, "high": spread.high}

        return {
            "name": self.name,
            "setting": self.setting,
            "unit": self.unit,
            **plain(self.value),
            "target": self.target,
            "met": self.met,
            "beside": {name: plain(spread) for name, spread in self.beside.items()},
        }


def in_turns(pairs: int, *runs: Callable[[int], float]) -> list[list[float]]:
    """Call every run once a round, the order turning; give the values of each run."""
    values: list[list[float]] = [[] for _ in runs]
    for round_ in range(pairs):
        for offset in range(len(runs)):
            which = (round_ + offset) % len(runs)
            values[which].append(runs[which](round_))
    return values


def ratios(above: list[float], below: list[float]) -> Spread:
    """The spread of the pairs' ratios."""
    return Spread.of([a / b for a, b in zip(above, below, strict=True)])


def against(
    name: str,
    setting: str,
    ours: tuple[str, list[float]],
    plain: tuple[str, list[float]],
    unit: str,
    target: float | None,
    run_bytes: int | None,
) -> Figure:
    """How many times as fast as something plain ours is, from the names of both and the seconds of
    their runs. Beside it the rates of both, or the times where a run is not `run_bytes`."""
    value = ratios(plain[1], ours[1])
    beside = {}
    for who, spent in (ours, plain):
        if run_bytes:
            beside[f"{who}, GB/s"] = Spread.of([run_bytes / 1e9 / s for s in spent])
        else:
            beside[f"{who}, µs"] = Spread.of([1e6 * s for s in spent])
    return Figure(
        name,
        setting,
        value,
        unit,
        target=f"at least {target}" if target else "",
        met=value.median >= target if target else None,
        beside=beside,
    )


def random_ids(count: int, random: np.random.Generator) -> Bytes:
    """Ids that were never used before."""
    return random.integers(0, 256, (count, 16), dtype=np.uint8)


def aligned(rows: int, row_bytes: int) -> Bytes:
    """Memory on page boundaries, touched, as an engine's pinned host memory is."""
    memory = mmap.mmap(-1, max(1, rows * row_bytes))
    array = np.frombuffer(memory, dtype=np.uint8).reshape(rows, row_bytes)
    array[:] = (
        np.arange(rows * row_bytes, dtype=np.uint64)
        .view(np.uint8)[: array.size]
        .reshape(rows, row_bytes)
    )
    return array


@contextmanager
def scratch(root: Path | None) -> Iterator[Path]:
    """A folder on the medium to measure, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="ucmstore-bench-", dir=root))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def settle(folder: Path) -> None:
    """Write what is dirty on the file system of `folder`: no run pays for an earlier one."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
            raise OSError(ctypes.get_errno(), "syncfs", str(folder))
    finally:
        os.close(fd)


def drop_cached(folder: Path) -> None:
    """Take the files below `folder` out of the page cache. They must be clean (settle)."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


def resident_bytes() -> int:
    """This process' resident set."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * mmap.PAGESIZE


def descriptors() -> int:
    """This process' open descriptors, without the one that counts them."""
    return len(os.listdir("/proc/self/fd")) - 1  # noqa: PTH208


def machine(folder: Path) -> dict[str, str]:
    """What the figures were taken on."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    from ucmstore.cli.doctor_checks import file_system_of

    return {
        "cpu": f"{model}, {len(os.sched_getaffinity(0))} usable",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "file system": file_system_of(folder)[0],
        "load average": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }
