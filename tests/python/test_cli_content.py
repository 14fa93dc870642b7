# SPDX-License-Identifier: Apache-2.0
"""The content that replay and demo check: right bytes pass, and any wrong byte is found."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ucmstore.cli.content import Pattern


def ids(count: int, seed: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, (count, 16), dtype=np.uint8)


@given(
    block_bytes=st.integers(1, 5000),
    count=st.integers(1, 5),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_any_wrong_byte_is_found(
    block_bytes: int, count: int, seed: int, data: st.DataObject
) -> None:
    pattern = Pattern(block_bytes, count)
    blocks = ids(count, seed)
    good = np.ascontiguousarray(pattern.make(blocks))
    assert not pattern.mismatches(blocks, good).any()
    row = data.draw(st.integers(0, count - 1))
    column = data.draw(st.integers(0, block_bytes - 1))
    bad = good.copy()
    bad[row, column] ^= data.draw(st.integers(1, 255))
    assert np.flatnonzero(pattern.mismatches(blocks, bad)).tolist() == [row]


def test_bytes_of_another_block_or_another_place_are_found() -> None:
    pattern = Pattern(4096, 2)
    blocks = ids(2, 5)
    good = pattern.make(blocks).copy()
    assert pattern.mismatches(blocks, good[::-1].copy()).all()
    moved = np.roll(good, 512, axis=1)
    assert pattern.mismatches(blocks, moved).all()
    torn = good.copy()
    torn[0, 2048:] = good[1, 2048:]
    assert pattern.mismatches(blocks, torn).tolist() == [True, False]


def test_content_is_the_same_in_every_process() -> None:
    one = Pattern(64, 1).make(ids(1, 1)).copy()
    two = Pattern(64, 3).make(ids(1, 1)).copy()
    assert np.array_equal(one, two)
