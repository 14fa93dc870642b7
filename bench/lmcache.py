# SPDX-License-Identifier: Apache-2.0
"""The ring beside LMCache's multi-process server over shared memory: the same bytes from the same
memory, 64 MiB a request, stored, looked up and loaded. Optional: LMCache is not installed by this
project. Both are driven from this process; LMCache's server and a neighbour of ours are others.

The memory is laid out as one layer of a paged KV cache, keys and values of 16 tokens being two
pieces of 32 KiB: both stores gather and scatter those.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import ucmstore
from bench.measure import Figure, Spread, aligned, in_turns, random_ids, ratios, scratch
from bench.ring import ring
from bench.stores import drain

MEMORY = Path("/dev/shm")
PIECE = 32 << 10
PAGE_TOKENS = 16
REQUEST = 64 << 20
RING = 2 << 30  # more than all requests of a series: nothing is evicted
PAGES = 2 * REQUEST // (2 * PIECE)
SIZES = (256 << 10, 1 << 20, 4 << 20)
WARM = 3
MAX_PAIRS = RING // REQUEST - WARM - 1
Serve = Callable[[], tuple[float, float, float]]
INSTALL = "lmcache: not installed here, nothing taken; pip install lmcache==0.5.6"


def _free_ports() -> list[int]:
    sockets = [socket.socket() for _ in range(2)]
    for one in sockets:
        one.bind(("localhost", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _await(port: int, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("localhost", port), timeout=5).close()
        except OSError:
            if server.poll() is not None or time.monotonic() > until:
                raise RuntimeError("lmcache server did not start") from None
            time.sleep(0.2)
        else:
            return


@contextmanager
def _client(size: int) -> Iterator[Any]:
    """A server with chunks of that size, and a client of it."""
    port, http = _free_ports()
    tokens = size // (2 * PIECE) * PAGE_TOKENS
    command = [str(Path(sys.executable).parent / "lmcache"), "server", "--port", str(port)]
    command += ["--http-port", str(http), "--chunk-size", str(tokens), "--l1-size-gb", "2"]
    command += ["--no-l1-use-lazy", "--eviction-policy", "LRU", "--disable-observability"]
    command += ["--supported-transfer-mode", "engine_driven"]
    command += ["--shm-name", f"/ucmstore-bench-{os.getpid()}"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await(http, server)
        base = "lmcache.cli.commands.bench.server_bench"
        config = importlib.import_module(f"{base}.config").BenchConfig(
            rpc_url=f"tcp://localhost:{port}",
            http_url=f"http://localhost:{http}",
            mode="cpu",
            transfer_mode="engine_driven",
            tp_size=1,
            use_mla=False,
            num_tokens=REQUEST // (2 * PIECE) * PAGE_TOKENS,
            kvcache_shape_spec=f"(2,{PAGES},{PAGE_TOKENS},8,128):float16:1",
            num_blocks=PAGES,
            block_size=PAGE_TOKENS,
        )
        client = importlib.import_module(f"{base}.client").ServerBenchClient(config, lambda _: None)
        client.start()
        try:
            yield client
        finally:
            client.close()
    finally:
        server.terminate()
        server.wait(60)


class Theirs:
    """A request stored, looked up and loaded: the seconds of each."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._number = 0

    def serve(self) -> tuple[float, float, float]:
        """One request whose blocks are new."""
        self._number += 1
        first = self._client.create_request(self._number, f"store-{self._number}", "bench")
        self._client.lookup(first)
        started = time.perf_counter()
        stored = self._client.store(first, 0, first.num_full_tokens)
        store_s = time.perf_counter() - started
        again = self._client.create_request(self._number, f"load-{self._number}", "bench")
        started = time.perf_counter()
        found = self._client.lookup(again)
        lookup_s = time.perf_counter() - started
        started = time.perf_counter()
        loaded = self._client.retrieve(again, 0, again.num_full_tokens)
        load_s = time.perf_counter() - started
        assert all((stored.succeeded, found.is_full_hit, loaded.succeeded))
        return store_s, lookup_s, load_s


class Ours:
    """The same with the ring."""

    def __init__(self, store: ucmstore.Store, size: int) -> None:
        self._store = store
        self._count = REQUEST // size
        self._memory = aligned(2, PAGES * PIECE)  # keys and values
        pages = np.arange(REQUEST // (2 * PIECE), dtype=np.uint64) * np.uint64(PIECE)
        base = np.uint64(self._memory.ctypes.data)
        pieces = np.stack([base + pages, base + np.uint64(PAGES * PIECE) + pages], axis=1)
        self._addresses = np.ascontiguousarray(pieces.reshape(self._count, -1))
        self._sizes = np.full(self._addresses.shape[1], PIECE, dtype=np.uint64)
        self._random = np.random.default_rng(8)

    def serve(self) -> tuple[float, float, float]:
        """One request whose blocks are new."""
        ids = random_ids(self._count, self._random)
        started = time.perf_counter()
        self._store.dump_raw(ids, 0, self._addresses, self._sizes).wait()
        store_s = time.perf_counter() - started
        started = time.perf_counter()
        found = self._store.lookup_prefix(ids)
        lookup_s = time.perf_counter() - started
        started = time.perf_counter()
        self._store.load_raw(ids, 0, self._addresses, self._sizes).wait()
        load_s = time.perf_counter() - started
        assert found == self._count
        drain(self._store)
        return store_s, lookup_s, load_s


def _until_mapped(store: ucmstore.Store) -> None:
    """Wait until every page of the ring has been touched, as LMCache's have been."""
    mapped = -1.0
    while (now := store.stats()["cache"]["ring_prefaulted_bytes"]) != mapped or now == 0:
        mapped = now
        time.sleep(0.5)


def _figures(size: int, pairs: int) -> list[Figure]:
    with scratch(MEMORY) as folder, ring(folder, size, RING, "back") as (store, _):
        ours = Ours(store, size)
        _until_mapped(store)
        for _warm in range(WARM):
            ours.serve()
        with _client(size) as client:
            theirs = Theirs(client)
            for _warm in range(WARM):
                theirs.serve()
            mine: list[tuple[float, float, float]] = []
            other: list[tuple[float, float, float]] = []

            def run_of(serve: Serve, into: list[tuple[float, float, float]]) -> float:
                into.append(serve())
                return sum(into[-1])

            in_turns(
                pairs,
                lambda _: run_of(ours.serve, mine),
                lambda _: run_of(theirs.serve, other),
            )
    setting = f"{REQUEST // size} blocks, {REQUEST >> 20} MiB a request, pieces of 32 KiB"
    figures = []
    for part, what in enumerate(("store", "lookup", "load")):
        us, them = [one[part] for one in mine], [one[part] for one in other]
        if what == "lookup":
            beside = {
                "ring, µs": Spread.of([1e6 * s for s in us]),
                "LMCache, µs": Spread.of([1e6 * s for s in them]),
            }
        else:
            beside = {
                "ring, GB/s": Spread.of([REQUEST / 1e9 / s for s in us]),
                "LMCache, GB/s": Spread.of([REQUEST / 1e9 / s for s in them]),
            }
        figures.append(
            Figure(
                f"{what}, {size >> 10} KiB blocks, one request",
                setting,
                ratios(them, us),
                "x LMCache",
                beside=beside,
            )
        )
    return figures


def run(_root: Path | None, pairs: int) -> list[Figure]:
    """Take the figures, if LMCache is there."""
    if importlib.util.find_spec("lmcache") is None:
        print(INSTALL, file=sys.stderr)
        return []
    pairs = min(pairs, MAX_PAIRS)
    return [figure for size in SIZES for figure in _figures(size, pairs)]
