# SPDX-License-Identifier: Apache-2.0
"""The golden vectors are what the reference computes; the C++ tests read the same file."""

from __future__ import annotations

from pathlib import Path

import identity_reference

VECTORS = Path(__file__).parents[1] / "data" / "identity_vectors.json"


def test_golden_vectors_are_what_the_reference_computes() -> None:
    assert VECTORS.read_text() == identity_reference.vectors_text()


def test_empty_differs_from_absent_and_a_salt_from_an_adapter() -> None:
    fields = {"model": b"tiny"}
    variants = [
        identity_reference.chain(fields, 4, range(8), salt=salt, adapter=adapter)
        for salt in (None, b"", b"Z")
        for adapter in (None, b"", b"Z")
    ]
    ids = [each for ids in variants for each in ids]
    assert len(set(ids)) == len(ids) == 18
