# SPDX-License-Identifier: Apache-2.0
"""Ids chained over tokens, against the reference; kind H of the faults, its second half."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import identity_reference as reference
import ucmstore
from test_identity import FIELDS, listed, raw
from ucmstore import BlockHasher, ChainEnd, Media, Namespace

TOKENS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=60)
TRAITS = st.none() | st.binary(max_size=8)


@st.composite
def items(draw: st.DrawFn) -> list[Media]:
    return draw(
        st.lists(
            st.builds(
                Media, st.binary(min_size=1, max_size=8), st.integers(0, 70), st.integers(1, 30)
            ),
            max_size=4,
        )
    )


@given(
    tokens=TOKENS, block=st.integers(1, 9), salt=TRAITS, adapter=TRAITS, media=items(),
    fields=FIELDS, split=st.integers(0, 60),
)  # fmt: skip
def test_a_chain_is_what_the_reference_says(
    tokens: list[int],
    block: int,
    salt: bytes | None,
    adapter: bytes | None,
    media: list[Media],
    fields: dict[str, str],
    split: int,
) -> None:
    fields.pop("block_tokens", None)
    namespace = Namespace(model="m", **fields)
    hasher = BlockHasher(namespace, block, salt=salt, adapter=adapter)
    expected = reference.chain(
        raw(namespace), block, tokens, salt=salt, adapter=adapter,
        media=[reference.Media(*item) for item in media],
    )  # fmt: skip
    ids = listed(hasher.hash(tokens, media=media))
    assert ids == expected
    assert listed(hasher.hash(np.array(tokens, np.int64), media=media[::-1])) == expected
    # Going on from any block gives what the whole would have given.
    done = min(split // block, len(ids))
    after = ChainEnd(done, ids[done - 1]) if done else None
    rest = listed(hasher.hash(tokens[done * block :], media=media, after=after))
    assert ids[:done] + rest == expected


@given(tokens=TOKENS.filter(lambda tokens: len(tokens) >= 4), at=st.integers(0, 59))
def test_h09_a_token_changes_its_block_and_all_after_it(tokens: list[int], at: int) -> None:
    at %= len(tokens) // 4 * 4
    hasher = BlockHasher(Namespace(model="m"), 4)
    ids = listed(hasher.hash(tokens))
    changed = listed(hasher.hash([*tokens[:at], tokens[at] ^ 1, *tokens[at + 1 :]]))
    assert [one == two for one, two in zip(ids, changed, strict=True)] == [
        i < at // 4 for i in range(len(ids))
    ]


def test_h07_an_image_changes_the_blocks_it_lies_in_and_those_after() -> None:
    hasher = BlockHasher(Namespace(model="m"), 4)
    tokens = list(range(20))
    one = listed(hasher.hash(tokens, media=[Media(b"cat", 5, 6)]))
    two = listed(hasher.hash(tokens, media=[Media(b"dog", 5, 6)]))
    moved = listed(hasher.hash(tokens, media=[Media(b"cat", 6, 6)]))
    for other in (two, moved):
        assert [a == b for a, b in zip(one, other, strict=True)] == [True] + [False] * 4


@given(traits=st.lists(st.tuples(TRAITS, TRAITS), min_size=2, max_size=6, unique=True))
def test_q04_salts_and_adapters_never_share(
    traits: list[tuple[bytes | None, bytes | None]],
) -> None:
    ids = [
        one
        for salt, adapter in traits
        for one in listed(
            BlockHasher(Namespace(model="m"), 2, salt=salt, adapter=adapter).hash([1, 2, 3, 4])
        )
    ]
    assert len(set(ids)) == len(ids) == 2 * len(traits)


def test_a_text_is_its_utf8() -> None:
    namespace = Namespace(model="m")
    text = listed(BlockHasher(namespace, 2, salt="zoë", adapter="z").hash([1, 2]))
    assert text == listed(BlockHasher(namespace, 2, salt="zoë".encode(), adapter=b"z").hash([1, 2]))


def test_the_length_of_a_block_comes_from_the_namespace() -> None:
    assert BlockHasher(Namespace(model="m", block_tokens=16)).block_tokens == 16
    with pytest.raises(ucmstore.ArgumentError, match="block_tokens"):
        BlockHasher(Namespace(model="m"))
    with pytest.raises(ucmstore.ArgumentError, match="block_tokens"):
        BlockHasher(Namespace(model="m", block_tokens=16), 12)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tokens": [1.5]}, "float64"),
        ({"tokens": [[1, 2], [3, 4]]}, "2 dimensions"),
        ({"tokens": "12"}, "0 dimensions"),
        ({"tokens": np.array([2**63], np.uint64)}, "63 bits"),
        ({"tokens": [True, False]}, "bool"),
        ({"tokens": [1, 2], "media": [Media(b"", 0, 1)]}, "media|content"),
        ({"tokens": [1, 2], "media": [Media(b"x", -1, 1)]}, r"media\[0\].offset"),
        ({"tokens": [1, 2], "media": [Media(b"x", 0, 0)]}, "media|length"),
        ({"tokens": [1, 2], "after": ChainEnd(1, b"short")}, "5 bytes"),
        ({"tokens": [1, 2], "after": ChainEnd(-1, b"")}, "after.blocks"),
    ],
)
def test_wrong_tokens_are_refused(arguments: dict[str, Any], words: str) -> None:
    hasher = BlockHasher(Namespace(model="m"), 2)
    with pytest.raises(ucmstore.ArgumentError, match=words):
        hasher.hash(arguments.pop("tokens"), **arguments)


def test_token_arrays_of_any_integer_type() -> None:
    hasher = BlockHasher(Namespace(model="m"), 2)
    expected = listed(hasher.hash([1, 2, 3, 4]))
    for kind in (np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64):
        assert listed(hasher.hash(np.array([1, 2, 3, 4], kind))) == expected
    assert listed(hasher.hash(np.array([1, 9, 2, 9, 3, 9, 4, 9])[::2])) == expected
