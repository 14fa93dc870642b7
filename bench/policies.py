# SPDX-License-Identifier: Apache-2.0
"""The ring's eviction policy and its measures, simulated: which blocks so many slots would hold.

Each has the same four methods. `touch` is called for every block of a request that is held when the
request begins (a lookup), `insert` for each of the others (a dump). `at` is the number of the
reference in the trace; `depth` is the block's place in its prompt. Not thread-safe.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol


class Policy(Protocol):
    """Which blocks are held."""

    def __contains__(self, block: int) -> bool: ...
    def touch(self, block: int, at: int) -> None: ...
    def insert(self, block: int, at: int, depth: int) -> None: ...


def drop_oldest(queue: OrderedDict[int, None]) -> int:
    """The longest in the queue."""
    return queue.popitem(last=False)[0]


class Lru:
    """Evicts what was not used for the longest time: exact, and a list of all slots to keep."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._held: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, block: int) -> bool:
        return block in self._held

    def touch(self, block: int, at: int) -> None:
        del at
        self._held.move_to_end(block)

    def insert(self, block: int, at: int, depth: int) -> None:
        del at, depth
        if len(self._held) == self._slots:
            drop_oldest(self._held)
        self._held[block] = None


class Belady:
    """Evicts what will not be used for the longest time, for which it must know the future."""

    def __init__(self, slots: int, references: Sequence[int]) -> None:
        self._slots = slots
        self._next = [len(references)] * len(references)
        seen: dict[int, int] = {}
        for at in range(len(references) - 1, -1, -1):
            self._next[at] = seen.get(references[at], len(references))
            seen[references[at]] = at
        self._held: dict[int, int] = {}  # block -> its next use
        self._farthest: list[tuple[int, int]] = []

    def __contains__(self, block: int) -> bool:
        return block in self._held

    def touch(self, block: int, at: int) -> None:
        self._held[block] = self._next[at]
        heapq.heappush(self._farthest, (-self._next[at], block))

    def insert(self, block: int, at: int, depth: int) -> None:
        del depth
        while len(self._held) >= self._slots:
            use, victim = heapq.heappop(self._farthest)
            if self._held.get(victim) == -use:
                del self._held[victim]
        self.touch(block, at)


class Clock:
    """The ring's: a hand goes round all slots and takes a chance from each until one has none.

    `entry`: chances of a new block. `most`: chances a block may gather. `deep`: blocks at least
    that deep in their prompt enter with none.
    """

    def __init__(
        self, slots: int, *, entry: int = 0, most: int = 3, deep: int | None = None
    ) -> None:
        self._block: list[int | None] = [None] * slots
        self._chance = [0] * slots
        self._where: dict[int, int] = {}
        self._hand = 0
        self._entry, self._most, self._deep = entry, most, deep

    def __contains__(self, block: int) -> bool:
        return block in self._where

    def touch(self, block: int, at: int) -> None:
        del at
        slot = self._where[block]
        if self._chance[slot] < self._most:
            self._chance[slot] += 1

    def entry_of(self, block: int, depth: int) -> int:
        """The chances that a new block enters with."""
        del block
        return 0 if self._deep is not None and depth >= self._deep else self._entry

    def evicted(self, block: int) -> None:
        """Told of each block that goes."""

    def insert(self, block: int, at: int, depth: int) -> None:
        del at
        while self._chance[self._hand] > 0:
            self._chance[self._hand] -= 1
            self._hand = (self._hand + 1) % len(self._block)
        slot = self._hand
        self._hand = (slot + 1) % len(self._block)
        old = self._block[slot]
        if old is not None:
            del self._where[old]
            self.evicted(old)
        self._block[slot] = block
        self._where[block] = slot
        self._chance[slot] = self.entry_of(block, depth)


class GhostClock(Clock):
    """CLOCK that remembers what it evicted: a block that comes again enters with `back` chances.

    The memory is one that a ring could hold without a lock: buckets of 16 words, each a 16-bit hash
    and the time of the eviction, counted in evictions, of which 64 ticks are one ring. `ticks`: how
    long a ghost counts. `room`: words for each slot. The oldest of a full bucket makes room. Age
    decides and not place: a prompt's blocks are remembered, or forgotten, together; a bucket that
    forgets by place tears holes into prefixes, and is worse than no memory.
    """

    _WAYS = 16

    def __init__(self, slots: int, *, back: int, ticks: int = 64, room: float = 2) -> None:
        super().__init__(slots)
        self._back, self._ticks = back, ticks
        self._buckets: list[dict[int, int]] = [
            {} for _ in range(max(1, round(slots * room / self._WAYS)))
        ]
        self._evictions = 0
        self._tick = max(1, slots // 64)

    def _place(self, block: int) -> tuple[dict[int, int], int]:
        mixed = (block * 0x9E3779B97F4A7C15 + 0x7F4A7C15) & (2**64 - 1)
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        mixed ^= mixed >> 27
        return self._buckets[(mixed >> 16) % len(self._buckets)], mixed & 0xFFFF

    def entry_of(self, block: int, depth: int) -> int:
        del depth
        bucket, tag = self._place(block)
        now = self._evictions // self._tick
        return self._back if now - bucket.get(tag, -self._ticks - 1) <= self._ticks else 0

    def evicted(self, block: int) -> None:
        self._evictions += 1
        bucket, tag = self._place(block)
        if tag not in bucket and len(bucket) == self._WAYS:
            del bucket[min(bucket, key=bucket.__getitem__)]
        bucket[tag] = self._evictions // self._tick
