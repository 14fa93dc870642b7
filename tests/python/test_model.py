# SPDX-License-Identifier: Apache-2.0
"""A store against its model, a dict: random dumps of whole blocks and of parts, loads, lookups,
cancels, losses and reopening, in every order that hypothesis thinks of. A failure prints the
steps that lead to it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

import ucmstore
from api_support import NAMESPACE, until

SHARD = 512
SHARDS = 3
BLOCK = SHARD * SHARDS
IDS = [bytes([i]) * 16 for i in range(8)]

NUMBERS = st.integers(0, len(IDS) - 1)
SOME = st.lists(NUMBERS, max_size=6)
UNIQUE = st.lists(NUMBERS, max_size=6, unique=True)


class StoreMachine(RuleBasedStateMachine):
    """Blocks are visible when all their shards have come, and never change afterwards."""

    spec = "Dram"
    options: Mapping[str, Any] = MappingProxyType({"dram": {"capacity": "1GiB"}})

    def __init__(self) -> None:
        super().__init__()
        # What each shard may hold: if two dumps brought it before the block was whole, it is one of
        # the two, and the first load says which for ever.
        self.visible: dict[int, list[list[bytes]]] = {}
        self.partial: dict[int, dict[int, list[bytes]]] = {}
        self.nonce = 0

    @initialize()
    def begin(self) -> None:
        self.store = self.opened()

    def opened(self) -> ucmstore.Store:
        return ucmstore.open(
            self.spec,
            shard_size=SHARD,
            shards_per_block=SHARDS,
            namespace=NAMESPACE,
            workers=3,
            log_level="error",
            stages=self.options,
        )

    def content(self, length: int) -> bytes:
        """Bytes that no other dump has: what is stale or mixed is seen."""
        self.nonce += 1
        return (self.nonce.to_bytes(4, "little") * (length // 4 + 1))[:length]

    def land(self, number: int, shard: int, content: bytes) -> None:
        if number in self.visible:
            return
        shards = self.partial.setdefault(number, {})
        shards.setdefault(shard, []).append(content)
        if len(shards) == SHARDS:
            self.visible[number] = [shards[i] for i in range(SHARDS)]
            del self.partial[number]

    def check(self, number: int, shard: int, loaded: bytes) -> None:
        """It is one of the contents that may be there, and is that one from now on."""
        candidates = self.visible[number][shard]
        matching = [content for content in candidates if loaded.startswith(content)]
        assert matching, f"{loaded[:16]!r}… is none of {candidates}"
        self.visible[number][shard] = matching

    @rule(numbers=UNIQUE)
    def dump_blocks(self, numbers: list[int]) -> None:
        blocks = [[self.content(SHARD) for _ in range(SHARDS)] for _ in numbers]
        self.store.dump([IDS[i] for i in numbers], [b"".join(block) for block in blocks]).wait(60)
        for number, block in zip(numbers, blocks, strict=True):
            for shard, content in enumerate(block):
                self.land(number, shard, content)

    @rule(number=NUMBERS, shard=st.integers(0, SHARDS - 1), length=st.integers(1, SHARD))
    def dump_shard(self, number: int, shard: int, length: int) -> None:
        content = self.content(length)
        self.store.dump(IDS[number], content, shard=shard).wait(60)
        self.land(number, shard, content)

    @rule(numbers=SOME)
    def load_blocks(self, numbers: list[int]) -> None:
        into = np.full((len(numbers), BLOCK), 0xEE, np.uint8)
        task = self.store.load([IDS[i] for i in numbers], into)
        absent = [at for at, number in enumerate(numbers) if number not in self.visible]
        try:
            task.wait(60)
            assert not absent
        except ucmstore.NotFoundError as error:
            assert isinstance(error, ucmstore.TransferError)  # noqa: PT017
            assert error.failed == absent  # noqa: PT017
        for row, number in zip(into, numbers, strict=True):
            if number in self.visible:
                for shard in range(SHARDS):
                    self.check(number, shard, row[shard * SHARD :][:SHARD].tobytes())

    @rule(numbers=SOME, shard=st.integers(0, SHARDS - 1))
    def load_shards(self, numbers: list[int], shard: int) -> None:
        into = [bytearray(SHARD) for _ in numbers]
        task = self.store.load([IDS[i] for i in numbers], into, shard=shard)
        with contextlib.suppress(ucmstore.NotFoundError):
            task.wait(60)
        codes, lengths = task.results
        for at, number in enumerate(numbers):
            assert (codes[at] == 0) == (number in self.visible)
            if number in self.visible:
                self.check(number, shard, bytes(into[at]))
                assert lengths[at] in {len(content) for content in self.visible[number][shard]}

    @rule(numbers=SOME)
    def lookup(self, numbers: list[int]) -> None:
        expected = [number in self.visible for number in numbers]
        ids = b"".join(IDS[i] for i in numbers)
        assert (self.store.lookup(ids) != 0).tolist() == expected
        prefix = expected.index(False) if False in expected else len(expected)
        assert self.store.lookup_prefix(ids) == prefix

    @rule(numbers=SOME)
    def lose_a_load(self, numbers: list[int]) -> None:
        self.store.load([IDS[i] for i in numbers], np.empty((len(numbers), BLOCK), np.uint8))

    @rule(numbers=SOME)
    def cancel_a_load(self, numbers: list[int]) -> None:
        into = np.full((len(numbers), BLOCK), 0xEE, np.uint8)
        task = self.store.load([IDS[i] for i in numbers], into)
        task.cancel()
        with contextlib.suppress(ucmstore.TransferError):
            task.wait(60)
        codes = task.results.codes
        for at, number in enumerate(numbers):
            for shard in range(SHARDS):
                if codes[at, shard] == 0:
                    self.check(number, shard, into[at, shard * SHARD :][:SHARD].tobytes())

    @rule(numbers=UNIQUE)
    def prefetch(self, numbers: list[int]) -> None:
        task = self.store.prefetch([IDS[i] for i in numbers])
        with contextlib.suppress(ucmstore.NotFoundError):
            task.wait(60)

    @rule()
    def poll(self) -> None:
        self.store.poll()

    @precondition(lambda self: self.spec == "Posix")
    @rule()
    def reopen(self) -> None:
        config = self.store.config
        self.store.close()
        self.partial.clear()  # halves from two stores are never joined
        self.store = ucmstore.open(config=config)

    @invariant()
    def nothing_is_left_in_flight(self) -> None:
        if hasattr(self, "store"):
            until(
                lambda: self.store.stats()["python"]["tasks_in_flight"] == 0,
                "nothing is in flight",
            )

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.lookup(list(range(len(IDS))))
            self.load_blocks(list(range(len(IDS))))
            self.store.close()


class PosixMachine(StoreMachine):
    """The same over files, and across reopening."""

    spec = "Posix"

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp(prefix="ucmstore-model-")
        self.options = {"posix": {"roots": [self.root]}}

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.root)


STEPS = settings(max_examples=60, stateful_step_count=40, deadline=None, print_blob=True)

StoreMachine.TestCase.settings = STEPS
PosixMachine.TestCase.settings = settings(STEPS, max_examples=30)
TestDramModel = StoreMachine.TestCase
TestPosixModel = PosixMachine.TestCase
