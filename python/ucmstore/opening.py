# SPDX-License-Identifier: Apache-2.0
"""`open`: from a spec and its options to a Store."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any, Unpack, overload

from ucmstore.block_id import Namespace
from ucmstore.config import StoreConfig, make_config
from ucmstore.errors import ArgumentError, ArgumentTypeError
from ucmstore.options import OpenOptions
from ucmstore.store import Store


@overload
def open(  # noqa: A001
    spec: str,
    *,
    shard_size: int | str,
    shards_per_block: int = 1,
    namespace: Namespace,
    stages: Mapping[str, Mapping[str, object]] | None = None,
    **options: Unpack[OpenOptions],
) -> Store: ...
@overload
def open(*, config: StoreConfig) -> Store: ...  # noqa: A001


def open(  # noqa: A001
    spec: str | None = None,
    *,
    config: StoreConfig | None = None,
    shard_size: int | str | None = None,
    shards_per_block: int = 1,
    namespace: Namespace | None = None,
    stages: Mapping[str, Mapping[str, object]] | None = None,
    **options: Any,
) -> Store:
    """Open the store that `spec` describes: stages with "|" between them, topmost first.

    A block is `shards_per_block` shards of `shard_size` bytes (or "512KiB"). The keywords named
    like a stage (posix={…}) are its options; `stages` takes those of stages that this package does
    not know. The others (workers=…) are the store's own. `ucmstore options` lists them all.

    `config`, another store's `Store.config`, opens the same once more, in any process.

    Raises `OptionError` if it cannot be opened like this, other `Error`s if the medium fails.
    """
    if config is not None:
        if spec is not None or shard_size is not None or namespace is not None or options or stages:
            raise ArgumentError("config says it all; give nothing beside it")
        if not isinstance(config, StoreConfig):
            raise ArgumentTypeError(f"config is a {type(config).__name__!r}; give a StoreConfig")
        return Store(config)
    if spec is None or shard_size is None or namespace is None:
        missing = {"spec": spec, "shard_size": shard_size, "namespace": namespace}
        names = ", ".join(name for name, value in missing.items() if value is None)
        raise ArgumentTypeError(f"{names} missing: open needs a spec, shard_size and namespace")
    if not isinstance(stages, (Mapping, NoneType)):
        raise ArgumentTypeError(
            f"stages is a {type(stages).__name__!r}; give a mapping of each stage's options"
        )
    given = {**options, **(stages or {})}
    return Store(make_config(spec, shard_size, shards_per_block, namespace, given))
