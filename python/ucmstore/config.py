# SPDX-License-Identifier: Apache-2.0
"""StoreConfig: all that `open` was told, as one value that can be kept, sent and reopened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ucmstore import _core
from ucmstore.block_id import Namespace, index_of
from ucmstore.errors import ArgumentError, ArgumentTypeError, OptionError
from ucmstore.options import StageOptions

MOST_SHARD_BYTES = (1 << 32) - 1
MOST_SHARDS = 65536


@dataclass(frozen=True)
class StoreConfig:
    """What a store is opened with. Picklable: send it to a worker process and `open` it there.

    `options` holds the options of each stage under its name in lower case, and those of the store
    as a whole under "store".
    """

    spec: str
    shard_size: int
    shards_per_block: int
    namespace: Namespace
    options: dict[str, dict[str, Any]] = field(default_factory=dict, hash=False)

    @property
    def block_size(self) -> int:
        """The bytes of a whole block."""
        return self.shard_size * self.shards_per_block


def size_in_bytes(size: int | str, name: str) -> int:
    """4096, "4096B", "512KiB": as the options of type size are written."""
    if not isinstance(size, str):
        return index_of(size, name, 1, MOST_SHARD_BYTES)
    if size.strip().isdigit():
        raise OptionError(f"{name} = {size!r} has no unit; give {size.strip()}B, or a number")
    try:
        number = _core.parse_size(size)
    except ArgumentError as error:
        raise OptionError(f"{name} = {size!r}: {error}") from None
    return index_of(number, name, 1, MOST_SHARD_BYTES)


def _plain(value: object) -> object:
    """A value that pickles and does not change under us."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def gather_options(given: Mapping[str, object], spec: str) -> dict[str, dict[str, Any]]:
    """Keywords of `open` by stage: a mapping is a stage's options, all else the store's own."""
    stages = {stage.strip().lower() for stage in spec.split("|")} | StageOptions.__optional_keys__
    options: dict[str, dict[str, Any]] = {}
    for key, value in given.items():
        if value is None:
            continue
        if not isinstance(value, Mapping):
            if key in stages:
                raise OptionError(
                    f"{key} = {value!r}: the options of a stage are a mapping; give "
                    f"{key}={{'option': value, …}}"
                )
            options.setdefault("store", {})[key] = _plain(value)
            continue
        stage = options.setdefault(key, {})
        for name, option in value.items():
            if not isinstance(name, str):
                raise OptionError(f"{key}: option {name!r} is no name; give texts as keys")
            stage[name] = _plain(option)
    return options


def make_config(
    spec: str,
    shard_size: int | str,
    shards_per_block: int,
    namespace: Namespace,
    given: Mapping[str, object],
) -> StoreConfig:
    """What `open` was told, checked as far as it can be without the stages."""
    if not isinstance(spec, str):
        raise ArgumentTypeError(
            f"spec is a {type(spec).__name__!r}; give a text such as 'Cache|Posix'"
        )
    if not isinstance(namespace, Namespace):
        raise ArgumentTypeError(
            f"namespace is a {type(namespace).__name__!r}; give a ucmstore.Namespace(model=…, …)"
        )
    return StoreConfig(
        spec=spec,
        shard_size=size_in_bytes(shard_size, "shard_size"),
        shards_per_block=index_of(shards_per_block, "shards_per_block", 1, MOST_SHARDS),
        namespace=namespace,
        options=gather_options(given, spec),
    )
