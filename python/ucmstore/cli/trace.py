# SPDX-License-Identifier: Apache-2.0
"""A request trace: one JSON object a line, with `hash_ids`, one number for each block of a prompt.

Equal numbers mean equal prefixes in the traces that exist; the ids made here do not rely on it,
since each is chained over all numbers before it. Not synchronised; read-only once read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_NUMBER_BYTES = 16


class TraceError(ValueError):
    """The file is not a trace; the message names file, line and rule."""


@dataclass(frozen=True)
class Trace:
    """The requests of a trace, in order."""

    name: str
    fingerprint: str  # SHA-256 of the file: two traces never share blocks
    requests: list[list[int]]

    @property
    def references(self) -> int:
        """Blocks referenced by all requests together."""
        return sum(len(request) for request in self.requests)

    @property
    def longest(self) -> int:
        """Blocks of the longest request."""
        return max((len(request) for request in self.requests), default=0)


def _parse(line: bytes, where: str) -> list[int]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise TraceError(f"{where}: not JSON: {error}") from None
    numbers = record.get("hash_ids") if isinstance(record, dict) else None
    if not isinstance(numbers, list):
        raise TraceError(f"{where}: no list 'hash_ids' in the object")
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool) or abs(number) >= 1 << 120:
            raise TraceError(f"{where}: {number!r} in 'hash_ids' is not a whole number below 2^120")
    return numbers


def read_trace(path: Path, limit: int | None = None) -> Trace:
    """Read the first `limit` requests (None: all). Raises TraceError or OSError."""
    data = path.read_bytes()
    requests: list[list[int]] = []
    for number, line in enumerate(data.splitlines(), start=1):
        if limit is not None and len(requests) >= limit:
            break
        if line.strip():
            requests.append(_parse(line, f"{path}, line {number}"))
    if not requests:
        raise TraceError(f"{path}: holds no request")
    return Trace(path.name, hashlib.sha256(data).hexdigest(), requests)


def chain(numbers: Sequence[int]) -> bytes:
    """One SHA-256 digest for each number, covering it and all before it, joined."""
    digests: list[bytes] = []
    digest = b"\0" * 32
    for number in numbers:
        step = digest + number.to_bytes(_NUMBER_BYTES, "little", signed=True)
        digest = hashlib.sha256(step).digest()
        digests.append(digest)
    return b"".join(digests)
