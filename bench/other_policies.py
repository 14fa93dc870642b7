# SPDX-License-Identifier: Apache-2.0
"""Policies that others propose, simulated; methods as in bench/policies.py. Not thread-safe."""

from __future__ import annotations

from collections import OrderedDict, deque

from bench.policies import drop_oldest


class Sieve:
    """One queue, one bit a block, and a hand that goes from old to new and does not move what it
    spares (Zhang et al., NSDI 2024)."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._newer: dict[int, int | None] = {}
        self._older: dict[int, int | None] = {}
        self._used: dict[int, bool] = {}
        self._newest: int | None = None
        self._oldest: int | None = None
        self._hand: int | None = None

    def __contains__(self, block: int) -> bool:
        return block in self._used

    def touch(self, block: int, at: int) -> None:
        del at
        self._used[block] = True

    def _evict(self) -> None:
        victim = self._hand if self._hand is not None else self._oldest
        assert victim is not None
        while self._used[victim]:
            self._used[victim] = False
            newer = self._newer[victim]
            victim = newer if newer is not None else self._oldest
            assert victim is not None
        newer, older = self._newer.pop(victim), self._older.pop(victim)
        self._hand = newer
        del self._used[victim]
        if newer is None:
            self._newest = older
        else:
            self._older[newer] = older
        if older is None:
            self._oldest = newer
        else:
            self._newer[older] = newer

    def insert(self, block: int, at: int, depth: int) -> None:
        del at, depth
        if len(self._used) == self._slots:
            self._evict()
        self._newer[block], self._older[block] = None, self._newest
        if self._newest is not None:
            self._newer[self._newest] = block
        else:
            self._oldest = block
        self._newest = block
        self._used[block] = False


class S3Fifo:
    """A small queue for the new (a tenth), a main one for what was used in it, and ghosts (Yang et
    al., SOSP 2023)."""

    def __init__(self, slots: int, small: float = 0.1) -> None:
        self._slots = slots
        self._most_small = max(1, int(slots * small))
        self._uses: dict[int, int] = {}  # held blocks
        self._small: deque[int] = deque()
        self._main: deque[int] = deque()
        self._ghosts: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, block: int) -> bool:
        return block in self._uses

    def touch(self, block: int, at: int) -> None:
        del at
        self._uses[block] = min(self._uses[block] + 1, 3)

    def _evict(self) -> None:
        while True:
            if self._small and (len(self._small) >= self._most_small or not self._main):
                block = self._small.popleft()
                if self._uses[block] > 1:
                    self._main.append(block)
                    self._uses[block] = 0
                    continue
                del self._uses[block]
                self._ghosts[block] = None
                if len(self._ghosts) > self._slots - self._most_small:
                    drop_oldest(self._ghosts)
                return
            block = self._main.popleft()
            if self._uses[block] == 0:
                del self._uses[block]
                return
            self._uses[block] -= 1
            self._main.append(block)

    def insert(self, block: int, at: int, depth: int) -> None:
        del at, depth
        if len(self._uses) == self._slots:
            self._evict()
        if block in self._ghosts:
            del self._ghosts[block]
            self._main.append(block)
        else:
            self._small.append(block)
        self._uses[block] = 0


class Arc:
    """Two LRU lists, of blocks used once and more often, whose sizes adapt by two lists of ghosts
    (Megiddo and Modha, FAST 2003)."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._target = 0.0  # of the list of blocks used once
        self._once: OrderedDict[int, None] = OrderedDict()
        self._often: OrderedDict[int, None] = OrderedDict()
        self._once_gone: OrderedDict[int, None] = OrderedDict()
        self._often_gone: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, block: int) -> bool:
        return block in self._once or block in self._often

    def touch(self, block: int, at: int) -> None:
        del at
        if block in self._once:
            del self._once[block]
        else:
            del self._often[block]
        self._often[block] = None

    def _replace(self, often_gone: bool) -> None:
        over = len(self._once) > self._target or (often_gone and len(self._once) == self._target)
        if self._once and (over or not self._often):
            self._once_gone[drop_oldest(self._once)] = None
        else:
            self._often_gone[drop_oldest(self._often)] = None

    def insert(self, block: int, at: int, depth: int) -> None:
        del at, depth
        held = len(self._once) + len(self._often)
        if block in self._once_gone:
            step = max(1.0, len(self._often_gone) / len(self._once_gone))
            self._target = min(self._target + step, self._slots)
            if held == self._slots:
                self._replace(False)
            del self._once_gone[block]
            self._often[block] = None
            return
        if block in self._often_gone:
            step = max(1.0, len(self._once_gone) / len(self._often_gone))
            self._target = max(self._target - step, 0.0)
            if held == self._slots:
                self._replace(True)
            del self._often_gone[block]
            self._often[block] = None
            return
        once = len(self._once) + len(self._once_gone)
        if once == self._slots:
            if len(self._once) < self._slots:
                drop_oldest(self._once_gone)
                if held == self._slots:
                    self._replace(False)
            else:
                drop_oldest(self._once)
        elif held == self._slots:
            if once + len(self._often) + len(self._often_gone) == 2 * self._slots:
                drop_oldest(self._often_gone)
            self._replace(False)
        self._once[block] = None


class TwoQ:
    """A FIFO for the new (a quarter), an LRU list for what came back after it, ghosts between
    (Johnson and Shasha, VLDB 1994)."""

    def __init__(self, slots: int, new: float = 0.25, ghosts: float = 0.5) -> None:
        self._slots = slots
        self._most_new = max(1, int(slots * new))
        self._most_gone = max(1, int(slots * ghosts))
        self._new: OrderedDict[int, None] = OrderedDict()
        self._main: OrderedDict[int, None] = OrderedDict()
        self._gone: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, block: int) -> bool:
        return block in self._new or block in self._main

    def touch(self, block: int, at: int) -> None:
        del at
        if block in self._main:
            self._main.move_to_end(block)

    def insert(self, block: int, at: int, depth: int) -> None:
        del at, depth
        if len(self._new) + len(self._main) == self._slots:
            if len(self._new) > self._most_new or not self._main:
                self._gone[drop_oldest(self._new)] = None
                if len(self._gone) > self._most_gone:
                    drop_oldest(self._gone)
            else:
                drop_oldest(self._main)
        if block in self._gone:
            del self._gone[block]
            self._main[block] = None
        else:
            self._new[block] = None


class Lirs:
    """Evicts by the distance of the last two uses: a hundredth of the slots (at least one) for
    blocks not yet known to be used often, and ghosts (Jiang and Zhang, SIGMETRICS 2002)."""

    _HOT, _COLD, _GHOST = range(3)

    def __init__(self, slots: int, cold: float = 0.01, ghosts: float = 2.0) -> None:
        self._most_cold = max(1, int(slots * cold))
        self._most_hot = slots - self._most_cold
        self._kind: dict[int, int] = {}
        self._stack: OrderedDict[int, None] = OrderedDict()  # by recency; its bottom is hot
        self._cold: OrderedDict[int, None] = OrderedDict()
        self._ghosts: OrderedDict[int, None] = OrderedDict()
        self._most_ghosts = int(slots * ghosts)
        self._hot = 0

    def __contains__(self, block: int) -> bool:
        return self._kind.get(block, self._GHOST) != self._GHOST

    def _prune(self) -> None:
        while self._stack:
            block = next(iter(self._stack))
            if self._kind[block] == self._HOT:
                return
            del self._stack[block]
            if self._kind[block] == self._GHOST:
                del self._kind[block], self._ghosts[block]

    def _cool(self) -> None:
        block = drop_oldest(self._stack)  # hot, by _prune
        self._kind[block] = self._COLD
        self._cold[block] = None
        self._hot -= 1
        self._prune()

    def _heat(self, block: int) -> None:
        self._kind[block] = self._HOT
        self._hot += 1
        if self._hot > self._most_hot:
            self._cool()

    def _to_top(self, block: int) -> None:
        self._stack[block] = None
        self._stack.move_to_end(block)

    def touch(self, block: int, at: int) -> None:
        del at
        if self._kind[block] == self._HOT:
            self._to_top(block)
            self._prune()
            return
        was_in_stack = block in self._stack
        self._to_top(block)
        if was_in_stack:
            del self._cold[block]
            self._heat(block)
        else:
            self._cold.move_to_end(block)

    def _evict(self) -> None:
        block = drop_oldest(self._cold)
        if block not in self._stack:
            del self._kind[block]
            return
        self._kind[block] = self._GHOST
        self._ghosts[block] = None
        if len(self._ghosts) > self._most_ghosts:
            gone = drop_oldest(self._ghosts)
            del self._kind[gone], self._stack[gone]

    def insert(self, block: int, at: int, depth: int) -> None:
        del at, depth
        if self._hot + len(self._cold) >= self._most_hot + self._most_cold:
            self._evict()
        known = block in self._ghosts
        self._ghosts.pop(block, None)
        self._to_top(block)
        if known or self._hot < self._most_hot:
            self._heat(block)
        else:
            self._kind[block] = self._COLD
            self._cold[block] = None
