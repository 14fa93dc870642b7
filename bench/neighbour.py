# SPDX-License-Identifier: Apache-2.0
"""The second process of the ring's figures: attaches to the ring, and moves blocks when told to.

`python -m bench.neighbour FOLDER SHARD_SIZE CAPACITY`. Says "attached"; then each line on its
input, "load SEED COUNT TIMES", "dump …" or "copy …", is answered with the seconds it took.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import ucmstore
from bench.measure import Bytes, aligned, random_ids
from bench.stores import NAMESPACE, drain


def copy(to: Bytes, of: Bytes) -> None:
    """Row by row, as a block at a time."""
    for row in range(len(of)):
        to[row] = of[row]


class Mover:
    """Moves so many blocks of a size, again and again, and takes the time."""

    def __init__(self, store: ucmstore.Store, size: int, count: int) -> None:
        self._store = store
        self._source, self._into = aligned(count, size), aligned(count, size)
        self._count = count

    def move(self, what: str, seed: int, times: int) -> float:
        """`what` is load, dump or copy; the seconds of all times together. What is dumped is
        written back before more comes, untimed: a ring full of dirty blocks is passed by."""
        random = np.random.default_rng(seed)
        spent = 0.0
        ids = random_ids(self._count, random)
        for _ in range(times):
            started = time.perf_counter()
            if what == "load":  # the same blocks, time and again
                self._store.load(ids, self._into).wait()
            elif what == "dump":
                self._store.dump(ids, self._source).wait()
            else:
                copy(self._into, self._source)
            spent += time.perf_counter() - started
            if what == "dump":
                drain(self._store)
                ids = random_ids(self._count, random)
        return spent


def main() -> None:
    """Obey until the input ends."""
    folder, size, capacity = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with ucmstore.open(
        "Cache|Null",
        shard_size=size,
        shards_per_block=1,
        namespace=NAMESPACE,
        log_level="error",
        cache={"path": folder, "capacity": capacity},
    ) as store:
        print("attached", flush=True)
        movers: dict[int, Mover] = {}
        for line in sys.stdin:
            what, seed, count, times = line.split()
            if int(count) not in movers:
                movers[int(count)] = Mover(store, size, int(count))
            print(movers[int(count)].move(what, int(seed), int(times)), flush=True)


if __name__ == "__main__":
    main()
