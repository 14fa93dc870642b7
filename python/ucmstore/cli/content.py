# SPDX-License-Identifier: Apache-2.0
"""Content for blocks that can be made and checked at memory speed: a function of id and offset.

Word i of a block is (low(id) + step(i)) ^ high(id), 64 bits each, with a fixed pseudo-random step:
a byte of another block, or of this one but from elsewhere, is found out with near certainty.
Pattern is not thread-safe: it reuses its scratch memory.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]


def _steps(count: int) -> Words:
    """The first `count` values of splitmix64 from a fixed seed."""
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class Pattern:
    """Makes and checks the content of blocks of one size."""

    def __init__(self, block_bytes: int, max_blocks: int) -> None:
        self._block_bytes = block_bytes
        self._steps = _steps((block_bytes + 7) // 8)
        self._scratch: Words = np.empty((max_blocks, len(self._steps)), dtype=np.uint64)

    def make(self, ids: Bytes) -> Bytes:
        """The content of the blocks, n x block_bytes; valid until the next call."""
        halves = np.ascontiguousarray(ids).view(np.uint64)  # n x 2
        words = self._scratch[: len(ids)]
        np.add(self._steps[np.newaxis, :], halves[:, :1], out=words)
        np.bitwise_xor(words, halves[:, 1:], out=words)
        return words.view(np.uint8)[:, : self._block_bytes]

    def mismatches(self, ids: Bytes, got: Bytes) -> npt.NDArray[np.bool_]:
        """For each block, whether any byte of `got` (n x block_bytes) is wrong."""
        want = self.make(ids)
        if self._block_bytes % 8 == 0 and got.flags.c_contiguous:
            wrong_words = want.view(np.uint64) != got.view(np.uint64)
            return np.asarray(wrong_words.any(axis=1))
        return np.asarray((want != got).any(axis=1))
