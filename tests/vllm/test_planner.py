# SPDX-License-Identifier: Apache-2.0
"""The rules that keep wrong KV out of the store, driven by a fake scheduler with overlapping steps.

The scheduler here does what vLLM's does as far as the rules look at it: it counts scheduled tokens
as computed at once and as in flight until their step has been processed, shares pages between
requests, and sends a request back to its first failed page.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ucmstore.integrations.vllm.metadata import Job
from ucmstore.integrations.vllm.planner import SavePlanner
from ucmstore.integrations.vllm.tracked import Tracked

PAGE = 4
EVERY = 2
BLOCK = PAGE * EVERY
RANKS: Any = SimpleNamespace(every=EVERY, block_tokens=BLOCK)


class Pool:
    """Counts references, as the engine's pool of blocks does."""

    def __init__(self, pages: int) -> None:
        self.blocks = [SimpleNamespace(number=i, references=0) for i in range(pages)]

    def touch(self, blocks: list[Any]) -> None:
        for block in blocks:
            block.references += 1

    def free_blocks(self, blocks: Any) -> None:
        for block in blocks:
            assert block.references > 0
            block.references -= 1

    @property
    def held(self) -> list[int]:
        return [block.number for block in self.blocks if block.references]


class Engine:
    """A fake scheduler, its manager of pages, and the planner under test."""

    def __init__(self, share: float = 0.5) -> None:
        self.tables: dict[str, list[int]] = {}
        self.block_pool = Pool(100)
        self.planner = SavePlanner(self, 1, PAGE, share)
        self.tracked: dict[str, Tracked] = {}
        self._steps: list[dict[str, int]] = []
        self._jobs = 0

    def get_block_ids(self, name: str) -> tuple[list[int]]:
        return (list(self.tables[name]),)

    def add(self, name: str, tokens: int, table: list[int], found: int = 0) -> Tracked:
        request = SimpleNamespace(
            request_id=name,
            num_tokens=tokens,
            num_computed_tokens=found,
            num_in_flight_tokens=0,
            block_hashes=[b"%s %d" % (name.encode(), i) for i in range(tokens // PAGE)],
        )
        self.tables[name] = table
        self.tracked[name] = Tracked(request, True, True)
        return self.tracked[name]

    def schedule(self, **tokens: int) -> list[Job]:
        """Plan and launch a step; its outcome comes with `process`."""
        jobs = self.planner.take_last()
        for name in tokens:
            tracked = self.tracked[name]
            if tracked.boundary is None:
                self.planner.admitted(tracked)
                continue
            job = self.planner.plan(tracked, RANKS, b"", self._number())
            jobs += [job] if job else []
        for name, count in tokens.items():
            self.tracked[name].request.num_computed_tokens += count
            self.tracked[name].request.num_in_flight_tokens += count
        self._steps.append(tokens)
        return jobs

    def process(self, bad: set[int] | None = None, truncate: dict[str, int] | None = None) -> None:
        """The oldest step's outcome. `truncate`: where the engine sends requests back to."""
        for name, computed in (truncate or {}).items():
            self.tracked[name].request.num_computed_tokens = computed
        for name, count in self._steps.pop(0).items():
            if name in self.tracked:
                self.tracked[name].request.num_in_flight_tokens -= count
        if bad:
            self.planner.failed(bad, self.tracked.values(), EVERY)

    def finish(self, name: str) -> None:
        tracked = self.tracked.pop(name)
        self.planner.plan_last(tracked, RANKS, b"", self._number(), self.tables[name])

    def _number(self) -> int:
        self._jobs += 1
        return self._jobs


def pages(jobs: list[Job]) -> list[int]:
    return [page for job in jobs for page in job.pages]


def test_s01_nothing_is_saved_before_its_step_was_processed() -> None:
    engine = Engine()
    engine.add("a", 33, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert not engine.schedule(a=16)
    assert not engine.schedule(a=16)  # the first is in flight
    engine.process()
    assert pages(engine.schedule(a=1)) == [1, 2, 3, 4]
    engine.process()
    assert pages(engine.schedule()) == []
    engine.process()
    engine.finish("a")
    assert pages(engine.schedule()) == [5, 6, 7, 8]


def test_s01_a_step_on_bad_pages_is_never_saved_and_its_recomputation_is() -> None:
    engine = Engine()
    # A synchronous load has promised pages 1 to 4, and page 3 failed: it is told after the step.
    engine.add("a", 33, [1, 2, 3, 4, 5, 6, 7, 8, 9], found=16)
    assert not engine.schedule(a=8)
    assert not engine.schedule(a=8)  # overlaps: computes on the same garbage
    engine.process(bad={3}, truncate={"a": 8})
    assert not engine.schedule(a=8)
    engine.process()
    assert not pages(engine.schedule(a=8))  # what the two steps left in flight settles nothing
    engine.process()
    assert pages(engine.schedule(a=8)) == [1, 2, 3, 4]
    engine.process()
    engine.process()
    assert pages(engine.schedule(a=1)) == [5, 6, 7, 8]


def test_s01_a_sharer_waits_until_the_other_has_computed_the_page_again() -> None:
    engine = Engine()
    engine.add("a", 25, [1, 2, 3, 4, 5, 6, 7], found=16)
    engine.add("b", 25, [1, 2, 3, 4, 15, 16, 17], found=16)
    assert not engine.schedule(a=8, b=8)
    # The engine sends `a` back to page 3, and lets `b` count on it: b repeats its own step only.
    engine.process(bad={3}, truncate={"a": 8, "b": 16})
    assert not engine.schedule(b=8)
    engine.process()
    assert pages(engine.schedule(b=1)) == [1, 2]  # b has settled, on garbage from page 3 on
    engine.process()
    engine.schedule(a=16)
    engine.process()
    assert set(pages(engine.schedule(a=1))) >= {3, 4}
    engine.process()


def test_s01_a_request_that_ends_with_the_bad_step_saves_nothing() -> None:
    engine = Engine()
    engine.add("a", 25, [1, 2, 3, 4, 5, 6, 7], found=8)
    engine.add("b", 25, [1, 2, 13, 14, 15, 16, 17], found=8)
    engine.schedule(a=16, b=16)
    engine.process()
    engine.finish("b")  # its outcome is being processed: bad pages are told last
    engine.planner.failed({2}, engine.tracked.values(), EVERY)
    assert not pages(engine.schedule())
    assert engine.planner.stats.data["dropped_blocks_suspect"] == 3
    assert engine.block_pool.held == []


def test_s01_garbage_in_the_engines_own_cache_is_not_saved_by_the_next_request() -> None:
    engine = Engine()
    engine.add("a", 25, [1, 2, 3, 4, 5, 6, 7], found=16)
    engine.schedule(a=8)
    engine.process(bad={3}, truncate={"a": 8})
    del engine.tracked["a"]  # aborted before it computes page 3 again
    engine.add("b", 25, [1, 2, 3, 4, 21, 22, 23], found=16)  # found in the engine's prefix cache
    engine.schedule(b=8)
    engine.process()
    assert pages(engine.schedule(b=1)) == [1, 2]
    engine.process()
    engine.planner.renewed([3, 4])  # given to somebody else
    engine.add("c", 17, [3, 4, 31, 32, 33])
    engine.schedule(c=16)
    engine.process()
    assert pages(engine.schedule(c=1)) == [3, 4, 31, 32]


def test_what_was_found_cached_in_a_step_that_computes_it_is_not_settled() -> None:
    engine = Engine()
    engine.add("a", 17, [1, 2, 3, 4, 5])
    engine.add("b", 25, [1, 2, 3, 4, 15, 16, 17], found=16)  # a's pages, computed in this very step
    assert not engine.schedule(a=16, b=8)
    assert not engine.schedule(b=1)
    engine.process()
    assert set(pages(engine.schedule(b=1))) == {1, 2, 3, 4, 15, 16}


def test_pages_are_held_until_they_are_copied_and_never_too_many() -> None:
    engine = Engine(share=0.04)  # four pages
    engine.add("a", 41, list(range(1, 12)))
    engine.schedule(a=40)
    engine.process()
    (job,) = engine.schedule(a=1)
    assert job.pages == (1, 2, 3, 4)
    assert engine.block_pool.held == [1, 2, 3, 4]
    engine.process()
    assert engine.schedule(a=0) == []  # no more can be held
    engine.process()
    engine.planner.ended(job.number, 1)
    assert engine.block_pool.held == []
    engine.planner.ended(job.number, 1)  # told again: of no use
    (job,) = engine.schedule(a=0)
    assert job.pages == (5, 6, 7, 8)
    engine.process()
    engine.finish("a")
    assert engine.planner.stats.data["dropped_blocks_held"] == 1
    engine.planner.ended(job.number, 1)
    assert engine.block_pool.held == []
    assert not engine.planner.busy


def test_a_preempted_request_saves_nothing_until_it_is_admitted_again() -> None:
    engine = Engine()
    tracked = engine.add("a", 33, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    engine.schedule(a=32)
    tracked.preempted()
    tracked.request.num_computed_tokens = 0
    engine.process()
    engine.tables["a"] = [11, 12, 13, 14, 15, 16, 17, 18, 19]
    assert not engine.schedule(a=32)
    engine.process()
    assert pages(engine.schedule(a=1)) == [11, 12, 13, 14, 15, 16, 17, 18]


@pytest.mark.parametrize("drafts", [1, 3])
def test_drafts_that_are_rejected_are_not_saved(drafts: int) -> None:
    engine = Engine()
    tracked = engine.add("a", 7, [1, 2, 3])
    engine.schedule(a=7)
    engine.process()
    engine.schedule(a=1 + drafts)  # with drafts, rejected below
    tracked.request.num_computed_tokens -= drafts
    engine.process()
    assert not engine.schedule(a=1)
    assert tracked.settled_tokens() <= 7
