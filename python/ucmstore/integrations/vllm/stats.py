# SPDX-License-Identifier: Apache-2.0
"""Figures of the connector, on their way to the engine's log and to Prometheus.

Names say what was counted since the last report: blocks, bytes, seconds. Sums, so that the figures
of all ranks and of the scheduler add up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

COUNTERS = {
    "saved_blocks": "Blocks that were stored.",
    "saved_bytes": "Bytes that were stored.",
    "present_blocks": "Blocks to be stored that somebody had stored already.",
    "dropped_blocks_held": "Blocks not stored: saves held too many pages already.",
    "dropped_blocks_busy": "Blocks not stored: no room in the ring.",
    "dropped_blocks_late": "Blocks not stored: their save did not begin in time.",
    "dropped_blocks_failed": "Blocks not stored: the store failed.",
    "dropped_blocks_suspect": "Blocks not stored: computed from KV that had failed to load.",
    "loaded_blocks": "Blocks that were loaded.",
    "loaded_bytes": "Bytes that were loaded.",
    "load_seconds": "Seconds from the request of a load to its end, summed over loads.",
    "failed_blocks_absent": "Blocks that were found but could not be loaded: gone meanwhile.",
    "failed_blocks_corrupt": "Blocks whose bytes were damaged; they are computed again.",
    "failed_blocks_late": "Blocks that did not come within load_timeout.",
    "failed_blocks_error": "Blocks that the medium failed to read.",
    "lookups": "Lookups of requests.",
    "lookup_timeouts": "Lookups without an answer in time, taken for misses.",
    "hit_tokens_memory": "Tokens promised from memory.",
    "hit_tokens_disk": "Tokens promised from below memory.",
}
GAUGES = {"uncached": "1: nothing is cached, since the store could not be opened."}


class Stats(KVConnectorStats):  # type: ignore[misc]
    """Sums by name."""

    data: dict[str, float]

    def add(self, name: str, value: float = 1) -> None:
        """Count."""
        if value:
            self.data[name] = self.data.get(name, 0) + value

    def set(self, name: str, value: float) -> None:
        """Say how a gauge stands."""
        self.data[name] = value

    def reset(self) -> None:
        """Begin anew."""
        self.data = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """Add another's."""
        for name, value in other.data.items():
            if name in GAUGES:
                self.data[name] = max(self.data.get(name, 0), value)
            else:
                self.add(name, value)
        return self

    def reduce(self) -> dict[str, int | float]:
        """What the engine's log prints."""
        return {f"ucmstore {name}": round(value, 3) for name, value in sorted(self.data.items())}

    def is_empty(self) -> bool:
        """Whether nothing happened."""
        return not self.data


class PromMetrics(KVConnectorPromMetrics):  # type: ignore[misc]
    """The same as Prometheus counters, `vllm:ucmstore_<name>`."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: Mapping[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._metrics: dict[str, dict[int, Any]] = {}
        for names, kind in ((COUNTERS, self._counter_cls), (GAUGES, self._gauge_cls)):
            for name, text in names.items():
                metric = kind(
                    name=f"vllm:ucmstore_{name}", documentation=text, labelnames=labelnames
                )
                self._metrics[name] = {
                    engine: metric.labels(*values)
                    for engine, values in per_engine_labelvalues.items()
                }

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Record one report."""
        for name, value in transfer_stats_data.items():
            metric = self._metrics.get(name, {}).get(engine_idx)
            if metric is None:
                continue
            if name in GAUGES:
                metric.set(value)
            else:
                metric.inc(value)
