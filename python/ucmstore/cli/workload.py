# SPDX-License-Identifier: Apache-2.0
"""Client: does to a store what an engine does for a request, checks every byte, and keeps figures.

For each request: look up the longest prefix, load it, check it, dump the rest. A block that was
found but could not be loaded counts and is dumped again, as an engine would compute it again.
Not thread-safe.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import ucmstore
from ucmstore.cli.content import Bytes, Pattern

_BATCH_BYTES = 64 << 20  # memory of the workload: blocks are moved in batches of at most this
_OPERATIONS = ("lookup", "load", "dump")


@dataclass
class Figures:
    """What happened to the requests served so far. Counts are of blocks unless named otherwise."""

    requests: int = 0
    references: int = 0
    prefix_hits: int = 0
    blocks_loaded: int = 0
    blocks_stored: int = 0
    bytes_loaded: int = 0
    bytes_stored: int = 0
    mismatches: int = 0  # loaded, and not what was dumped
    lost_hits: int = 0  # found, and gone when it was loaded
    corrupt: int = 0  # found, and refused by the store for its checksum
    failed: int = 0  # any other load or dump that failed
    first_failure: str = ""
    nanoseconds: dict[str, array[int]] = field(
        default_factory=lambda: {name: array("Q") for name in _OPERATIONS}
    )

    @property
    def hit_rate(self) -> float:
        """Prefix hits of all references."""
        return self.prefix_hits / self.references if self.references else 0.0

    def latency_s(self, operation: str, percentile: float) -> float:
        """A percentile of the calls of one operation; 0 if there was none."""
        samples = self.nanoseconds[operation]
        return float(np.percentile(samples, percentile)) / 1e9 if samples else 0.0

    def busy_s(self, operation: str) -> float:
        """The time spent in one operation."""
        return sum(self.nanoseconds[operation]) / 1e9

    def rate(self, operation: str, count: int) -> float:
        """`count` for each second spent in the operation."""
        busy = self.busy_s(operation)
        return count / busy if busy else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain data, the names being those of the fields."""
        return {
            "requests": self.requests,
            "references": self.references,
            "prefix_hits": self.prefix_hits,
            "hit_rate": round(self.hit_rate, 6),
            "blocks_loaded": self.blocks_loaded,
            "blocks_stored": self.blocks_stored,
            "bytes_loaded": self.bytes_loaded,
            "bytes_stored": self.bytes_stored,
            "mismatches": self.mismatches,
            "lost_hits": self.lost_hits,
            "corrupt": self.corrupt,
            "failed": self.failed,
            "first_failure": self.first_failure,
            "load_bytes_per_s": round(self.rate("load", self.bytes_loaded)),
            "dump_bytes_per_s": round(self.rate("dump", self.bytes_stored)),
            "latency_us": {
                name: {
                    "calls": len(self.nanoseconds[name]),
                    "p50": round(self.latency_s(name, 50) * 1e6, 1),
                    "p99": round(self.latency_s(name, 99) * 1e6, 1),
                }
                for name in _OPERATIONS
            },
        }


class Client:
    """Serves requests from one store. `longest`: blocks of the longest request."""

    def __init__(self, store: ucmstore.Store, block_bytes: int, longest: int) -> None:
        self.figures = Figures()
        self._store = store
        self._block_bytes = block_bytes
        self._batch = max(1, min(longest, _BATCH_BYTES // block_bytes))
        self._pattern = Pattern(block_bytes, self._batch)
        self._landing: Bytes = np.empty((self._batch, block_bytes), dtype=np.uint8)

    def serve(self, ids: Bytes) -> None:
        """Serve one request whose blocks are `ids`, n x 16."""
        figures = self.figures
        figures.requests += 1
        figures.references += len(ids)
        if not len(ids):
            return
        started = time.perf_counter_ns()
        hits = self._store.lookup_prefix(ids)
        figures.nanoseconds["lookup"].append(time.perf_counter_ns() - started)
        figures.prefix_hits += hits

        again = [
            self._load(ids[at : min(at + self._batch, hits)]) for at in range(0, hits, self._batch)
        ]
        rest = np.concatenate([*again, ids[hits:]])
        for at in range(0, len(rest), self._batch):
            self._dump(rest[at : at + self._batch])

    def _load(self, ids: Bytes) -> Bytes:
        """Load and check; give the blocks that must be dumped again."""
        figures = self.figures
        into = self._landing[: len(ids)]
        into.fill(0xA5)  # what an earlier request left here must not pass for a load
        codes = self._run("load", len(ids), lambda: self._store.load(ids, into=into))
        loaded = codes == ucmstore.Code.OK
        figures.blocks_loaded += int(loaded.sum())
        figures.bytes_loaded += int(loaded.sum()) * self._block_bytes
        figures.mismatches += int((self._pattern.mismatches(ids, into) & loaded).sum())
        figures.lost_hits += int((codes == ucmstore.Code.NOT_FOUND).sum())
        figures.corrupt += int((codes == ucmstore.Code.CORRUPTION).sum())
        foreseen = (ucmstore.Code.OK, ucmstore.Code.NOT_FOUND, ucmstore.Code.CORRUPTION)
        figures.failed += int((~np.isin(codes, foreseen)).sum())
        again: Bytes = ids[~loaded]
        return again

    def _dump(self, ids: Bytes) -> None:
        figures = self.figures
        source = np.ascontiguousarray(self._pattern.make(ids))
        codes = self._run("dump", len(ids), lambda: self._store.dump(ids, source=source))
        stored = int((codes == ucmstore.Code.OK).sum())
        figures.blocks_stored += stored
        figures.bytes_stored += stored * self._block_bytes
        figures.failed += len(ids) - stored

    def _run(
        self, operation: str, count: int, begin: Callable[[], ucmstore.Task]
    ) -> npt.NDArray[np.int32]:
        """Run one task of `count` blocks to its end; give the worst code of each."""
        started = time.perf_counter_ns()
        task = begin()
        try:
            task.wait()
        except ucmstore.TransferError as error:
            self.figures.first_failure = self.figures.first_failure or str(error)
        self.figures.nanoseconds[operation].append(time.perf_counter_ns() - started)
        worst: npt.NDArray[np.int32] = task.results.codes.reshape(count, -1).max(axis=1)
        return worst
