# SPDX-License-Identifier: Apache-2.0
"""Saving: one thread that copies pages into blocks.

With a ring, pages are copied into slots reserved there, and are free again at once. Without one
they are copied into buffers, from which the store writes. Asking for a slot may have to wait for a
disk; a save that waits too long is given up by the engine's thread, and its pages are free.
"""

from __future__ import annotations

import collections
import threading
import time
from dataclasses import dataclass, field

import numpy as np
from vllm.logger import init_logger

import ucmstore
from ucmstore.block_id import Ids
from ucmstore.errors import BusyError, ClosedError, Code, Error
from ucmstore.integrations.vllm.breaker import Breaker
from ucmstore.integrations.vllm.loader import unpin
from ucmstore.integrations.vllm.metadata import Job
from ucmstore.integrations.vllm.pages import HostPages
from ucmstore.integrations.vllm.stats import Stats

logger = init_logger("vllm.ucmstore")

_CHUNK = 4  # blocks reserved at once
_BUFFERED_BYTES = 256 << 20  # without a ring: what may be on its way to the store


@dataclass(eq=False)
class _Save:
    job: Job
    ids: Ids
    deadline: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    given_up: bool = False
    told: bool = False  # that its pages are free


class Saver:
    """The saves of one rank. `begin`, `ended` and `give_up_late` are for the engine's thread."""

    def __init__(
        self,
        store: ucmstore.Store,
        pages: HostPages,
        has_ring: bool,
        timeout_s: float,
        something: threading.Event,
    ) -> None:
        """`something` is set whenever a save has ended."""
        self._something = something
        self._store = store
        self._pages = pages
        self._has_ring = has_ring
        self._timeout_s = timeout_s
        self._every = pages.geometry.pages_per_block
        self._queue: collections.deque[_Save] = collections.deque()
        self._known: dict[int, _Save] = {}
        self._ended: collections.deque[int] = collections.deque()
        self._work = threading.Condition()
        self._stopped = False
        self._dumps: list[ucmstore.Task] = []
        self._breaker = Breaker("saving")
        self._stats_lock = threading.Lock()
        self._stats = Stats()
        self._thread = threading.Thread(target=self._run, name="ucmstore save", daemon=True)
        self._thread.start()

    def begin(self, job: Job, ids: Ids) -> None:
        """Begin to save; `ended` tells when its pages are no longer needed."""
        save = _Save(job, ids, time.monotonic() + self._timeout_s)
        self._known[job.number] = save
        with self._work:
            self._queue.append(save)
            self._work.notify()

    def ended(self) -> list[int]:
        """The jobs whose pages are free, each once."""
        self._give_up_late()
        numbers = []
        while self._ended:
            number = self._ended.popleft()
            save = self._known.pop(number, None)
            if save is not None and not save.told:
                save.told = True
                numbers.append(number)
        return numbers

    def take_stats(self) -> Stats:
        """What was counted since the last call."""
        with self._stats_lock:
            stats, self._stats = self._stats, Stats()
        return stats

    def _give_up_late(self) -> None:
        now = time.monotonic()
        for number, save in list(self._known.items()):
            if now <= save.deadline or not save.lock.acquire(blocking=False):
                continue  # in time; or just being copied, which ends by itself
            try:
                if not save.given_up:
                    save.given_up = True
                    self._count("dropped_blocks_late", len(save.job.hashes))
                    self._ended.append(number)
            finally:
                save.lock.release()

    @property
    def busy(self) -> bool:
        """Whether saves are under way."""
        return bool(self._known)

    def drain(self, seconds: float) -> None:
        """Wait for what is queued."""
        deadline = time.monotonic() + seconds
        with self._work:
            self._work.wait_for(lambda: not self._queue and self._idle, seconds)
        for task in self._dumps:
            try:
                task.wait(max(0.0, deadline - time.monotonic()))
            except (Error, TimeoutError):
                return

    def stop(self) -> None:
        """End the thread; what is queued is given up."""
        with self._work:
            self._stopped = True
            self._work.notify()
        self._thread.join(timeout=2)

    # ---- its thread ------------------------------------------------------------------------------

    _idle = True

    def _run(self) -> None:
        unpin()
        while True:
            with self._work:
                self._idle = True
                self._work.notify_all()
                self._work.wait_for(lambda: self._queue or self._stopped)
                if self._stopped:
                    return
                save = self._queue.popleft()
                self._idle = False
            try:
                self._save(save)
                self._breaker.succeeded()
            except ClosedError:
                pass
            except Error as error:
                self._breaker.failed(str(error))
                self._count("dropped_blocks_failed", len(save.job.hashes))
            except Exception:
                logger.exception("ucmstore: a save failed for a defect of ours")
                self._count("dropped_blocks_failed", len(save.job.hashes))
            self._ended.append(save.job.number)
            self._something.set()

    def _save(self, save: _Save) -> None:
        blocks = len(save.job.hashes)
        if self._breaker.is_open:
            self._count("dropped_blocks_failed", blocks)
            return
        for first in range(0, blocks, _CHUNK):
            if save.given_up:
                return
            chunk = range(first, min(first + _CHUNK, blocks))
            if self._has_ring:
                self._save_to_ring(save, chunk)
            else:
                self._save_by_buffer(save, chunk)

    def _save_to_ring(self, save: _Save, chunk: range) -> None:
        try:
            reservation = self._store.reserve(save.ids[chunk.start : chunk.stop])
        except BusyError:
            self._count("dropped_blocks_busy", len(chunk))
            return
        with reservation:
            codes, addresses = reservation.codes, reservation.addresses
            present = reservation.present
            for row, block in enumerate(chunk):
                if present[row] or codes[row] == Code.PENDING:
                    self._count("present_blocks")
                elif codes[row] != Code.OK:
                    self._count("dropped_blocks_busy")
                elif self._gather(save, block, [int(a) for a in addresses[row]]):
                    reservation.commit(row)
                    self._count("saved_blocks")
                    self._count("saved_bytes", self._pages.geometry.block_bytes)

    def _gather(self, save: _Save, block: int, shards: list[int]) -> bool:
        """Copy one block's pages, unless the save was given up and they are no longer its own."""
        with save.lock:
            if save.given_up:
                return False
            pages = save.job.pages[block * self._every : (block + 1) * self._every]
            self._pages.gather(shards, pages)
            return True

    def _save_by_buffer(self, save: _Save, chunk: range) -> None:
        geometry = self._pages.geometry
        found = self._store.lookup(save.ids[chunk.start : chunk.stop], timeout=self._timeout_s)
        wanted = [block for row, block in enumerate(chunk) if not found[row]]
        self._count("present_blocks", len(chunk) - len(wanted))
        self._await_room(len(wanted) * geometry.block_bytes)
        buffer = np.empty((len(wanted), geometry.block_bytes), np.uint8)
        for row, block in enumerate(wanted):
            base = int(buffer[row].ctypes.data)
            shards = [base + i * geometry.shard_bytes for i in range(geometry.shards_per_block)]
            if not self._gather(save, block, shards):
                return
        if wanted:
            task = self._store.dump(save.ids[wanted], source=buffer, timeout=self._timeout_s)
            self._dumps.append(task)
            self._count("saved_blocks", len(wanted))
            self._count("saved_bytes", buffer.nbytes)

    def _await_room(self, wanted: int) -> None:
        """Wait until few enough dumps are on their way; raise the first one's failure."""
        most = max(1, _BUFFERED_BYTES // max(1, wanted, _CHUNK * self._pages.geometry.block_bytes))
        running, self._dumps = self._dumps, []
        for i, task in enumerate(running):
            if not task.done() and len(running) - i < most:
                self._dumps.append(task)
                continue
            task.wait(self._timeout_s)

    def _count(self, name: str, value: float = 1) -> None:
        with self._stats_lock:
            self._stats.add(name, value)
