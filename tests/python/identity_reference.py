# SPDX-License-Identifier: Apache-2.0
"""Namespaces and block ids computed once more, from docs/identity.md and hashlib alone.

It shares no code with the store: where the two agree, the document is right too. Run as a program
it prints the golden vectors, tests/data/identity_vectors.json.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

DOMAIN, FINGERPRINT, TAG, WIDTH, EVERY, BLOCK_TOKENS = 1, 2, 3, 4, 5, 6
SALT, ADAPTER, PARENT, TOKENS, MEDIA = 7, 8, 9, 10, 11


@dataclass(frozen=True)
class Media:
    """An item that occupies the tokens offset ..< offset + length."""

    content_hash: bytes
    offset: int
    length: int


def field(number: int, value: bytes) -> bytes:
    """One field: its number (1 byte), its length (8 bytes), its bytes."""
    return struct.pack("<BQ", number, len(value)) + value


def number(value: int) -> bytes:
    """A number: 8 bytes, little-endian."""
    return struct.pack("<Q", value)


def escape(value: bytes) -> bytes:
    """Escape a namespace field's value, so that it stays on its line."""
    out = bytearray()
    for byte in value:
        if byte == ord("\\"):
            out += b"\\\\"
        elif byte == ord("\n"):
            out += b"\\n"
        elif byte < 0x20 or byte == 0x7F:
            out += b"\\x%02x" % byte
        else:
            out.append(byte)
    return bytes(out)


def namespace_text(fields: Mapping[str, bytes]) -> bytes:
    """Write a namespace's canonical text."""
    return b"".join(name.encode() + b": " + escape(fields[name]) + b"\n" for name in sorted(fields))


def fingerprint(fields: Mapping[str, bytes]) -> bytes:
    """Hash the canonical text."""
    return hashlib.sha256(namespace_text(fields)).digest()


def label(fields: Mapping[str, bytes]) -> str:
    """Name a namespace's folder."""
    model = re.sub(rb"[^A-Za-z0-9._-]", b"\0", fields.get("model", b""))
    # A run of foreign bytes becomes one '-', and none where a '-' precedes it.
    model = re.sub(rb"(-?)\0+", b"-", model)[-60:].lstrip(b".-")
    return (model or b"model").decode() + "-" + fingerprint(fields).hex()[:16]


def derive(
    fields: Mapping[str, bytes], hashes: bytes, width: int, every: int = 1, tag: bytes = b""
) -> list[bytes]:
    """Make block ids from an engine's own chained hashes."""
    context = hashlib.sha256(
        field(DOMAIN, b"ucmstore/derive/1")
        + field(FINGERPRINT, fingerprint(fields))
        + field(TAG, tag)
        + field(WIDTH, number(width))
        + field(EVERY, number(every))
    ).digest()
    each = [hashes[at : at + width] for at in range(0, len(hashes), width)]
    return [hashlib.sha256(context + last).digest()[:16] for last in each[every - 1 :: every]]


def chain(
    fields: Mapping[str, bytes],
    block_tokens: int,
    tokens: Sequence[int],
    *,
    salt: bytes | None = None,
    adapter: bytes | None = None,
    media: Iterable[Media] = (),
) -> list[bytes]:
    """Chain block ids over the tokens of a whole sequence."""
    request = (
        field(DOMAIN, b"ucmstore/chain/1")
        + field(FINGERPRINT, fingerprint(fields))
        + field(BLOCK_TOKENS, number(block_tokens))
    )
    if salt is not None:
        request += field(SALT, salt)
    if adapter is not None:
        request += field(ADAPTER, adapter)
    context = hashlib.sha256(request).digest()

    items = sorted(media, key=lambda item: (item.offset, item.length, item.content_hash))
    ids: list[bytes] = []
    for begin in range(0, len(tokens) - block_tokens + 1, block_tokens):
        end = begin + block_tokens
        block = context
        if ids:
            block += field(PARENT, ids[-1])
        block += field(TOKENS, b"".join(struct.pack("<q", token) for token in tokens[begin:end]))
        for item in items:
            if item.offset < end and item.offset + item.length > begin:
                place = number(item.offset) + number(item.length)
                block += field(MEDIA, place + item.content_hash)
        ids.append(hashlib.sha256(block).digest()[:16])
    return ids


# ---- the golden vectors --------------------------------------------------------------------------

NAMESPACES: list[dict[str, bytes]] = [
    {"model": b"tiny"},
    {"model": b"tiny", "dtype": b""},
    {
        "model": b"meta-llama/Llama-3.1-8B",
        "revision": b"main",
        "dtype": b"bfloat16",
        "tp": b"4",
        "block_tokens": b"16",
    },
    {"model": b"../../etc/passwd"},
    {"model": b"/srv/models/\xe6\xa8\xa1\xe5\x9e\x8b/" + b"very-long-name/" * 6 + b"v2"},
    {"model": b"a\\b\nc\td\x7fe", "note": b"dtype: float8\nmodel: x"},
    {"dtype": b"float16"},
]

CHAINS: list[tuple[int, int, list[int], bytes | None, bytes | None, list[Media]]] = [
    (0, 4, [], None, None, []),
    (0, 4, [1, 2, 3], None, None, []),
    (0, 4, list(range(1, 14)), None, None, []),
    (0, 4, list(range(1, 14)), b"", None, []),
    (0, 4, list(range(1, 14)), None, b"", []),
    (0, 4, list(range(1, 14)), b"Z", None, []),
    (0, 4, list(range(1, 14)), None, b"Z", []),
    (0, 4, list(range(1, 14)), b"Z", b"Z", []),
    (0, 1, [0, -1, 2**31, 2**32 - 1, 2**63 - 1, -(2**63)], None, None, []),
    (2, 16, [7919 * i % 128_256 for i in range(70)], b"tenant-7", b"sql-lora@3f2a", []),
    (0, 4, [5, 6, 7, 8] + [9] * 10 + [3, 2], None, None, [Media(b"\x01" * 32, 4, 10)]),
    (0, 4, [5, 6, 7, 8] + [9] * 10 + [3, 2], None, None, [Media(b"\x02" * 32, 4, 10)]),
    (0, 4, [9] * 16, None, None, [Media(b"b", 9, 1), Media(b"a", 2, 7), Media(b"a", 2, 3)]),
]


def pattern(size: int) -> bytes:
    """Bytes that look like nothing in particular."""
    return b"".join(hashlib.sha256(number(i)).digest() for i in range(size // 32 + 1))[:size]


DERIVES: list[tuple[int, bytes, int, int, bytes]] = [
    (0, b"", 32, 1, b""),
    (0, pattern(32 * 3), 32, 1, b""),
    (0, pattern(32 * 3), 32, 1, b"tp1 pp0 cp0"),
    (0, pattern(32 * 9), 32, 4, b""),
    (2, pattern(16 * 5), 16, 1, b"g0"),
    (2, pattern(8 * 5), 8, 2, b""),
    (2, pattern(200 * 2), 200, 1, b"\x00\xff"),
    (1, pattern(1 * 3), 1, 1, b""),
]


def vectors() -> dict[str, object]:
    """Compute every golden vector. Bytes are in hex."""

    def maybe(value: bytes | None) -> str | None:
        return None if value is None else value.hex()

    return {
        "namespaces": [
            {
                "fields": {name: value.hex() for name, value in fields.items()},
                "text": namespace_text(fields).hex(),
                "fingerprint": fingerprint(fields).hex(),
                "label": label(fields),
            }
            for fields in NAMESPACES
        ],
        "derives": [
            {
                "namespace": at,
                "hashes": hashes.hex(),
                "width": width,
                "every": every,
                "tag": tag.hex(),
                "ids": [i.hex() for i in derive(NAMESPACES[at], hashes, width, every, tag)],
            }
            for at, hashes, width, every, tag in DERIVES
        ],
        "chains": [
            {
                "namespace": at,
                "block_tokens": block_tokens,
                "tokens": tokens,
                "salt": maybe(salt),
                "adapter": maybe(adapter),
                "media": [
                    {
                        "content_hash": item.content_hash.hex(),
                        "offset": item.offset,
                        "length": item.length,
                    }
                    for item in media
                ],
                "ids": [
                    i.hex()
                    for i in chain(
                        NAMESPACES[at],
                        block_tokens,
                        tokens,
                        salt=salt,
                        adapter=adapter,
                        media=media,
                    )
                ],
            }
            for at, block_tokens, tokens, salt, adapter, media in CHAINS
        ],
    }


def vectors_text() -> str:
    """Write the golden vectors as the file holds them."""
    return json.dumps(vectors(), indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(vectors_text())
