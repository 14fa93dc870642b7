# SPDX-License-Identifier: Apache-2.0
"""The stores that are measured: Posix at a folder, filled as a figure wants it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import ucmstore

Bytes = npt.NDArray[np.uint8]
NAMESPACE = ucmstore.Namespace(model="bench", dtype="uint8")


def open_posix(
    root: Path,
    block_bytes: int,
    shards: int = 1,
    **posix: Any,
) -> ucmstore.Store:
    """A store of blocks of `shards` equal shards at `root`."""
    return ucmstore.open(
        "Posix",
        shard_size=block_bytes // shards,
        shards_per_block=shards,
        namespace=NAMESPACE,
        log_level="error",  # no limit, and that is meant
        stages={"posix": {"roots": [str(root)], **posix}},
    )


def namespace_folder(root: Path) -> Path:
    """Where the blocks of `open_posix` lie."""
    return root / NAMESPACE.label


def fill(store: ucmstore.Store, ids: Bytes, block_bytes: int, batch: int = 1024) -> None:
    """Dump a block for each id; its content does not matter."""
    source = np.zeros((min(batch, len(ids)), block_bytes), dtype=np.uint8)
    for at in range(0, len(ids), batch):
        part = ids[at : at + batch]
        store.dump(part, source=source[: len(part)]).wait()


def drain(store: ucmstore.Store) -> None:
    """Wait until a Cache has written everything back."""
    while True:
        figures = store.stats()["cache"]
        if figures["write_back_waiting_blocks"] + figures["write_backs_in_flight"] == 0:
            return
        time.sleep(0.001)
