# SPDX-License-Identifier: Apache-2.0
"""A load or dump in flight."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ucmstore import _core
from ucmstore.errors import ClosedError, Code, code_of, transfer_error

if TYPE_CHECKING:
    from ucmstore.store import Store


class Results(NamedTuple):
    """What became of each shard: arrays of one place for each id, or of [ids, shards_per_block].

    `codes` are `Code` numbers; `lengths` the bytes of each shard as stored.
    """

    codes: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.uint32]


class Task:
    """One load, dump or prefetch in flight. Wait for it, `await` it, or let `Store.poll` say.

    It keeps the memory it moves alive until it has ended. If the last reference to it is lost
    before that, the store keeps the memory instead, and lets it go when nothing moves any more.
    Usable from any thread, and by many at once.
    """

    __slots__ = ("__weakref__", "_core", "_shape", "_store", "_what")

    def __init__(self, store: Store, core: _core.Task, what: str, shape: tuple[int, ...]) -> None:
        self._store = store  # keeps the store open
        self._core = core
        self._what = what
        self._shape = shape

    def __repr__(self) -> str:
        state = "ended" if self.done() else "pending"
        return f"<ucmstore.Task {self.id}: {self._what}, {state}>"

    @property
    def id(self) -> int:
        """The number of the task in its store, as `Store.poll` gives it. Never 0."""
        return self._core.id

    def done(self) -> bool:
        """Whether it has ended, well or badly, and its memory is free. Never blocks, never raises.

        That a store could not be closed in time (`BusyError`) ends nothing: what still moves then
        is not done before it really is.
        """
        return self._core.has_ended() and not self._outlives_its_store()

    def _outlives_its_store(self) -> bool:
        """Whether it still moves, though its store is closed and waits for nothing any more."""
        if not (self._store.closed and self._store._core.in_its_process):
            return False
        try:
            return not self._core.wait(0)
        except ClosedError:
            return True

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the task has ended; `timeout` in seconds, None: as long as it takes.

        Raises `TimeoutError` if it is still pending then: nothing is lost, wait again. Raises
        `TransferError` if any part of it failed. May be called again, with the same outcome. Raises
        `ClosedError` if the store was closed and the task still moves; `done` says when it ends.
        """
        try:
            ended = self._core.wait(timeout)
        except ClosedError:
            if not self._outlives_its_store():
                raise
            raise ClosedError(
                f"task {self.id} ({self._what}) still moves, though the store was closed: its "
                "memory may be read and written until done() is true"
            ) from None
        if not ended:
            raise TimeoutError(f"task {self.id} ({self._what}) is still pending after {timeout} s")
        self._raise_if_failed()

    @property
    def results(self) -> Results:
        """The code and length of each shard. No exception: `Code.PENDING` while it is pending."""
        try:
            ended = self._core.wait(0)
        except ClosedError:
            ended = False
        if ended:
            codes, lengths = self._core.results()
            return Results(codes.reshape(self._shape), lengths.reshape(self._shape))
        return Results(
            np.full(self._shape, Code.PENDING, np.int32), np.zeros(self._shape, np.uint32)
        )

    def cancel(self) -> None:
        """Cancel what has not begun, as far as that goes. The task still ends; wait for it."""
        self._core.cancel()

    def __await__(self) -> Generator[object, None, None]:
        if self._core.begin_await():
            try:
                yield from self._store._waiters().wait(self)
            finally:
                self._core.end_await()
        self.wait(0)

    def _raise_if_failed(self) -> None:
        number, errno, text = self._core.outcome()
        if number == Code.OK:
            return
        codes = self._core.results()[0]
        if len(self._shape) > 1:  # the first bad shard of each block
            codes = codes.reshape(self._shape)
            first = (codes != Code.OK).argmax(axis=1)
            codes = codes[np.arange(len(codes)), first]
        failed = np.flatnonzero(codes != Code.OK).tolist()
        shown = ", ".join(map(str, failed[:8])) + (", …" if len(failed) > 8 else "")
        where = f"{len(failed)} of {len(codes)} failed (ids[{shown}])" if failed else "failed"
        raise transfer_error(
            code_of(number),
            errno,
            f"{self._what}: {where}: {text}",
            failed,
            [code_of(int(codes[i])) for i in failed],
        )
