# SPDX-License-Identifier: Apache-2.0
"""Loading: one thread that brings blocks into pages, many loads at once, and never waits for one.

Bytes come into the ring, or into buffers of the loader's own, and are copied from there: so the
store never touches a page, and a load that is late can be given up at once, whatever the disk does.
"""

from __future__ import annotations

import collections
import contextlib
import os
import select
import threading
import time
from dataclasses import dataclass, field

import numpy as np
from vllm.logger import init_logger

import ucmstore
from ucmstore.block_id import Ids
from ucmstore.errors import BusyError, ClosedError, Code, Error, code_of
from ucmstore.integrations.vllm.metadata import SKIP, Job
from ucmstore.integrations.vllm.pages import HostPages

logger = init_logger("vllm.ucmstore")

_WINDOW = 16  # blocks of a load under way at once
_TRIES = 3  # a block may be evicted between its arrival in the ring and our look at it
_TICK_MS = 20
_RETRY_MS = 2


@dataclass
class Outcome:
    """How a load ended."""

    job: Job
    failed_pages: set[int]
    codes: dict[int, Code]  # of the blocks that failed
    blocks: int
    seconds: float


@dataclass(eq=False)
class _Load:
    job: Job
    ids: Ids
    deadline: float
    begun: float
    left: list[int]  # blocks that are neither copied nor failed, in order
    tries: list[int]
    codes: dict[int, Code] = field(default_factory=dict)
    task: ucmstore.Task | None = None
    fetching: list[int] = field(default_factory=list)
    buffer: Ids | None = None


class Loader:
    """The loads of one rank. `begin` and `ended` may be called from any thread."""

    def __init__(
        self,
        store: ucmstore.Store,
        pages: HostPages,
        has_ring: bool,
        timeout_s: float,
        something: threading.Event,
    ) -> None:
        """`something` is set whenever a load has ended."""
        self._store = store
        self._pages = pages
        self._has_ring = has_ring
        self._timeout_s = timeout_s
        self._every = pages.geometry.pages_per_block
        self._new: collections.deque[_Load] = collections.deque()
        self._ended: collections.deque[Outcome] = collections.deque()
        self._active: list[_Load] = []
        self._count = 0  # begun and not taken by `ended`
        self._something = something
        self._told = store.fileno()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="ucmstore load", daemon=True)
        self._thread.start()

    def begin(self, job: Job, ids: Ids) -> None:
        """Begin to load; `ended` tells."""
        now = time.monotonic()
        blocks = len(job.hashes)
        self._count += 1
        load = _Load(job, ids, now + self._timeout_s, now, list(range(blocks)), [0] * blocks)
        self._new.append(load)
        os.eventfd_write(self._wake, 1)

    def ended(self) -> list[Outcome]:
        """Those that have ended since the last call."""
        if self._count and not self._thread.is_alive():  # a defect of ours; somebody must end them
            for load in [*self._active, *self._new]:
                self._fail(load, load.left, Code.INTERNAL)
                self._end(load)
            self._new.clear()
        outcomes = []
        while self._ended:
            outcomes.append(self._ended.popleft())
        self._count -= len(outcomes)
        return outcomes

    @property
    def busy(self) -> bool:
        """Whether a load is under way."""
        return self._count > 0

    def stop(self) -> None:
        """End it, within moments; what is under way is given up."""
        self._stopped = True
        os.eventfd_write(self._wake, 1)
        self._thread.join(timeout=2)
        if not self._thread.is_alive():
            os.close(self._wake)

    # ---- its thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        unpin()
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        poller.register(self._told, select.POLLIN)
        while not self._stopped:
            retry = False
            while self._new:
                self._active.append(self._new.popleft())
            for load in list(self._active):
                try:
                    retry |= self._advance(load)
                except Error as error:
                    self._fail(load, load.left, error.code)
                except Exception:
                    logger.exception("ucmstore: a load failed for a defect of ours")
                    self._fail(load, load.left, Code.INTERNAL)
                if not load.left:
                    self._end(load)
            if self._new:
                continue
            poller.poll((_RETRY_MS if retry else _TICK_MS) if self._active else None)
            self._drain()

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        try:
            self._store.poll()  # what ended is seen by Task.done; this empties the descriptor
        except ClosedError:
            self._stopped = True

    def _advance(self, load: _Load) -> bool:
        """One step of one load. True: try again soon, nobody will tell."""
        if load.task is not None:
            if not load.task.done():
                self._give_up_if_late(load)
                return False
            self._fetched(load, load.task)
        self._give_up_if_late(load)
        if not load.left:
            return False
        return self._take_from_ring(load) if self._has_ring else self._fetch(load)

    def _give_up_if_late(self, load: _Load) -> None:
        if time.monotonic() > load.deadline:
            if load.task is not None:
                load.task.cancel()  # the store keeps its memory until it has ended
            self._fail(load, load.left, Code.TIMEOUT)

    def _fetched(self, load: _Load, task: ucmstore.Task) -> None:
        """A task has ended: note what failed, and copy what came into our own buffer."""
        codes = task.results.codes
        load.task = None
        bad = [i for row, i in enumerate(load.fetching) if (codes[row] != Code.OK).any()]
        for row, i in enumerate(load.fetching):
            if i in bad:
                first = codes[row][codes[row] != Code.OK][0]
                self._fail(load, [i], code_of(int(first)))
            elif load.buffer is not None:
                self._copy(load, i, _addresses(load.buffer[row], self._pages))
                load.left.remove(i)
        load.fetching = []

    def _take_from_ring(self, load: _Load) -> bool:
        """Copy what is in the ring; begin to bring there what is not."""
        window = load.left[:_WINDOW]
        missing: list[int] = []
        try:
            with self._store.acquire(load.ids[window]) as lease:
                addresses, codes = lease.addresses, lease.codes
                for row, i in enumerate(window):
                    if codes[row] == Code.OK:
                        self._copy(load, i, [int(a) for a in addresses[row]])
                        load.left.remove(i)
                    elif codes[row] == Code.NOT_FOUND:
                        missing.append(i)
        except BusyError:
            return True  # every slot that may be lent is lent
        tired = [i for i in missing if load.tries[i] >= _TRIES]
        self._fail(load, tired, Code.NOT_FOUND)
        missing = [i for i in missing if i not in tired]
        if missing:
            self._prefetch(load, missing)
        # Blocks behind the window, or whose slots could not be lent, are looked at again soon.
        return bool(load.left) and load.task is None

    def _prefetch(self, load: _Load, blocks: list[int]) -> None:
        for i in blocks:
            load.tries[i] += 1
        try:
            load.task = self._store.prefetch(
                load.ids[blocks], timeout=max(0.001, load.deadline - time.monotonic()), priority=1
            )
            load.fetching = blocks
        except BusyError:
            pass  # the table of tasks is full: again in a moment

    def _fetch(self, load: _Load) -> bool:
        """Begin to read the next blocks into a buffer of our own."""
        window = load.left[:_WINDOW]
        load.buffer = np.empty((len(window), self._pages.geometry.block_bytes), np.uint8)
        try:
            load.task = self._store.load(
                load.ids[window],
                into=load.buffer,
                timeout=max(0.001, load.deadline - time.monotonic()),
                priority=1,
            )
            load.fetching = window
        except BusyError:
            return True
        return False

    def _copy(self, load: _Load, block: int, shards: list[int]) -> None:
        pages = load.job.pages[block * self._every : (block + 1) * self._every]
        self._pages.scatter(shards, pages)

    def _fail(self, load: _Load, blocks: list[int], code: Code) -> None:
        for i in list(blocks):
            load.codes[i] = code
            load.left.remove(i)

    def _end(self, load: _Load) -> None:
        if load in self._active:
            self._active.remove(load)
        load.buffer = None
        bad = {
            page
            for i in load.codes
            for page in load.job.pages[i * self._every : (i + 1) * self._every]
            if page != SKIP
        }
        blocks = len(load.job.hashes) - len(load.codes)
        seconds = time.monotonic() - load.begun
        self._ended.append(Outcome(load.job, bad, load.codes, blocks, seconds))
        self._something.set()


def _addresses(row: Ids, pages: HostPages) -> list[int]:
    base = int(row.ctypes.data)
    geometry = pages.geometry
    return [base + i * geometry.shard_bytes for i in range(geometry.shards_per_block)]


def unpin() -> None:
    """Let this thread run on every core: engines pin their threads, and children inherit that."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
