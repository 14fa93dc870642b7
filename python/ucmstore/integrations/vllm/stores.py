# SPDX-License-Identifier: Apache-2.0
"""Opening stores: in bounded time, and once in a process.

Scheduler and worker may share a process; they then share one store, so that what one has dumped the
other finds even where the pipeline's memory is the process's own. A store that cannot be opened
for its options refuses the engine; one whose medium fails leaves the engine serving without it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from vllm.logger import init_logger

import ucmstore
from ucmstore.config import StoreConfig, make_config
from ucmstore.errors import Error, OptionError
from ucmstore.integrations.vllm.geometry import Geometry
from ucmstore.integrations.vllm.options import Options

logger = init_logger("vllm.ucmstore")

_OPEN_S = 20.0


@dataclass
class _Open:
    config: StoreConfig
    store: ucmstore.Store
    users: int


_lock = threading.Lock()
_open: list[_Open] = []


def config_of(options: Options, geometry: Geometry, fields: dict[str, str]) -> StoreConfig:
    """What the store of an engine is opened with."""
    namespace = ucmstore.Namespace.from_fields({**fields, **options.namespace})
    return make_config(
        options.spec,
        geometry.shard_bytes,
        geometry.shards_per_block,
        namespace,
        dict(options.open_stages()),
    )


def acquire(config: StoreConfig) -> ucmstore.Store | None:
    """The store, to be given back; None, with a loud line, if its medium fails."""
    with _lock:
        for each in _open:
            if each.config == config and not each.store.closed:
                each.users += 1
                return each.store
    outcome: list[ucmstore.Store | Error] = []
    opener = threading.Thread(target=_try_open, args=(config, outcome), daemon=True)
    opener.start()
    opener.join(_OPEN_S)
    result = outcome[0] if outcome else None
    if isinstance(result, OptionError):
        raise result
    if not isinstance(result, ucmstore.Store):
        why = result if outcome else f"it did not open within {_OPEN_S:.0f} s"
        logger.error("ucmstore: NOTHING IS CACHED: %s: %s", config.spec, why)
        return None
    with _lock:
        _open.append(_Open(config, result, 1))
    return result


def release(store: ucmstore.Store) -> None:
    """Give it back; the last one closes it."""
    with _lock:
        for i, each in enumerate(_open):
            if each.store is store:
                each.users -= 1
                if each.users > 0:
                    return
                del _open[i]
                break
        else:
            return
    try:
        store.close()
    except Error as error:
        logger.warning("ucmstore: closing: %s", error)


def _try_open(config: StoreConfig, outcome: list[ucmstore.Store | Error]) -> None:
    try:
        outcome.append(ucmstore.open(config=config))
    except Error as error:
        outcome.append(error)
