# SPDX-License-Identifier: Apache-2.0
"""ucmstore: a KV-cache store for LLM serving engines.

    import ucmstore

    with ucmstore.open(
        "Posix",
        shard_size="512KiB",
        shards_per_block=8,
        namespace=ucmstore.Namespace(model="…", dtype="bfloat16", tp=4),
        posix={"roots": ["/mnt/kv"]},
    ) as store:
        n = store.lookup_prefix(ids)
        task = store.load(ids[:n], into=tensors)
        task.wait(timeout=2.0)
        store.dump(new_ids, source=new_tensors).wait()

Everything here is what there is; `ucmstore._core`, the compiled core, is private.
"""

from __future__ import annotations

try:
    from ucmstore import _core
except ImportError as error:
    raise ImportError(
        f"ucmstore's compiled core cannot be loaded: {error}. "
        "If this is a source tree, install it first (pip install .); if it is installed, it was "
        "built for another Python or machine: install it again with this one."
    ) from error

from ucmstore.block_id import BlockHasher, ChainEnd, Layout, Media, Namespace
from ucmstore.config import StoreConfig
from ucmstore.errors import (
    AbortedError,
    ArgumentError,
    ArgumentTypeError,
    BusyError,
    ClosedError,
    Code,
    CorruptionError,
    DeadlineError,
    Error,
    InternalError,
    LimitError,
    NoSpaceError,
    NotFoundError,
    OptionError,
    StoreIOError,
    TaskCancelledError,
    TransferError,
    UnsupportedError,
)
from ucmstore.lease import Lease, Reservation, RingMemory
from ucmstore.opening import open  # noqa: A004
from ucmstore.store import Store
from ucmstore.task import Results, Task

__version__: str = _core.version

__all__ = [
    "AbortedError",
    "ArgumentError",
    "ArgumentTypeError",
    "BlockHasher",
    "BusyError",
    "ChainEnd",
    "ClosedError",
    "Code",
    "CorruptionError",
    "DeadlineError",
    "Error",
    "InternalError",
    "Layout",
    "Lease",
    "LimitError",
    "Media",
    "Namespace",
    "NoSpaceError",
    "NotFoundError",
    "OptionError",
    "Reservation",
    "Results",
    "RingMemory",
    "Store",
    "StoreConfig",
    "StoreIOError",
    "Task",
    "TaskCancelledError",
    "TransferError",
    "UnsupportedError",
    "__version__",
    "open",
]
