# SPDX-License-Identifier: Apache-2.0
"""Geometry: how the engine's pages become blocks of the store. Derived, never typed.

A *page* is what one layer keeps of one block of the engine. A block of the store holds
`pages_per_block` consecutive blocks of the engine, of all layers of a rank; its shards are groups
of layers. Inside a shard the pages of its first layer come first, in order of their tokens, then
those of the next layer. Scheduler and workers agree on it, since the workers tell it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ucmstore.errors import ArgumentError

LEAST_BLOCK_BYTES = 5 << 19  # about 4 MiB: 2.5 to 5, since the number of pages is a power of two
MOST_BLOCK_TOKENS = 256  # small models keep blocks that a prompt can fill
LEAST_SHARD_BYTES = 512 << 10


@dataclass(frozen=True)
class Geometry:
    """Sizes of one rank's blocks. Immutable, picklable."""

    page_bytes: int  # of one layer
    layers: int
    page_tokens: int
    pages_per_block: int
    shards_per_block: int

    @property
    def block_tokens(self) -> int:
        """Tokens of a block of the store."""
        return self.page_tokens * self.pages_per_block

    @property
    def block_bytes(self) -> int:
        """Bytes of a block of the store."""
        return self.page_bytes * self.layers * self.pages_per_block

    @property
    def shard_bytes(self) -> int:
        """Bytes of a shard."""
        return self.block_bytes // self.shards_per_block

    @property
    def piece_bytes(self) -> int:
        """Bytes of what one layer has in a block: its pages, one after the other."""
        return self.page_bytes * self.pages_per_block


def derive(page_bytes: int, layers: int, page_tokens: int) -> Geometry:
    """The geometry for a model whose layers all keep `page_bytes` for `page_tokens` tokens."""
    if min(page_bytes, layers, page_tokens) < 1:
        raise ArgumentError(
            f"no KV cache to store: {layers} layers of {page_bytes} bytes for {page_tokens} tokens"
        )
    pages = 1
    while (
        page_bytes * layers * pages < LEAST_BLOCK_BYTES
        and page_tokens * pages * 2 <= MOST_BLOCK_TOKENS
    ):
        pages *= 2
    piece = page_bytes * pages
    shards = max(
        (
            count
            for count in range(1, layers + 1)
            if layers % count == 0 and layers // count * piece >= LEAST_SHARD_BYTES
        ),
        default=1,
    )
    return Geometry(page_bytes, layers, page_tokens, pages, shards)
