# SPDX-License-Identifier: Apache-2.0
"""Every call that may block lets other Python threads run.

Shown without clocks: the interpreter is told to switch threads never by itself, so a second thread
moves only if the call under test gives up the GIL. Each call is made long enough for the other one
to be seen, by a lookup that is delayed or by many blocks, and is tried until it is; one that holds
the GIL never passes. (Others, such as `poll`, let go of it too, but are over too soon to show it.)
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from api_support import (
    BLOCK,
    LONG_S,
    NAMESPACE,
    SHARD,
    SHARDS,
    faulty,
    make_rows,
    open_store,
)
from ucmstore import _core

TRIES = 200
COUNT = 20_000
IDS = np.random.default_rng(1).bytes(16 * COUNT)
FEW = IDS[: 16 * 4]
MEMORY = np.zeros(BLOCK, np.uint8)
ADDRESSES = np.full(COUNT, MEMORY.ctypes.data, np.uint64)
SIZES = np.array([BLOCK], np.uint64)

Prepare = Callable[[], Callable[[], object]]


class Other:
    """A thread that counts its turns, and never keeps the GIL for longer than one of them."""

    def __init__(self) -> None:
        self.turns = 0
        self._stop = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._interval = sys.getswitchinterval()

    def _run(self) -> None:
        while not self._stop:
            self.turns += 1
            time.sleep(0)  # style: gives up the GIL, and wants it back

    def __enter__(self) -> Other:
        self._thread.start()
        while self.turns == 0:
            time.sleep(0)  # style: lets the other one begin
        sys.setswitchinterval(1000)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setswitchinterval(self._interval)
        self._stop = True
        self._thread.join(30)

    def moves_during(self, call: Callable[[], object]) -> bool:
        """Whether it had a turn while `call` ran."""
        before = self.turns
        call()
        return self.turns > before


@pytest.fixture
def other() -> Iterator[Other]:
    with Other() as thread:
        yield thread


def test_a_call_that_holds_the_gil_is_seen(other: Other) -> None:
    assert not any(other.moves_during(lambda: _core.count_ids(IDS)) for _ in range(TRIES))


def lookups(folder: Path) -> Iterator[dict[str, Prepare]]:
    """Calls that a slow stage makes slow."""
    with faulty() as (store, fault):
        core = store._core
        fault.arm("lookup delay=20")
        fault.arm("load delay=20")
        store.dump(FEW, make_rows(4)).wait()

        def loaded() -> Callable[[], object]:
            task = core.load(FEW, None, ADDRESSES[:4], SIZES, None, 0, MEMORY)
            return lambda: task.wait(None)

        def closing() -> Callable[[], object]:
            pipeline = _core.Pipeline("Dram", SHARD, SHARDS, NAMESPACE._core, {})
            pipeline.dump(FEW, None, ADDRESSES[:4], SIZES, None, 0, MEMORY)
            return lambda: pipeline.close(1000)

        yield {
            "lookup": lambda: lambda: core.lookup(FEW, True, None),
            "lookup_prefix": lambda: lambda: core.lookup_prefix(FEW, True, None),
            "wait": loaded,
            "open": lambda: lambda: _core.Pipeline("Dram", SHARD, SHARDS, NAMESPACE._core, {}),
            "close": closing,
            "stats": lambda: core.stats,
        }


def transfers(folder: Path) -> Iterator[dict[str, Prepare]]:
    """Calls that begin something big."""
    with open_store("Null") as store:
        core = store._core

        def transfer(begin: Callable[..., object]) -> Prepare:
            return lambda: lambda: begin(IDS, None, ADDRESSES, SIZES, None, 0, MEMORY)

        yield {
            "load": transfer(core.load),
            "dump": transfer(core.dump),
            "prefetch": lambda: lambda: core.prefetch(IDS, None, None, 0),
        }


def tools(folder: Path) -> Iterator[dict[str, Prepare]]:
    """Calls that need no open store."""
    with open_store("Posix", posix={"roots": [folder]}) as store:
        store.dump(FEW, make_rows(4)).wait()
    big = bytes(1 << 26)
    yield {
        "plugins": lambda: _core.plugins,
        "crc32c": lambda: lambda: _core.crc32c(big),
        "derive": lambda: lambda: NAMESPACE._core.derive(IDS, 16, 1, ""),
        "admin_walk": lambda: (
            lambda: _core.admin_walk(
                "Posix", str(folder), None, _core.ADMIN_READ, None, lambda _: None
            )
        ),
    }


CASES = {
    lookups: ["lookup", "lookup_prefix", "wait", "open", "close", "stats"],
    transfers: ["load", "dump", "prefetch"],
    tools: ["plugins", "crc32c", "derive", "admin_walk"],
}


@pytest.mark.parametrize(
    ("calls", "name"), [(calls, name) for calls, names in CASES.items() for name in names]
)
def test_other_threads_run_during(
    calls: Callable[[Path], Iterator[dict[str, Prepare]]],
    name: str,
    other: Other,
    tmp_path: Path,
) -> None:
    with contextlib.contextmanager(calls)(tmp_path) as prepared:
        prepare = prepared[name]
        deadline = time.monotonic() + LONG_S
        while not other.moves_during(prepare()):
            assert time.monotonic() < deadline, f"{name} holds the GIL"
