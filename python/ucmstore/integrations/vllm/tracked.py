# SPDX-License-Identifier: Apache-2.0
"""What the scheduler's side knows of one request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ucmstore.integrations.vllm.lookups import Found, Lookup
from ucmstore.integrations.vllm.metadata import Job


@dataclass
class Tracked:
    """One request, from its arrival until it has ended."""

    request: Any
    may_load: bool
    may_save: bool
    lookup: Lookup | None = None
    known: Found | None = None  # the last answer: what need not be saved
    local_tokens: int = 0  # computed or cached by the engine when it last asked for hits
    loading: Job | None = None
    saved: int = 0  # blocks of the store that are saved, on their way, or given up
    # Where its own computing began, since it was admitted; None: it was not, or was preempted.
    boundary: int | None = None
    recomputes_from: int | None = None  # first of the failed pages that it computes again

    def preempted(self) -> None:
        """Its pages are gone; it will be admitted anew."""
        self.boundary = None
        self.recomputes_from = None

    def settled_tokens(self) -> int:
        """Tokens whose KV is there and is known to be right; 0 if that cannot be told.

        Only once its own first step has been processed: what it found cached may have been on its
        way in that very step. Never the token that was sampled last, which no step has seen.
        """
        request = self.request
        settled = int(request.num_computed_tokens) - int(request.num_in_flight_tokens)
        if self.boundary is None or self.loading is not None or settled <= self.boundary:
            return 0
        return min(settled, int(request.num_tokens) - 1)

    def has(self, block: int) -> bool:
        """Whether the store was seen to have that block."""
        return self.known is not None and block < len(self.known) and bool(self.known[block])
