# SPDX-License-Identifier: Apache-2.0
"""`UcmStoreConnector`: what vLLM calls. Thin: it hands each call to the side it belongs to.

vLLM makes one in the scheduler's process and one in each worker's, and calls each from one thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.logger import init_logger
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from ucmstore.errors import OptionError
from ucmstore.integrations.vllm import register
from ucmstore.integrations.vllm.metadata import Fingerprint, StepMetadata
from ucmstore.integrations.vllm.options import Options, parse
from ucmstore.integrations.vllm.scheduler import SchedulerSide
from ucmstore.integrations.vllm.stats import PromMetrics, Stats
from ucmstore.integrations.vllm.worker import WorkerSide

logger = init_logger("vllm.ucmstore")

register()  # a MultiConnector asks for its children by name, however they were found


class UcmStoreConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """Keeps the KV cache of vLLM in a ucmstore pipeline. See docs/vllm.md."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        options: Options = parse(transfer.kv_connector_extra_config)
        # Before the scheduler reads it, right after this constructor: vLLM's own default fails
        # requests, and for a cache a failed load is a miss.
        transfer.kv_load_failure_policy = options.on_load_failure
        _check_model(vllm_config, kv_cache_config)
        self._scheduler: SchedulerSide | None = None
        self._worker: WorkerSide | None = None
        if role == KVConnectorRole.SCHEDULER:
            (group,) = kv_cache_config.kv_cache_groups
            self._scheduler = SchedulerSide(
                vllm_config, options, int(group.kv_cache_spec.block_size)
            )
        else:
            self._worker = WorkerSide(vllm_config, options, kv_cache_config)

    @property
    def requires_kv_delivery(self) -> bool:
        """No: a save that is dropped is a miss some day."""
        return False

    # ---- the worker's ----------------------------------------------------------------------------

    @property
    def _moving(self) -> WorkerSide:
        assert self._worker is not None, "called in the scheduler's process"
        return self._worker

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        self._moving.register(kv_caches)

    def get_handshake_metadata(self) -> Fingerprint:
        return self._moving.fingerprint

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:  # noqa: ARG002
        self._moving.begin_loads(self._get_connector_metadata())

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing to wait for: loads end before their request is scheduled."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Nothing yet: pages are saved whole, once their step is known to have gone well."""

    def wait_for_save(self) -> None:
        self._moving.begin_saves(self._get_connector_metadata())

    def get_transfer_results(
        self,
        finished_req_ids: set[str],  # noqa: ARG002
    ) -> KVConnectorTransferResults:
        step = self._connector_metadata
        assert step is None or isinstance(step, StepMetadata)
        return KVConnectorTransferResults(finished_recving=self._moving.loaded(step))

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self._moving.take_invalid()

    def build_connector_worker_meta(self) -> Any:
        return self._moving.take_report()

    # ---- the scheduler's -------------------------------------------------------------------------

    @property
    def _planning(self) -> SchedulerSide:
        assert self._scheduler is not None, "called in a worker's process"
        return self._scheduler

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        super().bind_kv_cache_manager(kv_cache_manager)
        self._planning.bind(kv_cache_manager)

    def set_xfer_handshake_metadata_pp_aware(self, metadata: dict[tuple[int, int], Any]) -> None:
        ours = [each for each in metadata.values() if isinstance(each, Fingerprint)]
        self._planning.met({each.rank: each for each in ours})

    def on_new_request(self, request: Any) -> None:
        self._planning.arrived(request)

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        return self._planning.matched(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self._planning.allocated(request, blocks, num_external_tokens)

    def get_external_cache_hit_sources(
        self, request: Any, num_external_tokens: int
    ) -> dict[CacheHitSource, int]:
        memory, below = self._planning.sources(request, num_external_tokens)
        counts = {CacheHitSource.HOST: memory, CacheHitSource.DISK: below}
        return {source: count for source, count in counts.items() if count}

    def build_connector_meta(self, scheduler_output: Any) -> StepMetadata:
        return self._planning.step(scheduler_output)

    def update_connector_output(self, connector_output: Any) -> None:
        self._planning.reported(connector_output)

    def request_finished(
        self, request: Any, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        self._planning.finished(request, block_ids)
        return False, None

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished(request, block_ids[0])

    def has_pending_push_work(self) -> bool:
        return self._planning.busy

    def take_events(self) -> Iterable[Any]:
        return ()

    def reset_cache(self) -> bool:
        return self._planning.reset()

    # ---- of both ---------------------------------------------------------------------------------

    def shutdown(self) -> None:
        for side in (self._worker, self._scheduler):
            if side is not None:
                side.close()

    def get_kv_connector_stats(self) -> Stats | None:
        if self._worker is not None:
            return self._worker.take_stats()
        return self._planning.take_stats()

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> Stats:
        return Stats(data=dict(data or {}))

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> PromMetrics:
        return PromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)


def _check_model(config: Any, cache_config: Any) -> None:
    """Refuse, in words, what would not be stored right."""
    groups = cache_config.kv_cache_groups
    kinds = sorted({type(group.kv_cache_spec).__name__ for group in groups})
    if len(groups) != 1:
        raise OptionError(
            f"the model keeps {len(groups)} groups of KV ({', '.join(kinds)}), and only one can be "
            "stored yet; where layers with sliding windows are mixed with others, "
            "--disable-hybrid-kv-cache-manager makes it one"
        )
    if type(groups[0].kv_cache_spec) is not FullAttentionSpec:
        raise OptionError(
            f"the model keeps KV of kind {kinds[0]}; only full attention can be stored yet"
        )
    parallel = config.parallel_config
    for name in (
        "pipeline_parallel_size",
        "decode_context_parallel_size",
        "prefill_context_parallel_size",
    ):
        if getattr(parallel, name, 1) > 1:
            raise OptionError(f"{name} = {getattr(parallel, name)} is not supported yet; give 1")
