# SPDX-License-Identifier: Apache-2.0
"""Prefix lookups on threads of the store's own. Imported lazily."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Generator
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor

from ucmstore import _core
from ucmstore.errors import BusyError, ClosedError

_THREADS = 4
_MOST = 1024  # that wait at once


class PrefixLookup(Future[int]):
    """The number of leading hits, to come: `done()`, `result(timeout)`, or `await`."""

    def __await__(self) -> Generator[object, None, int]:
        return (yield from asyncio.wrap_future(self))


class PrefixLookups:
    """The prefix lookups that one store has in flight, and the threads that do them."""

    def __init__(self, core: _core.Pipeline) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ucmstore lookup")
        self._waiting: set[PrefixLookup] = set()
        self._stopped = False

    def submit(self, ids: object, touch: bool, timeout: float | None) -> PrefixLookup:
        """Begin one. The ids are copied: the caller's may change."""
        copy = _core.copy_ids(ids)
        lookup = PrefixLookup()
        with self._lock:
            if self._stopped:
                raise ClosedError("the store is closed")
            if len(self._waiting) >= _MOST:
                raise BusyError(f"{_MOST} prefix lookups are in flight; wait for some of them")
            self._waiting.add(lookup)
            self._threads.submit(self._run, lookup, copy, touch, timeout)
        return lookup

    def stop(self) -> None:
        """Let those that have not begun fail."""
        with self._lock:
            self._stopped = True
            waiting, self._waiting = self._waiting, set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        for lookup in waiting:
            with contextlib.suppress(InvalidStateError):  # its owner has cancelled it
                lookup.set_exception(ClosedError("the store was closed before the lookup began"))

    def _run(self, lookup: PrefixLookup, ids: bytes, touch: bool, timeout: float | None) -> None:
        with self._lock:
            mine = lookup in self._waiting and lookup.set_running_or_notify_cancel()
            self._waiting.discard(lookup)
        if not mine:
            return
        try:
            lookup.set_result(self._core.lookup_prefix(ids, touch, timeout))
        except BaseException as error:  # noqa: BLE001  (it comes out of result())
            lookup.set_exception(error)
