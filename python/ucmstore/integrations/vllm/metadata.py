# SPDX-License-Identifier: Apache-2.0
"""What scheduler and workers tell each other. Plain data that pickles.

The scheduler names blocks by the engine's hashes, not by ids, since every rank has ids of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

from ucmstore.integrations.vllm.geometry import Geometry

SKIP = -1  # in place of a page: its bytes are not wanted


@dataclass(frozen=True)
class Fingerprint(KVConnectorHandshakeMetadata):  # type: ignore[misc]
    """What only a worker knows of the bytes it keeps, told once before the first request."""

    rank: int
    geometry: Geometry
    fields: dict[str, str]  # of the namespace
    pid: int
    cached: bool  # whether its store could be opened
    alone: bool  # whether its ring is its own, since shared memory had no room for one


@dataclass(frozen=True)
class Job:
    """One load or save. `pages` has `pages_per_block` numbers for each hash, in order."""

    number: int
    request: str
    hashes: tuple[bytes, ...]  # of the last engine block of each store block
    pages: tuple[int, ...]
    epoch: bytes


@dataclass
class StepMetadata(KVConnectorMetadata):  # type: ignore[misc]
    """What the workers are to do in one step."""

    loads: list[Job] = field(default_factory=list)
    saves: list[Job] = field(default_factory=list)
    idle: bool = False  # nothing else happens in this step: a worker may wait a moment for its I/O


@dataclass
class WorkerReport(KVConnectorWorkerMetadata):  # type: ignore[misc]
    """What has ended at the workers since the last step."""

    # Saves that need their pages no more, and by how many workers that was said.
    saved: dict[int, int] = field(default_factory=dict)
    # Loads that brought not everything, and whether the store was to blame: late, or an I/O error.
    failed_loads: dict[int, bool] = field(default_factory=dict)
    fingerprints: dict[int, Fingerprint] = field(default_factory=dict)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        """Both together."""
        assert isinstance(other, WorkerReport)
        saved = dict(self.saved)
        for number, count in other.saved.items():
            saved[number] = saved.get(number, 0) + count
        return WorkerReport(
            saved,
            {
                number: self.failed_loads.get(number, False)
                or other.failed_loads.get(number, False)
                for number in {*self.failed_loads, *other.failed_loads}
            },
            {**self.fingerprints, **other.fingerprints},
        )
