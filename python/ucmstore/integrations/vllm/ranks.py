# SPDX-License-Identifier: Apache-2.0
"""The ids of all ranks: what the scheduler needs to look for blocks on behalf of the workers.

Each rank stores its own blocks under ids of its own (`Layout.tag`); a block of tokens is there if
every rank's is.
"""

from __future__ import annotations

from collections.abc import Sequence

from ucmstore.block_id import Ids, Layout, Namespace
from ucmstore.errors import OptionError
from ucmstore.integrations.vllm import stores
from ucmstore.integrations.vllm.metadata import Fingerprint
from ucmstore.integrations.vllm.options import Options


def tag_of(layout: Layout, rank: int, epoch: bytes) -> bytes:
    """What tells apart the ids of ranks and of epochs."""
    return layout.tag(tp=rank).encode() + (b" epoch " + epoch.hex().encode() if epoch else b"")


class Ranks:
    """Ids for every rank. Immutable."""

    def __init__(
        self, fingerprints: dict[int, Fingerprint], workers: int, options: Options
    ) -> None:
        first = fingerprints[0]
        for rank, each in fingerprints.items():
            if each.geometry != first.geometry or each.fields != first.fields:
                differing = {
                    name
                    for name in {*each.fields, *first.fields}
                    if each.fields.get(name) != first.fields.get(name)
                }
                raise OptionError(
                    f"rank {rank} keeps other bytes than rank 0 ({sorted(differing) or 'geometry'}"
                    "); ranks on machines of different kinds cannot share blocks"
                )
        self.block_tokens = first.geometry.block_tokens
        self.every = first.geometry.pages_per_block
        self._layout = Layout(tp=workers)
        self._workers = workers
        config = stores.config_of(options, first.geometry, first.fields)
        self._namespace: Namespace = config.namespace

    def lasts(self, hashes: Sequence[bytes], first: int, last: int) -> tuple[bytes, ...]:
        """The engine's hashes at the ends of blocks `first` to `last`, exclusive."""
        every = self.every
        return tuple(hashes[(first + 1) * every - 1 : last * every : every])

    def ids(self, lasts: tuple[bytes, ...], epoch: bytes) -> list[bytes]:
        """The ids of these blocks, rank after rank."""
        return [self.ids_of(rank, lasts, epoch).tobytes() for rank in range(self._workers)]

    def ids_of(self, rank: int, lasts: tuple[bytes, ...], epoch: bytes) -> Ids:
        """The ids that one rank has for them, as an array [n, 16]."""
        width = len(lasts[0]) if lasts else 32
        return self._namespace.derive(
            list(lasts), width=width, tag=tag_of(self._layout, rank, epoch)
        )
