# SPDX-License-Identifier: Apache-2.0
"""Planning saves: which blocks of which requests are stored in which step, by the rules of `saves`.

To be used by the scheduler's thread alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ucmstore.integrations.vllm.metadata import Job
from ucmstore.integrations.vllm.ranks import Ranks
from ucmstore.integrations.vllm.saves import Holds, Pending, Suspects
from ucmstore.integrations.vllm.stats import Stats
from ucmstore.integrations.vllm.tracked import Tracked


class SavePlanner:
    """The saves of one engine, from the moment their tokens have settled until they have ended."""

    def __init__(self, manager: Any, workers: int, page_tokens: int, held_share: float) -> None:
        self._manager = manager
        self._page_tokens = page_tokens
        self._holds = Holds(manager.block_pool, held_share)
        self._pending = Pending(workers)
        self._suspects = Suspects()
        self._last: list[tuple[Job, Sequence[int]]] = []  # of ended requests, with their tables
        self.stats = Stats()

    @property
    def busy(self) -> bool:
        """Whether saves are planned or under way."""
        return bool(self._last) or len(self._pending) > 0

    # ---- what is stored --------------------------------------------------------------------------

    def plan(self, tracked: Tracked, ranks: Ranks, epoch: bytes, number: int) -> Job | None:
        """The job for what of a request has settled and is not stored; its pages are held."""
        planned = self._plan(tracked, ranks, epoch, number, None)
        if planned is None:
            return None
        self._pending.add(planned[0])
        return planned[0]

    def plan_last(
        self, tracked: Tracked, ranks: Ranks, epoch: bytes, number: int, table: Sequence[int]
    ) -> None:
        """The same for a request that is ending, whose last step may yet turn out to be bad."""
        planned = self._plan(tracked, ranks, epoch, number, table)
        if planned is not None:
            self._last.append(planned)
        end = self._end(tracked, ranks)
        if end > tracked.saved:
            self.stats.add("dropped_blocks_held", end - tracked.saved)

    def take_last(self) -> list[Job]:
        """The saves of ended requests, but those whose step turned out to have had bad pages."""
        last, self._last = self._last, []
        good = []
        for job, table in last:
            if self._suspects.good(table) == len(table):
                self._pending.add(job)
                good.append(job)
            else:
                self.stats.add("dropped_blocks_suspect", len(job.hashes))
                self._holds.give_back(job.pages)
        return good

    def ended(self, number: int, workers: int) -> None:
        """So many workers more need a job's pages no longer."""
        job = self._pending.ended(number, workers)
        if job is not None:
            self._holds.give_back(job.pages)

    def _plan(
        self,
        tracked: Tracked,
        ranks: Ranks,
        epoch: bytes,
        number: int,
        table: Sequence[int] | None,
    ) -> tuple[Job, Sequence[int]] | None:
        every, hashes = ranks.every, tracked.request.block_hashes
        settled = tracked.settled_tokens()
        end = self._end(tracked, ranks)
        if not tracked.may_save or (end <= tracked.saved and tracked.recomputes_from is None):
            return None
        table = self._table(tracked) if table is None else table
        if tracked.recomputes_from is not None and settled:
            whole = settled // self._page_tokens
            self._suspects.clear(table[tracked.recomputes_from : whole])
            tracked.recomputes_from = max(tracked.recomputes_from, whole)
        end = min(end, self._suspects.good(table[: end * every]) // every)
        wanted = self._wanted(tracked, table, every, end)
        if not wanted:
            return None
        job = Job(
            number,
            tracked.request.request_id,
            tuple(hashes[(block + 1) * every - 1] for block in wanted),
            tuple(p for block in wanted for p in table[block * every : (block + 1) * every]),
            epoch,
        )
        return job, table[: (wanted[-1] + 1) * every]

    def _end(self, tracked: Tracked, ranks: Ranks) -> int:
        """The first of its blocks that is not all settled."""
        whole = len(tracked.request.block_hashes) // ranks.every
        return min(tracked.settled_tokens() // ranks.block_tokens, whole)

    def _wanted(self, tracked: Tracked, table: Sequence[int], every: int, end: int) -> list[int]:
        """The blocks below `end` that nobody stores yet, as far as pages can be held now."""
        wanted = []
        for block in range(tracked.saved, end):
            pages = table[block * every : (block + 1) * every]
            last = tracked.request.block_hashes[(block + 1) * every - 1]
            here = len(pages) == every and 0 not in pages
            if here and not tracked.has(block) and not self._pending.has(last):
                if not self._holds.take(pages):
                    break  # the rest in a later step, when others have been copied
                wanted.append(block)
            tracked.saved = block + 1
        return wanted

    # ---- what must not be stored -----------------------------------------------------------------

    def admitted(self, tracked: Tracked) -> None:
        """A request is scheduled for the first time since it has pages: from here it computes."""
        tracked.loading = None
        tracked.boundary = int(tracked.request.num_computed_tokens)
        if self._suspects:
            self._suspects.clear(self._table(tracked)[-(-tracked.boundary // self._page_tokens) :])

    def renewed(self, pages: Iterable[int]) -> None:
        """These pages were given to somebody who fills them anew."""
        self._suspects.clear(pages)

    def failed(self, bad: set[int], requests: Iterable[Tracked], every: int) -> None:
        """Pages did not get what they were promised: ours, or another connector's.

        A request that still waits for its load has computed nothing, and its pages are nobody
        else's yet; so it is left out. All other tables with such a page hold garbage from there on.
        """
        tables = []
        for tracked in requests:
            if tracked.boundary is None:
                continue
            table = self._table(tracked)
            first = next((i for i, page in enumerate(table) if page in bad), None)
            if first is None:
                continue
            tables.append(table)
            tracked.saved = min(tracked.saved, first // every)
            if tracked.request.num_computed_tokens <= first * self._page_tokens:
                tracked.recomputes_from = first
                tracked.boundary = min(tracked.boundary, first * self._page_tokens)
        tables += [list(table) for _, table in self._last]
        if any(not bad.isdisjoint(table) for table in tables):
            self._suspects.add(bad, tables)

    def _table(self, tracked: Tracked) -> list[int]:
        table: list[int] = self._manager.get_block_ids(tracked.request.request_id)[0]
        return table
