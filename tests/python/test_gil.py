# SPDX-License-Identifier: Apache-2.0
"""Every call that may block lets other Python threads run.

Shown without clocks: the interpreter is told to switch threads never by itself, so a second thread
moves only if the call under test gives up the GIL. A call may be over before the other one has got
the processor, so each is tried until it does; one that holds the GIL never passes.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import ucmstore
from api_support import BLOCK, NAMESPACE, SHARD, SHARDS, make_ids, make_rows, open_store
from ucmstore import _core

TRIES = 2_000


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
            time.sleep(0)  # gives up the GIL, and wants it back

    def __enter__(self) -> Other:
        self._thread.start()
        while self.turns == 0:
            time.sleep(0)
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


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ucmstore.Store]:
    with open_store("Posix", posix={"roots": [tmp_path]}) as opened:
        yield opened


IDS = b"".join(make_ids(512))
ROWS = make_rows(4)


def test_a_call_that_holds_the_gil_is_seen(other: Other) -> None:
    assert not any(other.moves_during(lambda: _core.count_ids(IDS)) for _ in range(TRIES))


def calls(store: ucmstore.Store) -> dict[str, Callable[[], Callable[[], object]]]:
    """What makes each call: preparations first, then the call alone."""
    core = store._core
    ids = IDS[: 16 * 4]
    task = store.dump(ids, ROWS)
    task.wait()
    into = np.zeros((4, BLOCK), np.uint8)
    addresses = np.array([into[i].ctypes.data for i in range(4)], np.uint64)
    sizes = np.array([BLOCK], np.uint64)

    def transfer(begin: Callable[..., _core.Task]) -> Callable[[], Callable[[], object]]:
        return lambda: lambda: begin(ids, None, addresses, sizes, None, 0, into)

    def loaded() -> Callable[[], object]:
        load = core.load(ids, None, addresses, sizes, None, 0, into)
        return lambda: load.wait(None)

    def opened() -> Callable[[], object]:
        pipeline = _core.Pipeline("Dram", SHARD, SHARDS, NAMESPACE._core, {})
        return lambda: pipeline.close(1000)

    return {
        "lookup": lambda: lambda: core.lookup(IDS, True, None),
        "lookup_prefix": lambda: lambda: core.lookup_prefix(ids, True, None),
        "load": transfer(core.load),
        "dump": transfer(core.dump),
        "prefetch": lambda: lambda: core.prefetch(ids, None, None, 0),
        "wait": loaded,
        "cancel": lambda: task._core.cancel,
        "poll": lambda: lambda: core.poll(100),
        "stats": lambda: core.stats,
        "open": lambda: lambda: _core.Pipeline("Dram", SHARD, SHARDS, NAMESPACE._core, {}),
        "close": opened,
        "plugins": lambda: _core.plugins,
        "crc32c": lambda: lambda: _core.crc32c(bytes(1 << 16)),
        "derive": lambda: lambda: NAMESPACE._core.derive(IDS, 16, 1, ""),
        "admin_walk": lambda: (
            lambda: _core.admin_walk(
                "Posix", store.config.options["posix"]["roots"][0], None, 0, None, lambda _: None
            )
        ),
        "admin_inspect": lambda: (
            lambda: _core.admin_inspect("Posix", store.config.options["posix"]["roots"][0])
        ),
    }


NAMES = [
    "lookup", "lookup_prefix", "load", "dump", "prefetch", "wait", "cancel", "poll", "stats",
    "open", "close", "plugins", "crc32c", "derive", "admin_walk", "admin_inspect",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_other_threads_run_during(store: ucmstore.Store, other: Other, name: str) -> None:
    prepare = calls(store)[name]
    assert any(other.moves_during(prepare()) for _ in range(TRIES)), f"{name} holds the GIL"
