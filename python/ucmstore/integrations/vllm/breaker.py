# SPDX-License-Identifier: Apache-2.0
"""A breaker: takes a store that fails again and again out of the way for a while."""

from __future__ import annotations

import time

from vllm.logger import init_logger

logger = init_logger("vllm.ucmstore")

_FAILURES = 3  # in a row, until it opens
_LEAST_S, _MOST_S = 5.0, 60.0


class Breaker:
    """Closed: all goes through. Open: nothing does, until its time is over; then one may try.

    Not synchronised: each belongs to one thread.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._failures = 0
        self._pause_s = _LEAST_S
        self._until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the store is to be left alone now."""
        return time.monotonic() < self._until

    def succeeded(self) -> None:
        """It works."""
        self._failures, self._pause_s = 0, _LEAST_S

    def failed(self, why: str) -> None:
        """It did not answer in time, or its medium failed. A block that is absent is no failure."""
        self._failures += 1
        if self._failures < _FAILURES or self.is_open:
            return
        logger.error(
            "ucmstore: %s failed %d times in a row (%s); requests are served without the store for "
            "%.0f s",
            self._what,
            self._failures,
            why,
            self._pause_s,
        )
        self._until = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _MOST_S)
