# SPDX-License-Identifier: Apache-2.0
"""Leases: blocks in the memory of Cache's ring, read and filled where they are."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from ucmstore import _core
from ucmstore.block_id import index_of
from ucmstore.errors import Code

if TYPE_CHECKING:
    from ucmstore._core import Pipeline
    from ucmstore.config import StoreConfig


class RingMemory(NamedTuple):
    """The memory in which all leases lie. Mapped until the store is closed and its leases gone."""

    address: int
    size: int


class _Leased:
    """What both kinds of leases have."""

    _verb = ""

    def __init__(self, core: _core.Lease, shard_size: int) -> None:
        self._core = core
        self._shard_size = shard_size
        self._released = False
        self._codes, self._leased = core.codes()
        self._codes.flags.writeable = False
        self._blocks = [core.view(i) for i in range(len(self._codes))]

    @property
    def blocks(self) -> list[npt.NDArray[np.uint8] | None]:
        """For each id its shards in place, as an array [shards, shard_size]; None: not leased.

        Not to be used after the lease has ended: its memory then holds whatever comes next. It
        stays mapped as long as one of these arrays, or a view of one, is alive.
        """
        return list(self._blocks)

    @property
    def addresses(self) -> npt.NDArray[np.uint64]:
        """The address of each shard, [ids, shards]; 0: not leased."""
        return self._core.addresses()

    @property
    def codes(self) -> npt.NDArray[np.int32]:
        """A `Code` for each id."""
        return self._codes

    @property
    def why(self) -> str:
        """Why the first of the ids that were refused was, in words; "" if none was."""
        return self._core.refusal()[1]

    @property
    def released(self) -> bool:
        """Whether it has ended."""
        return self._released

    def release(self) -> None:
        """End it. What was reserved and not committed is given up. Again is nothing."""
        self._released = True
        for block in self._blocks:
            if block is not None:
                block.flags.writeable = False
        self._core.release()

    def __len__(self) -> int:
        return len(self._codes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        state = ", released" if self._released else ""
        leased = int(self._leased.sum())
        name = type(self).__name__
        return f"<ucmstore.{name}: {leased} of {len(self)} blocks {self._verb}{state}>"


class Lease(_Leased):
    """Blocks that stay in memory, to be read in place. Ends with `release`, or as a context.

    Codes: `OK`; `NOT_FOUND`, not whole in memory (`prefetch` brings it there); `BUSY`, too many
    leases are out. It outlives the close of its store. Usable from any thread.
    """

    _verb = "acquired"

    @property
    def lengths(self) -> npt.NDArray[np.uint32]:
        """The bytes of each shard as stored, [ids, shards_per_block]; 0: not leased."""
        return self._core.lengths()


class Reservation(_Leased):
    """Room for new blocks, to be filled in place and committed. Ends with `release`.

    Codes: `OK`, leased, or, where the block is None, visible already (`present`): nothing to do;
    `PENDING`, somebody else brings it; `BUSY`, too many leases are out, or the ring has no room;
    `ABORTED`, it was given up while it was incomplete. All but `OK` may be dumped instead.
    Usable from any thread; a shard that was committed must not be written any more.
    """

    _verb = "reserved"

    def __init__(
        self, core: _core.Lease, shard_size: int, shards_per_block: int, shard: int | None
    ) -> None:
        super().__init__(core, shard_size)
        self._shards = [shard] if shard is not None else list(range(shards_per_block))
        self._left = [set(self._shards) for _ in range(len(self))]

    @property
    def present(self) -> npt.NDArray[np.bool_]:
        """Which ids are visible already."""
        present: npt.NDArray[np.bool_] = (self._codes == Code.OK) & ~self._leased
        return present

    def commit(
        self,
        i: int,
        shard: int | None = None,
        bytes: int | None = None,  # noqa: A002  (what is counted)
    ) -> None:
        """Shard `shard` of the i-th id is there; None: all that were reserved.

        `bytes`: how many of `shard_size`, None: all. The block is visible when its last shard has
        come, whoever brought it; it is written to the stage below some time later, with
        `write="through"` as well. The arrays of a block with nothing left to commit are read-only.
        """
        i = index_of(i, "i", 0, len(self) - 1)
        length = (
            self._shard_size if bytes is None else index_of(bytes, "bytes", 1, self._shard_size)
        )
        if shard is not None:
            shard = index_of(shard, "shard", 0, (1 << 32) - 1)
        for each in self._shards if shard is None else [shard]:
            self._core.commit(i, each, length)
            self._left[i].discard(each)
        block = self._blocks[i]
        if block is not None and not self._left[i]:
            block.flags.writeable = False


class Lending:
    """The calls of a store that lend its memory. `UnsupportedError` unless it begins with Cache."""

    _core: Pipeline
    _config: StoreConfig

    def acquire(self, ids: object) -> Lease:
        """Pin blocks that are in Cache's memory and give them to be read in place.

        Fetches nothing: what is not whole in memory is `NOT_FOUND` in `Lease.codes`. Release it
        soon; the option `max_leases` bounds how many blocks are leased at once.
        """
        return Lease(self._core.acquire(ids), self._config.shard_size)

    def reserve(self, ids: object, *, shard: int | None = None) -> Reservation:
        """Claim room in Cache's memory for new blocks, to be filled in place and committed.

        With `shard` that shard of each, so that several processes can bring a block together. See
        `Reservation` for what the codes mean. What is not committed is given up at the end.
        """
        shards = self._config.shards_per_block
        if shard is not None:
            shard = index_of(shard, "shard", 0, shards - 1)
        return Reservation(self._core.reserve(ids, shard), self._config.shard_size, shards, shard)

    def ring_memory(self) -> RingMemory:
        """Address and size of the memory where all leases lie, to be registered with a device.

        End that before the store is closed.
        """
        return RingMemory(*self._core.ring_memory())
