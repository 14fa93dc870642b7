#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/posix_v1: a root as format 1 of docs/format.md says, from that text alone.

Nothing here is shared with the C++ code, so the two hold each other. The files are committed and
never written again: later versions must read them. Run it only to add a new format beside them:

    python3 tests/data/make_posix_golden.py tests/data/posix_v1
"""

from __future__ import annotations

import hashlib
import struct
import sys
from pathlib import Path

PAGE = 4096
SHARD_SIZE = 5000
SHARDS = 3
STRIDE = 8192
CONTENT = b"raw"
PREFIX_DIGITS = 3
NAMESPACE_TEXT = "dtype: bfloat16\nmodel: golden\n"
FINGERPRINT = hashlib.sha256(NAMESPACE_TEXT.encode()).digest()
LABEL = f"golden-{FINGERPRINT.hex()[:16]}"
ROOT_ID = bytes(range(0x10, 0x20))
FULL_ID = bytes.fromhex("00112233445566778899aabbccddeeff")
SHORT_ID = bytes.fromhex("ffeeddccbbaa99887766554433221100")


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), bit by bit: slow and plain."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def shard_bytes(block: bytes, index: int, length: int) -> bytes:
    """What shard `index` holds; the tests know the same rule."""
    return bytes((block[0] + 31 * index + 7 * j + j // 256) % 256 for j in range(length))


def footer(block: bytes, shards: list[bytes]) -> bytes:
    """The footer of a block with these shards."""
    short = any(len(shard) < SHARD_SIZE for shard in shards)
    text = b"UCMBLOCK"
    text += struct.pack("<II", 1, PAGE)
    text += block + FINGERPRINT
    text += struct.pack("<QII", SHARD_SIZE, SHARDS, int(short))
    text += CONTENT.ljust(32, b"\0")
    for index, shard in enumerate(shards):
        text += struct.pack("<QII", index * STRIDE, len(shard), crc32c(shard))
    text = text.ljust(PAGE - 4, b"\0")
    return text + struct.pack("<I", crc32c(text))


def block_file(block: bytes, lengths: list[int]) -> bytes:
    """A whole block file."""
    shards = [shard_bytes(block, index, length) for index, length in enumerate(lengths)]
    text = b"".join(shard.ljust(STRIDE, b"\0") for shard in shards)
    if any(length < SHARD_SIZE for length in lengths):
        text += bytes(PAGE)
    return text + footer(block, shards)


def root_file() -> bytes:
    """UCMSTORE."""
    text = (
        "ucmstore 1\n"
        f"shard_size: {SHARD_SIZE}\n"
        f"shards_per_block: {SHARDS}\n"
        f"stride: {STRIDE}\n"
        f"content: {CONTENT.decode()}\n"
        f"prefix_digits: {PREFIX_DIGITS}\n"
        f"fingerprint: {FINGERPRINT.hex()}\n"
        f"root_id: {ROOT_ID.hex()}\n"
        "namespace:\n"
    )
    text += "".join(f"  {line}\n" for line in NAMESPACE_TEXT.splitlines())
    return f"{text}crc32c: {crc32c(text.encode()):08x}\n".encode()


def main() -> None:
    """Writes the root named on the command line."""
    folder = Path(sys.argv[1]) / LABEL
    folder.mkdir(parents=True)
    (folder / "UCMSTORE").write_bytes(root_file())
    (folder / "writers").mkdir()
    for block, lengths in ((FULL_ID, [5000] * 3), (SHORT_ID, [1, 4097, 5000])):
        path = folder / block.hex()[:PREFIX_DIGITS] / block.hex()
        path.parent.mkdir()
        path.write_bytes(block_file(block, lengths))
    sys.stdout.write(f"{folder}\n")


if __name__ == "__main__":
    main()
