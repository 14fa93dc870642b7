# SPDX-License-Identifier: Apache-2.0
"""Pages: the engine's KV memory of one rank, and copies between it and blocks in host memory.

The engine's tensors are looked at as pages only: for each layer a base, a stride and a size. That
covers layers that lie apart, layers interleaved in each block, and pages with padding alike.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from ucmstore.errors import OptionError
from ucmstore.integrations.vllm.geometry import Geometry, derive
from ucmstore.integrations.vllm.metadata import SKIP


class HostPages:
    """Pages in host memory. Copies let other threads run; any thread may copy, if not both ways.

    Owns references to the tensors, so that the memory stays.
    """

    def __init__(
        self,
        tensors: Mapping[str, Any],
        layers: Sequence[str],
        pages: int,
        page_tokens: int,
        page_bytes: int,
    ) -> None:
        if not layers:
            raise OptionError("the model has no attention layers, so there is no KV cache to store")
        self._keep = [tensors[name] for name in layers]
        self._bases: list[int] = []
        self._strides: list[int] = []
        shapes: set[str] = set()
        for name in layers:
            base, stride, shape = _place(name, tensors[name], pages, page_bytes)
            if base in self._bases:
                continue  # two layers that share their KV
            self._bases.append(base)
            self._strides.append(stride)
            shapes.add(shape)
        if len(shapes) > 1:
            raise OptionError(f"the layers' pages differ, which is not supported: {sorted(shapes)}")
        self.shape = shapes.pop()
        self.pages = pages
        self.geometry: Geometry = derive(page_bytes, len(self._bases), page_tokens)

    def scatter(self, shards: Sequence[int], pages: Sequence[int]) -> None:
        """Copy a block, whose shards lie at these addresses, into its pages."""
        for place, page, size in self._pieces(shards, pages):
            ctypes.memmove(page, place, size)

    def gather(self, shards: Sequence[int], pages: Sequence[int]) -> None:
        """Copy pages into the block whose shards lie at these addresses."""
        for place, page, size in self._pieces(shards, pages):
            ctypes.memmove(place, page, size)

    def _pieces(self, shards: Sequence[int], pages: Sequence[int]) -> list[tuple[int, int, int]]:
        """(address in the block, address of the pages, bytes), runs of pages taken together."""
        geometry = self.geometry
        size = geometry.page_bytes
        per_shard = geometry.layers // geometry.shards_per_block
        runs = _runs(pages)
        pieces = []
        for layer, (base, stride) in enumerate(zip(self._bases, self._strides, strict=True)):
            shard, within = divmod(layer, per_shard)
            start = shards[shard] + within * geometry.piece_bytes
            for first, page, count in runs:
                if stride == size:
                    pieces.append((start + first * size, base + page * stride, count * size))
                else:
                    pieces.extend(
                        (start + (first + i) * size, base + (page + i) * stride, size)
                        for i in range(count)
                    )
        return pieces


def _runs(pages: Sequence[int]) -> list[tuple[int, int, int]]:
    """(position, first page, how many): pages that follow each other, without those to skip."""
    runs: list[tuple[int, int, int]] = []
    for position, page in enumerate(pages):
        if page == SKIP:
            continue
        if runs and runs[-1][0] + runs[-1][2] == position and runs[-1][1] + runs[-1][2] == page:
            first, start, count = runs[-1]
            runs[-1] = (first, start, count + 1)
        else:
            runs.append((position, page, 1))
    return runs


def _place(name: str, tensor: Any, pages: int, page_bytes: int) -> tuple[int, int, str]:
    """Where the pages of a layer lie: address of the first, stride, and what is inside in words."""
    if not hasattr(tensor, "untyped_storage"):
        raise OptionError(f"layer {name}: its KV cache is a {type(tensor).__name__}, not a tensor")
    if tensor.device.type != "cpu":
        raise OptionError(
            f"layer {name}: its KV cache lies on {tensor.device}; this release moves host memory "
            "only (a vLLM for CPU)"
        )
    if tensor.shape[0] % pages != 0:
        raise OptionError(
            f"layer {name}: a KV cache of shape {tuple(tensor.shape)} for {pages} blocks is of a "
            "layout that is not known here"
        )
    if tensor.shape[0] != pages:
        tensor = tensor.unflatten(0, (pages, -1))
    item = tensor.element_size()
    stride = tensor.stride(0) * item
    inner = tensor[0]
    spans = 1 + sum((n - 1) * s for n, s in zip(inner.shape, inner.stride(), strict=True))
    if stride < page_bytes or spans * item > page_bytes:
        raise OptionError(
            f"layer {name}: a block spans {spans * item} bytes at a stride of {stride}, more than "
            f"its page of {page_bytes}; only layouts where a page is one piece can be stored"
        )
    base = tensor.untyped_storage().data_ptr() + tensor.storage_offset() * item
    shape = f"{tensor.dtype} {tuple(inner.shape)} by {tuple(inner.stride())}"
    return base, stride, shape
