# SPDX-License-Identifier: Apache-2.0
"""The worker's side: moves the bytes of one rank between the engine's pages and the store.

Called by the engine's thread once or twice a step; the work is done by the threads of `Loader` and
`Saver`. If the store could not be opened, loads fail at once and saves are dropped.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any

from ucmstore.block_id import Ids, Layout
from ucmstore.errors import Code, OptionError
from ucmstore.integrations.vllm import local, stores
from ucmstore.integrations.vllm.identity import geometry_fields, model_fields
from ucmstore.integrations.vllm.loader import Loader, Outcome
from ucmstore.integrations.vllm.metadata import Fingerprint, Job, StepMetadata, WorkerReport
from ucmstore.integrations.vllm.options import Options
from ucmstore.integrations.vllm.pages import HostPages
from ucmstore.integrations.vllm.ranks import tag_of
from ucmstore.integrations.vllm.saver import Saver
from ucmstore.integrations.vllm.stats import Stats

_IDLE_WAIT_S = 0.001  # in a step where nothing is computed
_DRAIN_S = 3.0  # an engine gives its workers five seconds to end
_SICK = {Code.TIMEOUT, Code.IO_ERROR, Code.CLOSED, Code.INTERNAL, Code.LIMIT}
_FAILURES = {
    Code.NOT_FOUND: "failed_blocks_absent",
    Code.CORRUPTION: "failed_blocks_corrupt",
    Code.TIMEOUT: "failed_blocks_late",
}


class WorkerSide:
    """What `UcmStoreConnector` does in a worker's process."""

    def __init__(self, config: Any, options: Options, cache_config: Any) -> None:
        self._config = config
        self._options = options
        self._cache_config = cache_config
        self._rank = int(config.parallel_config.rank)
        self._layout = Layout(tp=int(config.parallel_config.world_size))
        self._store: Any = None
        self._namespace: Any = None
        self._loader: Loader | None = None
        self._saver: Saver | None = None
        self._fingerprint: Fingerprint | None = None
        self._refused: list[Outcome] = []
        self._report = WorkerReport()
        self._invalid: set[int] = set()
        self._something = threading.Event()  # has ended
        self.stats = Stats()

    def register(self, tensors: Mapping[str, Any]) -> None:
        """The engine's pages are there: open the store for them."""
        (group,) = self._cache_config.kv_cache_groups
        spec = group.kv_cache_spec
        pages = HostPages(
            tensors,
            group.layer_names,
            int(self._cache_config.num_blocks),
            int(spec.block_size),
            int(spec.page_size_bytes),
        )
        fields = {
            **model_fields(self._config),
            **geometry_fields(pages.geometry),
            **self._backend_fields(group.layer_names),
            "layout": str(self._cache_config.kv_cache_layout),
            "page": pages.shape,
        }
        config = stores.config_of(self._options, pages.geometry, fields)
        self._namespace = config.namespace
        self._store = stores.acquire(config)
        self._fingerprint = Fingerprint(
            self._rank,
            pages.geometry,
            fields,
            os.getpid(),
            self._store is not None,
            self._store is not None and _is_alone(self._store),
        )
        self._report.fingerprints[self._rank] = self._fingerprint
        if self._store is None:
            self.stats.set("uncached", 1)
            return
        options = self._options
        ring, event = options.has_ring, self._something
        self._loader = Loader(self._store, pages, ring, options.load_timeout, event)
        self._saver = Saver(self._store, pages, ring, options.save_timeout, event)
        local.announce(self._store, self)
        atexit.register(_close_if_alive, weakref.ref(self))

    def _backend_fields(self, layers: list[str]) -> dict[str, str]:
        """What computes the attention, and on which instructions: it decides what a page holds."""
        import torch
        from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends

        backends = sorted({b.get_name() for b in get_current_attn_backends(self._config, layers)})
        fields = {"attention": ",".join(backends)}
        if "CPU_ATTN" in backends:
            tiles = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)()
            fields["instructions"] = f"{torch.backends.cpu.get_cpu_capability()} amx {bool(tiles)}"
        return fields

    @property
    def fingerprint(self) -> Fingerprint:
        """What the scheduler must know."""
        if self._fingerprint is None:
            raise OptionError("the engine has given no KV caches to store")
        return self._fingerprint

    # ---- every step ------------------------------------------------------------------------------

    def begin_loads(self, step: StepMetadata) -> None:
        """Begin what the scheduler has planned to load."""
        for job in step.loads:
            if self._loader is None:
                blocks = range(len(job.hashes))
                codes = dict.fromkeys(blocks, Code.CLOSED)
                self._refused.append(Outcome(job, {p for p in job.pages if p >= 0}, codes, 0, 0.0))
            else:
                self._loader.begin(job, self._ids(job))

    def begin_saves(self, step: StepMetadata) -> None:
        """Begin what the scheduler has planned to save; its steps are known to have gone well."""
        for job in step.saves:
            self.save(job)

    def save(self, job: Job) -> None:
        """Begin one save."""
        if self._saver is None:
            self._report.saved[job.number] = 1
        else:
            self._saver.begin(job, self._ids(job))

    def _ids(self, job: Job) -> Ids:
        ids: Ids = self._namespace.derive(
            list(job.hashes),
            width=len(job.hashes[0]),
            tag=tag_of(self._layout, self._rank, job.epoch),
        )
        return ids

    def loaded(self, step: StepMetadata | None) -> set[str]:
        """The requests whose loads have ended, well or not."""
        if step is not None and step.idle and self._busy:
            self._something.wait(_IDLE_WAIT_S)  # instead of spinning
        self._something.clear()
        outcomes, self._refused = self._refused, []
        if self._loader is not None:
            outcomes += self._loader.ended()
        for outcome in outcomes:
            self._note(outcome)
        self._note_saves()
        return {outcome.job.request for outcome in outcomes}

    @property
    def _busy(self) -> bool:
        return (self._loader is not None and self._loader.busy) or (
            self._saver is not None and self._saver.busy
        )

    def _note_saves(self) -> None:
        for number in self._saver.ended() if self._saver is not None else ():
            self._report.saved[number] = 1

    def settle(self, seconds: float) -> dict[int, int]:
        """Wait for the saves under way, and take what the next report would say of saves.

        For a scheduler in this process that will make no further step.
        """
        deadline = time.monotonic() + seconds
        self._note_saves()
        while self._saver is not None and self._saver.busy:
            self._something.wait(max(0.0, min(0.01, deadline - time.monotonic())))
            self._something.clear()
            self._note_saves()
            if time.monotonic() > deadline:
                break
        saved, self._report.saved = self._report.saved, {}
        return saved

    def _note(self, outcome: Outcome) -> None:
        assert self._fingerprint is not None
        self.stats.add("loaded_blocks", outcome.blocks)
        self.stats.add("loaded_bytes", outcome.blocks * self._fingerprint.geometry.block_bytes)
        self.stats.add("load_seconds", outcome.seconds)
        if not outcome.codes:
            return
        self._invalid |= outcome.failed_pages
        codes = outcome.codes.values()
        for code in codes:
            self.stats.add(_FAILURES.get(code, "failed_blocks_error"))
        self._report.failed_loads[outcome.job.number] = any(code in _SICK for code in codes)

    def take_invalid(self) -> set[int]:
        """The pages that did not get what they were promised."""
        invalid, self._invalid = self._invalid, set()
        return invalid

    def take_report(self) -> WorkerReport | None:
        """What the scheduler is to hear of this step."""
        report, self._report = self._report, WorkerReport()
        if report.saved or report.failed_loads or report.fingerprints:
            return report
        return None

    def take_stats(self) -> Stats | None:
        """What was counted since the last call."""
        stats, self.stats = self.stats, Stats()
        if self._saver is not None:
            stats.aggregate(self._saver.take_stats())
        return None if stats.is_empty() else stats

    def close(self) -> None:
        """End it: finish the saves that are queued, in bounded time."""
        if self._saver is not None:
            self._saver.drain(_DRAIN_S)
            self._saver.stop()
        if self._loader is not None:
            self._loader.stop()
        self._saver = self._loader = None
        if self._store is not None:
            local.forget(self._store)
            stores.release(self._store)
            self._store = None


def _is_alone(store: Any) -> bool:
    return bool(store.stats().get("cache", {}).get("ring_is_private", 0))


def _close_if_alive(reference: weakref.ref[WorkerSide]) -> None:
    worker = reference()
    if worker is not None:
        worker.close()
