# SPDX-License-Identifier: Apache-2.0
"""The worker's side in the scheduler's own process, if it is there. Written once, at start."""

from __future__ import annotations

import weakref
from typing import Any

_workers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def announce(store: object, worker: Any) -> None:
    """A worker that uses this store lives in this process."""
    _workers[id(store)] = worker


def forget(store: object) -> None:
    """It has given up this store."""
    _workers.pop(id(store), None)


def local_worker(store: object) -> Any:
    """The one that does, or None."""
    return _workers.get(id(store))
