# SPDX-License-Identifier: Apache-2.0
"""Pages of every layout go into blocks and come back, and nothing beside them is touched."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

import ucmstore
from ucmstore.integrations.vllm.metadata import SKIP
from ucmstore.integrations.vllm.pages import HostPages

LAYERS = [f"layer.{i}" for i in range(6)]
PAGES, TOKENS, HEADS, WIDTH = 40, 32, 2, 64
PAGE_BYTES = HEADS * TOKENS * WIDTH * 2


def apart() -> dict[str, torch.Tensor]:
    """Each layer a tensor of its own."""
    return {name: torch.zeros(PAGES, HEADS, TOKENS, WIDTH, dtype=torch.bfloat16) for name in LAYERS}


def together() -> dict[str, torch.Tensor]:
    """The layers of each block lie one after the other."""
    memory = torch.zeros(PAGES, len(LAYERS), HEADS, TOKENS, WIDTH, dtype=torch.bfloat16)
    return {name: memory[:, i] for i, name in enumerate(LAYERS)}


def split() -> dict[str, torch.Tensor]:
    """The kernel's blocks are half of the engine's."""
    return {
        name: torch.zeros(2 * PAGES, HEADS, TOKENS // 2, WIDTH, dtype=torch.bfloat16)
        for name in LAYERS
    }


def make(tensors: dict[str, Any], layers: list[str] = LAYERS) -> HostPages:
    return HostPages(tensors, layers, PAGES, TOKENS, PAGE_BYTES)


def page_of(tensor: torch.Tensor, page: int) -> torch.Tensor:
    return tensor.unflatten(0, (PAGES, -1))[page]


@pytest.mark.parametrize("layout", [apart, together, split])
def test_pages_come_back(layout: Any) -> None:
    source, target = layout(), layout()
    random_bytes = np.random.default_rng(3)
    for tensor in source.values():
        tensor.copy_(torch.from_numpy(random_bytes.standard_normal(tuple(tensor.shape))))
    geometry = make(source).geometry
    every = geometry.pages_per_block
    assert every == 8
    block = np.zeros(geometry.block_bytes, np.uint8)
    shards = [
        block.ctypes.data + i * geometry.shard_bytes for i in range(geometry.shards_per_block)
    ]
    table = random.Random(4).sample(range(PAGES), every)
    table[3:6] = sorted(table[3:6])
    wanted = [page if i not in (0, 5) else SKIP for i, page in enumerate(table)]
    make(source).gather(shards, table)
    make(target).scatter(shards, wanted)
    for name in LAYERS:
        for page in range(PAGES):
            came = page_of(target[name], page)
            expected = page_of(source[name], page) if page in wanted else torch.zeros_like(came)
            assert torch.equal(came, expected)


def test_layers_that_share_their_kv_are_stored_once() -> None:
    tensors = apart()
    tensors["layer.5"] = tensors["layer.4"]
    assert make(tensors).geometry.layers == 5


def test_l01_what_is_no_page_is_refused() -> None:
    tensors: dict[str, Any] = apart()
    with pytest.raises(ucmstore.OptionError, match="no attention layers"):
        make(tensors, [])
    tensors["layer.1"] = (tensors["layer.1"], tensors["layer.2"])
    with pytest.raises(ucmstore.OptionError, match="not a tensor"):
        make(tensors)
    keys_first = {name: torch.zeros(2, PAGES, HEADS, TOKENS, WIDTH // 2) for name in LAYERS}
    with pytest.raises(ucmstore.OptionError, match="layout that is not known"):
        make(keys_first)
    apart_halves = {
        name: torch.zeros(2, PAGES, HEADS, TOKENS, WIDTH // 2, dtype=torch.bfloat16).transpose(0, 1)
        for name in LAYERS
    }
    with pytest.raises(ucmstore.OptionError, match="one piece"):
        make(apart_halves)
    on_device = {name: tensor.to("meta") for name, tensor in apart().items()}
    with pytest.raises(ucmstore.OptionError, match="host memory only"):
        make(on_device)
