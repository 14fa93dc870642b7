# SPDX-License-Identifier: Apache-2.0
"""Store: an open pipeline."""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

import numpy as np
import numpy.typing as npt

from ucmstore import _core
from ucmstore.block_id import Namespace, index_of
from ucmstore.config import StoreConfig
from ucmstore.errors import ArgumentError, ArgumentTypeError, ClosedError, Error
from ucmstore.lease import Lending
from ucmstore.memory import Columns, Memory, columns, raw_columns
from ucmstore.task import Task

if TYPE_CHECKING:
    from ucmstore.prefix_lookup import PrefixLookup, PrefixLookups
    from ucmstore.waiters import Waiters

_DEFAULT_CLOSE_MS = 5_000
_EXIT_CLOSE_MS = 2_000

_open_stores: weakref.WeakSet[Store] = weakref.WeakSet()


class Store(Lending):
    """An open store. Every method may be called from any thread at once, `close` included.

    Ids are a sequence of 16-byte objects, or one buffer of 16 bytes each (bytes, a numpy array
    [n, 16], …), which is faster. Memory is anything with `data_ptr()`, a buffer or `__dlpack__`, in
    host memory and contiguous: one object whose bytes are n rows, or a list of n objects or
    addresses. Timeouts are in seconds. All calls that may block let other threads run.

    A task keeps what owns its bytes until it has ended, so that the caller may drop or refill his
    object (`del t`, `t.data = other`). Nobody can keep a storage that is resized or moved in place
    (`t.resize_()`, `t.untyped_storage().resize_()`, `t.share_memory_()`, `a.resize()` of numpy):
    doing that before the task has ended frees memory that still moves. An integer is an address,
    taken at its word: what is not there is read or written nevertheless.
    """

    def __init__(self, config: StoreConfig) -> None:
        self._closed = True  # until it is open: __del__ sees it
        self._config = config
        self._core = _core.Pipeline(
            config.spec,
            config.shard_size,
            config.shards_per_block,
            config.namespace._core,
            config.options,
        )
        self._closed = False
        self._lookup = self._core.lookup  # one attribute less on the shortest path
        self._lock = threading.Lock()  # guards what is made when first used
        self._loops: Waiters | None = None
        self._prefix_lookups: PrefixLookups | None = None
        _open_stores.add(self)

    # ---- what it is ------------------------------------------------------------------------------

    @property
    def config(self) -> StoreConfig:
        """What it was opened with; picklable, and `open(config=…)` opens the same again."""
        return self._config

    @property
    def shard_size(self) -> int:
        """Bytes of a shard."""
        return self._config.shard_size

    @property
    def shards_per_block(self) -> int:
        """Shards of a block."""
        return self._config.shards_per_block

    @property
    def block_size(self) -> int:
        """Bytes of a whole block."""
        return self._config.block_size

    @property
    def namespace(self) -> Namespace:
        """What makes its bytes mean the same."""
        return self._config.namespace

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"<ucmstore.Store {self._config.spec!r}: {self.namespace.label}{state}>"

    # ---- lookup ----------------------------------------------------------------------------------

    def lookup(
        self, ids: object, *, touch: bool = True, timeout: float | None = None
    ) -> npt.NDArray[np.uint8]:
        """For each id: 0 absent, 1 present in memory, 2 present below it.

        A hint: what is there now may be gone when it is loaded, which then says so. `touch=False`
        does not make the blocks hotter. Blocks that nobody could look at within `timeout` seconds
        count as absent; it is an error only if that is all of them.
        """
        return self._lookup(ids, touch, timeout)

    def lookup_prefix(
        self, ids: object, *, touch: bool = True, timeout: float | None = None
    ) -> int:
        """How many of the first ids are present, up to the first that is not."""
        return self._core.lookup_prefix(ids, touch, timeout)

    def lookup_prefix_async(
        self, ids: object, *, touch: bool = True, timeout: float | None = None
    ) -> PrefixLookup:
        """`lookup_prefix` on a thread of the store's: ask `done()` and `result()`, or await it."""
        self._check_open()
        with self._lock:
            if self._prefix_lookups is None:
                from ucmstore.prefix_lookup import PrefixLookups

                self._prefix_lookups = PrefixLookups(self._core)
        return self._prefix_lookups.submit(ids, touch, timeout)

    # ---- load and dump ---------------------------------------------------------------------------

    def load(
        self,
        ids: object,
        into: Memory,
        *,
        shard: int | None = None,
        timeout: float | None = None,
        priority: int = 0,
    ) -> Task:
        """Begin to load blocks into memory: whole ones, or with `shard` that shard of each.

        `into` has room for `block_size` (with `shard`: `shard_size`) bytes for each id, and must
        not be resized in place until the task has ended; an integer in a list is a raw address,
        unchecked. `timeout` is the task's own deadline: what has not begun by then fails, what
        already moves is waited for. Higher `priority` goes first.
        """
        rows, number = self._checked(ids, shard)
        wanted, what = self._row(number)
        place = columns(into, rows, wanted, writable=True, short=False, name="into", what=what)
        return self._begin(self._core.load, "load", ids, rows, number, place, timeout, priority)

    def dump(
        self,
        ids: object,
        source: Memory,
        *,
        shard: int | None = None,
        timeout: float | None = None,
        priority: int = 0,
    ) -> Task:
        """Begin to store blocks from memory: whole ones, or with `shard` that shard of each.

        `source` has `block_size` bytes for each id; with `shard`, 1 to `shard_size`: the length of
        a short shard is kept. A block is visible when all its shards have come. Of an id that is
        stored already the first bytes stay: a second dump of it changes nothing. The memory must
        not change, nor be resized in place, until the task has ended; an integer in a list is a
        raw address, unchecked. `timeout` and `priority` as for `load`.
        """
        rows, number = self._checked(ids, shard)
        wanted, what = self._row(number)
        short = number is not None
        place = columns(source, rows, wanted, writable=False, short=short, name="source", what=what)
        return self._begin(self._core.dump, "dump", ids, rows, number, place, timeout, priority)

    def prefetch(
        self,
        ids: object,
        *,
        shard: int | None = None,
        timeout: float | None = None,
        priority: int = 0,
    ) -> Task:
        """Begin to bring blocks nearer, into the uppermost stage that has memory for them."""
        rows, number = self._checked(ids, shard)
        task = self._core.prefetch(ids, number, timeout, _priority(priority))
        return self._task(task, "prefetch", rows, number)

    def load_raw(
        self,
        ids: object,
        shard: int | None,
        addresses: object,
        sizes: object,
        *,
        timeout: float | None = None,
        priority: int = 0,
        keep: object = None,
    ) -> Task:
        """`load` into bare addresses: u64[n, m], of pieces of `sizes`: u64[m] bytes.

        The m pieces of a row are the shard (None: the whole block), one after the other. Address 0
        skips a piece. Nothing is checked about the memory; `keep` is an object that owns it.
        """
        rows, number = self._checked(ids, shard)
        place = raw_columns(rows, addresses, sizes, keep)
        return self._begin(self._core.load, "load", ids, rows, number, place, timeout, priority)

    def dump_raw(
        self,
        ids: object,
        shard: int | None,
        addresses: object,
        sizes: object,
        *,
        timeout: float | None = None,
        priority: int = 0,
        keep: object = None,
    ) -> Task:
        """`dump` from bare addresses, as `load_raw`."""
        rows, number = self._checked(ids, shard)
        place = raw_columns(rows, addresses, sizes, keep)
        return self._begin(self._core.dump, "dump", ids, rows, number, place, timeout, priority)

    # ---- ends of tasks ---------------------------------------------------------------------------

    def poll(self, at_most: int = 1 << 20) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
        """The tasks that ended since the last call: their ids (`Task.id`) and `Code`s.

        Each is told once, in the order of their ends; keep the `Task` until then, for one that was
        lost, awaited or waited for is not told. Never blocks. What failed: `Task.results`.
        """
        self._check_open()
        return self._core.poll(index_of(at_most, "at_most", 1, 1 << 31))

    def fileno(self) -> int:
        """A descriptor that is readable while `poll` has something to tell. The store's own."""
        return self._core.poll_fd()

    # ---- the rest --------------------------------------------------------------------------------

    def stats(self) -> dict[str, dict[str, float]]:
        """The figures of each stage by name; "python" is what this object has in flight."""
        self._check_open()
        metrics, in_flight, parked = self._core.stats()
        stats: dict[str, dict[str, float]] = {}
        for stage, name, _, value in metrics:
            stats.setdefault(stage, {})[name] = int(value) if value.is_integer() else value
        stats["python"] = {"tasks_in_flight": in_flight, "tasks_parked": parked}
        return stats

    def close(self, timeout: float | None = None) -> None:
        """End it: cancel what has not begun, wait at most `timeout` seconds for what moves.

        None: what the option `close_timeout_ms` says. Raises `BusyError` if something still moved
        then; its memory stays where it is, in use until `Task.done` says otherwise. Closing again
        is nothing.
        """
        if timeout is None:
            store = self._config.options.get("store", {})
            timeout = store.get("close_timeout_ms", _DEFAULT_CLOSE_MS) / 1000
        elif isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
            raise ArgumentTypeError(f"timeout is a {type(timeout).__name__!r}; give seconds")
        if not timeout >= 0:
            raise ArgumentError(f"timeout: {timeout} seconds; it cannot be negative")
        timeout_ms = int(min(timeout * 1000, (1 << 32) - 1))
        if self._prefix_lookups is not None:
            self._prefix_lookups.stop()  # before the threads of those that run take up the others
        self._closed = True
        try:
            self._close_interruptibly(timeout_ms)
        finally:
            self._after_close()

    def _close_interruptibly(self, timeout_ms: int) -> None:
        # A thread of its own does it: so Ctrl-C gets through, and the closing still goes on.
        if not self._core.in_its_process or threading.current_thread() is not _main_thread():
            self._core.close(timeout_ms)
            return
        failures: list[Error] = []

        def close() -> None:
            try:
                self._core.close(timeout_ms)
            except Error as error:
                failures.append(error)

        closer = threading.Thread(target=close, name="ucmstore close")
        try:
            closer.start()
        except RuntimeError:  # the system has no more threads
            close()
        else:
            closer.join()
        if failures:
            raise failures[0]

    def _after_close(self) -> None:
        _open_stores.discard(self)
        if self._prefix_lookups is not None:
            self._prefix_lookups.stop()
        if self._loops is not None:
            self._loops.wake_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(Error):
            self._core.close(_DEFAULT_CLOSE_MS)
        warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an open store cannot be pickled; pickle store.config and open that")

    # ---- inside ----------------------------------------------------------------------------------

    def _check_open(self) -> None:
        """For calls that do not ask the core, or might wait for threads that a fork has lost."""
        if self._closed:
            raise ClosedError("the store is closed")
        if not self._core.in_its_process:
            raise ClosedError("the store was opened before this process was forked; open one here")

    def _waiters(self) -> Waiters:
        with self._lock:
            if self._loops is None:
                from ucmstore.waiters import Waiters

                self._loops = Waiters(self._core)
            return self._loops

    def _checked(self, ids: object, shard: int | None) -> tuple[int, int | None]:
        """How many ids there are, and the shard's number. What cannot be is refused here."""
        rows = _core.count_ids(ids)
        if shard is not None:
            shard = index_of(shard, "shard", 0, self.shards_per_block - 1)
        return rows, shard

    def _row(self, shard: int | None) -> tuple[int, str]:
        return (self.block_size, "a block") if shard is None else (self.shard_size, "a shard")

    def _begin(
        self,
        begin: Callable[..., _core.Task],
        verb: str,
        ids: object,
        rows: int,
        shard: int | None,
        place: Columns,
        timeout: float | None,
        priority: int,
    ) -> Task:
        addresses, sizes, owners = place
        task = begin(ids, shard, addresses, sizes, timeout, _priority(priority), owners)
        return self._task(task, verb, rows, shard)

    def _task(self, core: _core.Task, verb: str, rows: int, shard: int | None) -> Task:
        if shard is None:
            return Task(self, core, f"{verb} of {rows} blocks", (rows, self.shards_per_block))
        return Task(self, core, f"{verb} of shard {shard} of {rows} blocks", (rows,))


def _priority(priority: int) -> int:
    return index_of(priority, "priority", -(1 << 31), (1 << 31) - 1)


def _main_thread() -> threading.Thread | None:
    """The main thread, unless the interpreter is ending: then no thread can be started."""
    return None if sys.is_finalizing() or _exiting else threading.main_thread()


_exiting = False


@atexit.register
def _close_all() -> None:
    """Close what is still open when the interpreter ends, in bounded time."""
    global _exiting
    _exiting = True
    for store in list(_open_stores):
        with contextlib.suppress(Error):
            store.close(_EXIT_CLOSE_MS / 1000)
