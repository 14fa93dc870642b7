# SPDX-License-Identifier: Apache-2.0
"""Which blocks may be stored, and when: the rules that keep wrong KV out of the store.

A save is not begun before the step that computed its pages is known to have gone well:

- Only *settled* tokens are stored: those of steps whose outcome the scheduler has processed. What
  is in flight (overlapping steps, drafts that may be rejected) waits for a later step.
- A page that failed to load, and all that was computed after it in the same request, is *suspect*
  until it has been computed again in a settled step. Nothing is stored whose prefix holds a
  suspect page, whoever's table it is in: pages are shared.
- Pages of a save are *held* by a reference until they have been copied, so the engine cannot give
  them to others. Held pages are bounded; what goes beyond is not stored.

To be used by the scheduler's thread alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ucmstore.integrations.vllm.metadata import Job


class Suspects:
    """Pages whose KV is not what their place in a request says."""

    def __init__(self) -> None:
        self._pages: set[int] = set()

    def add(self, bad: set[int], tables: Iterable[Sequence[int]]) -> None:
        """These pages failed; in each table so is what follows the first of them."""
        self._pages |= bad
        for table in tables:
            for i, page in enumerate(table):
                if page in bad:
                    self._pages.update(table[i:])
                    break

    def clear(self, pages: Iterable[int]) -> None:
        """These were computed again, or given to a request that will."""
        if self._pages:
            self._pages.difference_update(pages)

    def good(self, table: Sequence[int]) -> int:
        """How many of the first pages of a table are not suspect."""
        if self._pages:
            for i, page in enumerate(table):
                if page in self._pages:
                    return i
        return len(table)

    def __bool__(self) -> bool:
        return bool(self._pages)


class Holds:
    """References to pages that saves read, taken from the engine's pool of blocks."""

    def __init__(self, pool: Any, share: float) -> None:
        self._pool = pool
        self._most = max(1, int(len(pool.blocks) * share))
        self._held = 0

    def take(self, pages: Sequence[int]) -> bool:
        """Hold them, unless that were too many at once."""
        if self._held + len(pages) > self._most:
            return False
        self._pool.touch([self._pool.blocks[page] for page in pages])
        self._held += len(pages)
        return True

    def give_back(self, pages: Sequence[int]) -> None:
        """They are no longer read. In reverse, so that the end of a prefix is evicted first."""
        self._pool.free_blocks([self._pool.blocks[page] for page in reversed(pages)])
        self._held -= len(pages)


class Pending:
    """The saves that workers have been told of and that have not ended at all of them."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._jobs: dict[int, Job] = {}
        self._left: dict[int, int] = {}
        self._hashes: set[bytes] = set()

    def add(self, job: Job) -> None:
        """It has been handed out."""
        self._jobs[job.number] = job
        self._left[job.number] = self._workers
        self._hashes.update(job.hashes)

    def ended(self, number: int, workers: int) -> Job | None:
        """So many workers more are through with it; the job, when all are."""
        if number not in self._left:
            return None
        self._left[number] -= workers
        if self._left[number] > 0:
            return None
        del self._left[number]
        job = self._jobs.pop(number)
        self._hashes.difference_update(job.hashes)
        return job

    def has(self, block_hash: bytes) -> bool:
        """Whether that block is on its way."""
        return block_hash in self._hashes

    def __len__(self) -> int:
        return len(self._jobs)
