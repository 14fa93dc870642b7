# SPDX-License-Identifier: Apache-2.0
"""Lookups off the scheduler's thread, so that a slow disk delays nobody's next token.

The threads are daemons and few: one that a hung disk holds is lost until the disk answers, and when
all are lost every lookup is a miss at its deadline.
"""

from __future__ import annotations

import queue
import threading
import time

import numpy as np
import numpy.typing as npt

import ucmstore
from ucmstore.errors import Error

_THREADS = 4
_MOST_WAITING = 256

Found = npt.NDArray[np.uint8]


class Lookup:
    """One lookup: for each block 0 absent, 1 in memory, 2 below; known when `done`."""

    def __init__(self, ids: list[bytes], blocks: int) -> None:
        self.ids = b"".join(ids)  # those of every rank, one rank after the other
        self.blocks = blocks
        self.begun = time.monotonic()
        self.failed = False
        self._found: Found | None = None
        self._event = threading.Event()

    @property
    def done(self) -> bool:
        """Whether the answer is there."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait a moment for it."""
        return self._event.wait(seconds)

    @property
    def age_s(self) -> float:
        """Seconds since it was asked."""
        return time.monotonic() - self.begun

    @property
    def found(self) -> Found:
        """The answer; as long as it is not known, nothing is there."""
        return np.zeros(self.blocks, np.uint8) if self._found is None else self._found

    def answer(self, found: Found | None) -> None:
        """Called by the thread that has looked: found[ranks * blocks], or None: it failed."""
        if found is None:
            self.failed = True
        else:
            ranks = found.reshape(-1, self.blocks)
            self._found = np.where(ranks.min(axis=0) == 0, 0, ranks.max(axis=0)).astype(np.uint8)
        self._event.set()


class Lookups:
    """The lookups of one scheduler. To be called by its thread alone."""

    def __init__(self, store: ucmstore.Store) -> None:
        self._store = store
        self._queue: queue.SimpleQueue[Lookup | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def begin(self, ids: list[bytes], blocks: int) -> Lookup:
        """Ask for `blocks` blocks, by the ids that each rank has for them."""
        lookup = Lookup(ids, blocks)
        if not blocks or self._queue.qsize() >= _MOST_WAITING:
            lookup.answer(None)
            return lookup
        if len(self._threads) < _THREADS:
            thread = threading.Thread(target=self._run, name="ucmstore lookup", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._queue.put(lookup)
        return lookup

    def stop(self) -> None:
        """Let the threads end, without waiting for them."""
        for _ in self._threads:
            self._queue.put(None)

    def _run(self) -> None:
        while (lookup := self._queue.get()) is not None:
            if lookup.age_s > 1.0:  # nobody waits for it any more
                lookup.answer(None)
                continue
            try:
                lookup.answer(self._store.lookup(lookup.ids, timeout=1.0))
            except Error:
                lookup.answer(None)
