# SPDX-License-Identifier: Apache-2.0
"""How event loops wait for tasks: many tasks, many loops, one descriptor. Imported lazily."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING

from ucmstore import _core

if TYPE_CHECKING:
    from ucmstore.task import Task


class Waiters:
    """The event loops that wait for tasks of one store, any number of them, in any threads.

    The store has one descriptor that is readable while awaited tasks have ended. Each loop that
    waits watches it; whichever comes first takes all that ended and wakes the others' tasks too.
    """

    def __init__(self, core: _core.Pipeline) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._futures: dict[int, list[asyncio.Future[None]]] = {}  # by task
        self._watching: dict[asyncio.AbstractEventLoop, int] = {}  # how many futures of each loop

    def wait(self, task: Task) -> Generator[object, None, None]:
        """Yield to the running loop until the task has ended."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._add(loop, task.id, future)
        try:
            if task._core.has_ended():  # or never will, perhaps before there was a future to wake
                self._take()
            else:
                yield from future
        finally:
            self._remove(loop, task.id, future)

    def wake_all(self) -> None:
        """Wake everybody: the store is closed, and nothing of it will end any more."""
        with self._lock:
            futures = [future for some in self._futures.values() for future in some]
        _wake(futures)

    def _add(
        self, loop: asyncio.AbstractEventLoop, task: int, future: asyncio.Future[None]
    ) -> None:
        fd = self._core.await_fd()
        with self._lock:
            self._futures.setdefault(task, []).append(future)
            count = self._watching.get(loop, 0)
            self._watching[loop] = count + 1
        if count == 0:
            loop.add_reader(fd, self._take)

    def _remove(
        self, loop: asyncio.AbstractEventLoop, task: int, future: asyncio.Future[None]
    ) -> None:
        with self._lock:
            futures = self._futures[task]
            futures.remove(future)
            if not futures:
                del self._futures[task]
            count = self._watching.pop(loop) - 1
            if count > 0:
                self._watching[loop] = count
        if count == 0:
            loop.remove_reader(self._core.await_fd())

    def _take(self) -> None:
        tasks = self._core.take_awaited()
        with self._lock:
            futures = [future for task in tasks for future in self._futures.get(task, ())]
        _wake(futures)


def _wake(futures: list[asyncio.Future[None]]) -> None:
    here: asyncio.AbstractEventLoop | None = None
    with contextlib.suppress(RuntimeError):  # none runs in this thread
        here = asyncio.get_running_loop()
    for future in futures:
        loop = future.get_loop()
        if loop is here:
            _set(future)
        else:
            with contextlib.suppress(RuntimeError):  # that loop is closed; nobody waits in it
                loop.call_soon_threadsafe(_set, future)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
