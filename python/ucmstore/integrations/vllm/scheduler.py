# SPDX-License-Identifier: Apache-2.0
"""The scheduler's side: what is to be loaded and saved, and when. Moves no bytes.

One thread, the engine's. Before anything is stored see `saves`. Loads are asynchronous: the engine
computes nothing for a request until its load has ended, so a failed load never meets a step.
"""

from __future__ import annotations

import os
import time
from typing import Any

from vllm.logger import init_logger
from vllm.v1.request import RequestStatus

from ucmstore.errors import Error
from ucmstore.integrations.vllm import stores
from ucmstore.integrations.vllm.breaker import Breaker
from ucmstore.integrations.vllm.identity import check_hashes
from ucmstore.integrations.vllm.local import local_worker
from ucmstore.integrations.vllm.lookups import Found, Lookups
from ucmstore.integrations.vllm.metadata import SKIP, Fingerprint, Job, StepMetadata, WorkerReport
from ucmstore.integrations.vllm.options import Options
from ucmstore.integrations.vllm.planner import SavePlanner
from ucmstore.integrations.vllm.ranks import Ranks
from ucmstore.integrations.vllm.stats import Stats
from ucmstore.integrations.vllm.tracked import Tracked

logger = init_logger("vllm.ucmstore")

_WAIT_S_PER_STEP = 0.0005  # for lookups of all requests together
_WAIT_S_WHEN_IDLE = 0.005  # after a step in which nothing was computed
_LOOK_AGAIN_S = 1.0
_SETTLE_S = 0.5


class SchedulerSide:
    """What `UcmStoreConnector` does in the scheduler's process."""

    def __init__(self, config: Any, options: Options, page_tokens: int) -> None:
        check_hashes(str(config.cache_config.prefix_caching_hash_algo))
        role = config.kv_transfer_config
        self._loads, self._saves = bool(role.is_kv_consumer), bool(role.is_kv_producer)
        self._options = options
        self._page_tokens = page_tokens
        self._workers = int(config.parallel_config.world_size)
        self._epoch = b""
        self._has_met = False
        self._ranks: Ranks | None = None
        self._store: Any = None
        self._lookups: Lookups | None = None
        self._lookup_breaker = Breaker("looking up")
        self._load_breaker = Breaker("loading")
        self._requests: dict[str, Tracked] = {}
        self._loading: dict[int, Job] = {}
        self._failed_loads: set[int] = set()  # of those that are out
        self._new_loads: list[Job] = []
        self._planner: SavePlanner
        self._last_number = 0
        self._wait_left_s = _WAIT_S_PER_STEP
        self.stats = Stats()

    # ---- before the first request ----------------------------------------------------------------

    def bind(self, manager: Any) -> None:
        """The engine's manager of pages; asked for tables, and its pool for references."""
        self._planner = SavePlanner(
            manager, self._workers, self._page_tokens, self._options.held_pages
        )

    def met(self, fingerprints: dict[int, Fingerprint]) -> None:
        """All workers have told what they keep: now blocks have names."""
        if self._has_met or len(fingerprints) < self._workers:
            return
        self._has_met = True
        ranks = Ranks(fingerprints, self._workers, self._options)
        first = fingerprints[0]
        if not all(each.cached for each in fingerprints.values()):
            self.stats.set("uncached", 1)
            return
        if self._options.is_private and any(f.pid != os.getpid() for f in fingerprints.values()):
            raise ValueError(
                f"ucmstore: spec {self._options.spec!r} keeps blocks in the memory of one process, "
                "but this engine's scheduler and workers are several; use 'Cache|Posix'"
            )
        options = self._options
        if any(each.alone and each.pid != os.getpid() for each in fingerprints.values()):
            options = options.without_ring()  # another one of ours would be of no use here
        config = stores.config_of(options, first.geometry, first.fields)
        self._store = stores.acquire(config)
        self._ranks = ranks
        if self._store is None:
            self.stats.set("uncached", 1)
            return
        self._lookups = Lookups(self._store)
        logger.info(
            "ucmstore: %s keeps blocks of %d tokens (%d KiB a rank) under %s",
            self._options.spec,
            ranks.block_tokens,
            first.geometry.block_bytes >> 10,
            config.namespace.label,
        )

    def _met_late(self, fingerprints: dict[int, Fingerprint]) -> None:
        """The same, where a MultiConnector kept the handshake to itself: the engine is running."""
        try:
            self.met(fingerprints)
        except (Error, ValueError) as error:
            logger.error("ucmstore: NOTHING IS CACHED: %s", error)
            self.stats.set("uncached", 1)

    # ---- hits ------------------------------------------------------------------------------------

    def arrived(self, request: Any) -> None:
        """A new request."""
        adapted = request.lora_request is not None  # its name does not tell the adapter's content
        tracked = Tracked(request, self._loads and not adapted, self._saves and not adapted)
        self._requests[request.request_id] = tracked
        if tracked.may_load and not request.skip_reading_prefix_cache:
            self._look(tracked)

    def matched(self, request: Any, local_tokens: int) -> tuple[int | None, bool]:
        """How many tokens after the first `local_tokens` can be loaded; None: ask again."""
        tracked = self._requests.get(request.request_id)
        if tracked is None or self._ranks is None or self._lookups is None:
            return 0, False
        tracked.local_tokens = local_tokens
        tracked.boundary = None
        if not tracked.may_load or request.skip_reading_prefix_cache or self._load_breaker.is_open:
            return 0, False
        lookup = tracked.lookup
        if lookup is None or (lookup.done and lookup.age_s > _LOOK_AGAIN_S):
            lookup = self._look(tracked)
        size = self._ranks.block_tokens
        if lookup is None or lookup.blocks * size - local_tokens < self._least_hit():
            return 0, False  # not even if all of it were there
        if not lookup.done and not self._wait(lookup):
            if lookup.age_s < self._options.lookup_timeout:
                return None, False
            self.stats.add("lookup_timeouts")
            self._lookup_breaker.failed("no answer in time")
            tracked.lookup = None
            return 0, False
        if not lookup.failed:
            self._lookup_breaker.succeeded()
        tracked.known = lookup.found
        first = local_tokens // size
        end = _end_of_run(lookup.found, first)
        tokens = end * size - local_tokens
        if tokens < self._least_hit():
            return 0, False
        return tokens, True

    def _least_hit(self) -> int:
        return max(1, self._options.min_hit_tokens)

    def _wait(self, lookup: Any) -> bool:
        if self._wait_left_s <= 0:
            return bool(lookup.done)
        begun = time.monotonic()
        done = bool(lookup.wait(self._wait_left_s))
        self._wait_left_s -= time.monotonic() - begun
        return done

    def _look(self, tracked: Tracked) -> Any:
        """Begin to look for all its whole blocks but that of its last token."""
        tracked.lookup = None
        if self._ranks is None or self._lookups is None or self._lookup_breaker.is_open:
            return None
        hashes = tracked.request.block_hashes
        most = min(
            (tracked.request.num_tokens - 1) // self._ranks.block_tokens,
            len(hashes) // self._ranks.every,
        )
        if most * self._ranks.block_tokens < self._least_hit():
            return None
        self.stats.add("lookups")
        ids = self._ranks.ids(self._ranks.lasts(hashes, 0, most), self._epoch)
        tracked.lookup = self._lookups.begin(ids, most)
        return tracked.lookup

    def allocated(self, request: Any, blocks: Any, tokens: int) -> None:
        """The engine has given the request pages for `tokens` tokens that are to be loaded."""
        tracked = self._requests.get(request.request_id)
        if tracked is None or tokens == 0 or self._ranks is None or tracked.known is None:
            return
        every, size = self._ranks.every, self._ranks.block_tokens
        (table,) = blocks.get_block_ids()
        begin, end = tracked.local_tokens, tracked.local_tokens + tokens
        first, last = begin // size, -(-end // size)
        fresh = range(-(-begin // self._page_tokens), end // self._page_tokens)
        pages = tuple(table[i] if i in fresh else SKIP for i in range(first * every, last * every))
        self._planner.renewed(table[i] for i in fresh)
        hashes = self._ranks.lasts(request.block_hashes, first, last)
        job = Job(self._number(), request.request_id, hashes, pages, self._epoch)
        tracked.loading = job
        self._loading[job.number] = job
        self._new_loads.append(job)
        below = sum(1 for found in tracked.known[first:last] if found == 2)
        on_disk = round(tokens * below / (last - first))
        self.stats.add("hit_tokens_disk", on_disk)
        self.stats.add("hit_tokens_memory", tokens - on_disk)

    def sources(self, request: Any, tokens: int) -> tuple[int, int]:
        """Of the tokens promised last: how many come from memory, and how many from below."""
        tracked = self._requests.get(request.request_id)
        if tracked is None or tracked.loading is None or tracked.known is None or not self._ranks:
            return 0, tokens
        first = tracked.local_tokens // self._ranks.block_tokens
        found = tracked.known[first : first + len(tracked.loading.hashes)]
        below = round(tokens * sum(1 for each in found if each == 2) / max(1, len(found)))
        return tokens - below, below

    def _number(self) -> int:
        self._last_number += 1
        return self._last_number

    @property
    def _named(self) -> Ranks:
        assert self._ranks is not None
        return self._ranks

    # ---- every step ------------------------------------------------------------------------------

    def step(self, output: Any) -> StepMetadata:
        """What the workers do in the step that was just scheduled."""
        idle = not output.num_scheduled_tokens
        self._wait_left_s = _WAIT_S_WHEN_IDLE if idle else _WAIT_S_PER_STEP
        for request_id in output.preempted_req_ids or ():
            if (tracked := self._requests.get(request_id)) is not None:
                tracked.preempted()
        cached = output.scheduled_cached_reqs
        for request_id, new in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if new is not None and request_id not in cached.resumed_req_ids:
                self._planner.renewed(new[0])
        saves = self._planner.take_last()
        for request_id in output.num_scheduled_tokens:
            tracked = self._requests.get(request_id)
            if tracked is None:
                continue
            if tracked.boundary is None:
                self._planner.admitted(tracked)
            elif self._can_save(tracked):
                job = self._planner.plan(tracked, self._named, self._epoch, self._number())
                saves += [job] if job is not None else []
        loads, self._new_loads = self._new_loads, []
        return StepMetadata(loads, saves, idle=idle)

    def _can_save(self, tracked: Tracked) -> bool:
        if self._store is None or self._ranks is None:
            return False
        if tracked.known is None and tracked.lookup is not None and tracked.lookup.done:
            tracked.known = tracked.lookup.found
        return tracked.may_save

    def reported(self, output: Any) -> None:
        """The workers' outcome of a step, after the engine has dealt with it."""
        report = output.kv_connector_worker_meta
        if isinstance(report, WorkerReport):
            for number, workers in report.saved.items():
                self._planner.ended(number, workers)
            for number, sick in report.failed_loads.items():
                self._load_failed(number, sick)
            self._met_late(report.fingerprints)
        for request_id in output.finished_recving or ():
            self._load_ended(request_id)
        if output.invalid_block_ids and self._ranks is not None:
            bad = set(output.invalid_block_ids)
            self._planner.failed(bad, self._requests.values(), self._ranks.every)
        self._hand_over_in_process()

    def _load_failed(self, number: int, sick: bool) -> None:
        job = self._loading.get(number)
        if job is None:
            return
        self._failed_loads.add(number)
        if sick:
            self._load_breaker.failed("too slow, or an I/O error")
        tracked = self._requests.get(job.request)
        if tracked is not None:
            tracked.may_load = False  # it computes what is missing, and never asks again
            tracked.lookup = tracked.known = None

    def _load_ended(self, request_id: str) -> None:
        for number, job in list(self._loading.items()):
            if job.request == request_id:
                del self._loading[number]
                if number not in self._failed_loads:
                    self._load_breaker.succeeded()
                self._failed_loads.discard(number)
        if (tracked := self._requests.get(request_id)) is not None:
            tracked.loading = None

    # ---- ends ------------------------------------------------------------------------------------

    def finished(self, request: Any, table: list[int]) -> None:
        """A request has ended; its pages are about to be given back."""
        tracked = self._requests.pop(request.request_id, None)
        if tracked is None or request.status == RequestStatus.FINISHED_ERROR:
            return
        if self._can_save(tracked):
            self._planner.plan_last(tracked, self._named, self._epoch, self._number(), table)

    def _hand_over_in_process(self) -> None:
        """Let a worker of this process begin at once: no step may follow the last request."""
        if self._store is None or self._workers != 1 or not self._planner.busy:
            return
        worker = local_worker(self._store)
        if worker is None:
            return
        for job in self._planner.take_last():
            worker.save(job)
        if not self._requests:
            for number, workers in worker.settle(_SETTLE_S).items():
                self._planner.ended(number, workers)

    def reset(self) -> bool:
        """The weights have changed: what was stored is never found again by this engine."""
        self._epoch = os.urandom(16)
        for tracked in self._requests.values():
            tracked.may_save = False  # its KV is of the old weights, or of both
            tracked.may_load = False
            tracked.lookup = tracked.known = None
        return True

    def take_stats(self) -> Stats | None:
        """What was counted since the last call."""
        stats, self.stats = self.stats, Stats()
        stats.aggregate(self._planner.stats)
        self._planner.stats = Stats()
        return None if stats.is_empty() else stats

    @property
    def busy(self) -> bool:
        """Whether the engine must go on stepping so that saves end."""
        return self._planner.busy

    def close(self) -> None:
        """The engine ends."""
        if self._lookups is not None:
            self._lookups.stop()
        if self._store is not None:
            stores.release(self._store)
            self._store = None


def _end_of_run(found: Found, first: int) -> int:
    """The first block from `first` on that is not there."""
    end = first
    while end < len(found) and found[end]:
        end += 1
    return end
