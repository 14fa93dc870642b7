# SPDX-License-Identifier: Apache-2.0
"""Loader and Saver over a real store, without an engine: what ends when, and in which pages."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import api_support
import ucmstore
from ucmstore.errors import Code
from ucmstore.integrations.vllm.loader import Loader, Outcome
from ucmstore.integrations.vllm.metadata import SKIP, Job
from ucmstore.integrations.vllm.pages import HostPages
from ucmstore.integrations.vllm.saver import Saver

LAYERS = [f"layer.{i}" for i in range(4)]
PAGES, TOKENS, WIDTH = 64, 32, 256
PAGE_BYTES = TOKENS * WIDTH
NAMESPACE = ucmstore.Namespace(model="moving")


class Bench:
    """A store, pages to load into and to save from, and those who move."""

    def __init__(self, root: Path, spec: str, **timeouts: float) -> None:
        self.tensors = {
            name: torch.zeros(PAGES, 1, TOKENS, WIDTH, dtype=torch.uint8) for name in LAYERS
        }
        self.pages = HostPages(self.tensors, LAYERS, PAGES, TOKENS, PAGE_BYTES)
        self.every = self.pages.geometry.pages_per_block
        self.fault_name = f"moving-{os.getpid()}-{root.name}"
        stages: dict[str, Any] = {
            "cache": {
                "capacity": "8MiB",
                "unlink": True,
                "name": f"t{os.getpid()}{root.name[-8:]}",
            },
            "posix": {"roots": [str(root / "kv")], "capacity": "1GiB"},
            "fault": {"name": self.fault_name},
        }
        names = [part.lower() for part in spec.split("|")]
        self.store = ucmstore.open(
            spec,
            shard_size=self.pages.geometry.shard_bytes,
            shards_per_block=self.pages.geometry.shards_per_block,
            namespace=NAMESPACE,
            plugin_path=[str(api_support.fault_folder())],
            log_level="off",
            stages={name: stages[name] for name in names if name in stages},
        )
        self.fault = api_support.Fault(self.fault_name) if "fault" in names else None
        self.something = threading.Event()
        ring = spec.startswith("Cache")
        self.loader = Loader(
            self.store, self.pages, ring, timeouts.get("load_s", 30.0), self.something
        )
        self.saver = Saver(
            self.store, self.pages, ring, timeouts.get("save_s", 30.0), self.something
        )
        self._jobs = 0

    def job(self, blocks: list[int], pages: list[int]) -> Job:
        self._jobs += 1
        hashes = tuple(b"%032d" % block for block in blocks)
        return Job(self._jobs, f"request {self._jobs}", hashes, tuple(pages), b"")

    def ids(self, job: Job) -> Any:
        return NAMESPACE.derive(list(job.hashes))

    def fill(self, page: int, value: int) -> None:
        for i, tensor in enumerate(self.tensors.values()):
            tensor[page] = value + i

    def holds(self, page: int, value: int) -> bool:
        return all(bool((t[page] == value + i).all()) for i, t in enumerate(self.tensors.values()))

    def save(self, job: Job) -> None:
        self.saver.begin(job, self.ids(job))
        ended: list[int] = []
        api_support.until(lambda: bool(ended.extend(self.saver.ended()) or ended), "a save ended")
        assert ended == [job.number]
        self.saver.drain(30)

    def load(self, job: Job) -> Outcome:
        self.loader.begin(job, self.ids(job))
        return self.ended()

    def ended(self) -> Outcome:
        ended: list[Outcome] = []
        api_support.until(lambda: bool(ended.extend(self.loader.ended()) or ended), "a load ended")
        (outcome,) = ended
        return outcome

    def close(self) -> None:
        if self.fault is not None:
            self.fault.disarm()
            self.fault.release()
        self.saver.stop()
        self.loader.stop()
        self.store.close()


@contextlib.contextmanager
def moving(root: Path, spec: str, **timeouts: float) -> Iterator[Bench]:
    bench = Bench(root, spec, **timeouts)
    try:
        yield bench
    finally:
        bench.close()


@pytest.mark.parametrize("spec", ["Cache|Posix", "Posix", "Dram"])
def test_what_is_saved_is_loaded_and_pages_to_skip_are_left(tmp_path: Path, spec: str) -> None:
    with moving(tmp_path, spec) as bench:
        every = bench.every
        source = list(range(4 * every))
        for page in source:
            bench.fill(page, page)
        bench.save(bench.job([0, 1, 2, 3], source))
        target = list(range(PAGES - 1, PAGES - 1 - 2 * every, -1))
        wanted = [SKIP, *target[1:]]
        outcome = bench.load(bench.job([1, 2], wanted))
        assert not outcome.codes
        assert outcome.blocks == 2
        assert not bench.holds(target[0], every)
        for i, page in enumerate(target[1:], start=1):
            assert bench.holds(page, every + i)
        bench.save(bench.job([1], source[:every]))  # the first bytes stay
        bench.load(bench.job([1], target[:every]))
        assert bench.holds(target[0], every)


def test_a05_only_the_pages_of_failed_blocks_are_named(tmp_path: Path) -> None:
    with moving(tmp_path, "Cache|Posix") as bench:
        every = bench.every
        source = list(range(every))
        bench.save(bench.job([7], source))
        pages = list(range(every, 4 * every))
        outcome = bench.load(bench.job([6, 7, 8], pages))
        assert outcome.codes == {0: Code.NOT_FOUND, 2: Code.NOT_FOUND}
        assert outcome.failed_pages == {*pages[:every], *pages[2 * every :]}
        assert outcome.blocks == 1


@pytest.mark.parametrize("spec", ["Cache|Fault|Posix", "Fault|Posix"])
def test_s04_a_late_load_is_given_up_and_its_pages_are_never_touched(
    tmp_path: Path, spec: str
) -> None:
    with moving(tmp_path, spec, load_s=0.3) as bench:
        assert bench.fault is not None
        every = bench.every
        source = list(range(every))
        for page in source:
            bench.fill(page, 5)
        for block in range(48):  # more than the ring holds
            bench.save(bench.job([block], source))
        rule = bench.fault.arm("load hold")
        target = list(range(every, 2 * every))
        outcome = bench.load(bench.job([0], target))
        assert outcome.codes == {0: Code.TIMEOUT}
        assert outcome.failed_pages == set(target)
        bench.fault.wait_held(rule)
        for page in target:
            bench.fill(page, 100)  # they belong to another request now
        bench.fault.disarm()
        bench.fault.release()
        again = bench.load(bench.job([0], list(range(3 * every, 4 * every))))
        assert not again.codes
        assert bench.holds(3 * every, 5)
        assert all(bench.holds(page, 100) for page in target)


def test_a_save_that_cannot_begin_gives_its_pages_back(tmp_path: Path) -> None:
    with moving(tmp_path, "Cache|Fault|Posix", save_s=0.2) as bench:
        assert bench.fault is not None
        rule = bench.fault.arm("lookup hold")
        job = bench.job([1], list(range(bench.every)))
        bench.saver.begin(job, bench.ids(job))
        bench.fault.wait_held(rule)
        ended: list[int] = []
        api_support.until(lambda: bool(ended.extend(bench.saver.ended()) or ended), "it is told")
        assert ended == [job.number]
        bench.fill(0, 99)  # it belongs to another request now
        bench.fault.disarm()
        bench.fault.release()
        bench.saver.drain(30)
        assert bench.saver.ended() == []
        outcome = bench.load(bench.job([1], list(range(bench.every, 2 * bench.every))))
        assert outcome.codes == {0: Code.NOT_FOUND}
        assert bench.saver.take_stats().data == {"dropped_blocks_late": 1}
