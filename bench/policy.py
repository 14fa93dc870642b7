# SPDX-License-Identifier: Apache-2.0
"""Which blocks a full cache should keep: prefix hits of real traces, in the ring as it is and in
simulations of other policies. `python -m bench policy --trace FILE [--trace FILE]`.

A request first asks for its blocks (what is held is touched), then the ones that are not held come
in, in their order. Its hits are the leading run of held blocks, as `ucmstore replay` counts them.
The ring is a real one, "Cache|Null" with exactly so many slots, one worker and blocks written
through before more come, so that each run gives the same figures. No times are taken.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import ucmstore
from bench.measure import Bytes
from bench.other_policies import Arc, Lirs, S3Fifo, Sieve, TwoQ
from bench.policies import Belady, Clock, GhostClock, Lru, Policy
from ucmstore.cli.trace import Trace, chain, read_trace

PERCENTS = (1, 5, 10, 25)
SLOT = 64  # bytes of a block: the ring's least
PIECE = 64  # blocks dumped at once: until one is written through, the hand may not take it
RING = "the ring"
POLICIES: dict[str, Callable[[int], Policy]] = {
    "LRU, exact": Lru,
    "CLOCK as designed: enters with 0, gathers 3": Clock,
    "CLOCK, enters with 1": lambda slots: Clock(slots, entry=1),
    "CLOCK, enters with 1, from depth 16 with 0": lambda slots: Clock(slots, entry=1, deep=16),
    "CLOCK, gathers 1": lambda slots: Clock(slots, most=1),
    "CLOCK, gathers 7": lambda slots: Clock(slots, most=7),
    "CLOCK + ghosts of 1 ring, back with 1": lambda slots: GhostClock(slots, back=1),
    "CLOCK + ghosts of 1 ring, back with 2": lambda slots: GhostClock(slots, back=2),
    "CLOCK + ghosts of 2 rings, back with 2": lambda slots: GhostClock(
        slots, back=2, ticks=128, room=4
    ),
    "SIEVE": Sieve,
    "S3-FIFO": S3Fifo,
    "2Q": TwoQ,
    "ARC": Arc,
    "LIRS, 1 % cold": Lirs,
    "LIRS, 30 % cold": lambda slots: Lirs(slots, cold=0.3),
}
BELADY = "clairvoyant (Belady)"


@dataclass(frozen=True)
class Rates:
    """Prefix hits of all references, in per cent, for one trace."""

    trace: str
    references: int
    distinct: int
    unbounded: float  # with room for everything
    of: dict[str, list[float]]  # policy -> for each of PERCENTS


def simulate(requests: Iterable[list[int]], policy: Policy) -> int:
    """Serve the requests; give the prefix hits."""
    hits = at = 0
    for request in requests:
        absent: list[int] = []
        for depth, block in enumerate(request):
            if block in policy:
                policy.touch(block, at + depth)
            else:
                absent.append(depth)
        hits += absent[0] if absent else len(request)
        for depth in absent:
            if request[depth] not in policy:  # twice in one request
                policy.insert(request[depth], at + depth, depth)
        at += len(request)
    return hits


def _ring_bytes(slots: int) -> int:
    """The size of a segment with so many slots of one tiny shard: see src/cpp/shm/layout.h."""
    buckets = 1 << (slots // 7 * 2).bit_length()
    metadata = 16384 + 64 * buckets + (64 + 8 + 4) * slots
    return (metadata + 4095) // 4096 * 4096 + SLOT * slots


def serve(requests: Iterable[Bytes], longest: int, slots: int) -> int:
    """Serve the requests from a ring of so many slots; give the prefix hits."""
    memory = np.zeros((longest, SLOT), dtype=np.uint8)
    hits = 0
    with (
        tempfile.TemporaryDirectory(prefix="ucmstore-bench-", dir="/dev/shm") as folder,
        ucmstore.open(
            "Cache|Null",
            shard_size=SLOT,
            shards_per_block=1,
            namespace=ucmstore.Namespace(model="bench", dtype="uint8"),
            workers=1,
            log_level="error",
            cache={
                "path": folder,
                "capacity": _ring_bytes(slots),
                "write": "through",
                "unlink": True,
            },
        ) as store,
    ):
        made = int(store.stats()["cache"]["ring_slots"])
        assert made == slots, f"wanted {slots} slots, the ring has {made}"
        for ids in requests:
            found = store.lookup_prefix(ids)
            store.load(ids[:found], into=memory[:found]).wait()
            for at in range(found, len(ids), PIECE):
                part = ids[at : at + PIECE]
                store.dump(part, source=memory[: len(part)]).wait()
            hits += found
    return hits


def rates_of(trace: Trace) -> Rates:
    """Take the figures of one trace."""
    references = [block for request in trace.requests for block in request]
    distinct = len(set(references))
    name_space = ucmstore.Namespace(model="bench", dtype="uint8")
    ids = [
        np.asarray(name_space.derive(chain(request), width=32), dtype=np.uint8)
        for request in trace.requests
    ]

    def per_cent(hits: int) -> float:
        return 100 * hits / len(references)

    sizes = [max(2, distinct * percent // 100) for percent in PERCENTS]
    of = {RING: [per_cent(serve(ids, trace.longest, slots)) for slots in sizes]}
    for name, make in POLICIES.items():
        of[name] = [per_cent(simulate(trace.requests, make(slots))) for slots in sizes]
    of[BELADY] = [per_cent(simulate(trace.requests, Belady(slots, references))) for slots in sizes]
    unbounded = per_cent(simulate(trace.requests, Lru(distinct)))
    return Rates(trace.name, len(references), distinct, unbounded, of)


def _print(rates: Rates, as_markdown: bool) -> None:
    title = (
        f"{rates.trace}: {rates.references:,} references of {rates.distinct:,} blocks; "
        f"prefix hits with room for all of them: {rates.unbounded:.2f} %"
    )
    headings = ("prefix hits, %, with room for", *(f"{percent} %" for percent in PERCENTS))
    rows = [(name, *(f"{rate:.2f}" for rate in row)) for name, row in rates.of.items()]
    if as_markdown:
        print(f"{title}\n\n| {' | '.join(headings)} |\n|{' --- |' * len(headings)}")
        for row in rows:
            print(f"| {' | '.join(row)} |")
        print()
        return
    table = Table(*headings, title=title)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def main(arguments: list[str]) -> int:
    """Print the table of each trace; 1 if the ring keeps less than exact LRU somewhere."""
    parser = argparse.ArgumentParser(prog="python -m bench policy", description=__doc__)
    parser.add_argument("--trace", type=Path, action="append", required=True, metavar="FILE")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N requests")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args(arguments)
    all_rates = [rates_of(read_trace(path, given.limit)) for path in given.trace]
    if given.json:
        print(json.dumps([{"percents": PERCENTS, **vars(rates)} for rates in all_rates], indent=2))
    else:
        for rates in all_rates:
            _print(rates, given.markdown)
    lru = "LRU, exact"
    below = any(
        ring < exact
        for rates in all_rates
        for ring, exact in zip(rates.of[RING], rates.of[lru], strict=True)
    )
    return int(below)
