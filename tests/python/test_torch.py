# SPDX-License-Identifier: Apache-2.0
"""Torch tensors as memory. The package itself never imports torch."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ucmstore
from api_support import BLOCK, LONG_S, SHARD, SHARDS, faulty, make_ids, make_rows, open_store

torch: Any = pytest.importorskip("torch")


@pytest.fixture
def store() -> Iterator[ucmstore.Store]:
    with open_store() as opened:
        yield opened


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int8", "float8_e4m3fn"])
def test_a_tensor_goes_in_and_comes_out(store: ucmstore.Store, dtype: str) -> None:
    kind = getattr(torch, dtype)
    bits = torch.randint(0, 256, (4, BLOCK), dtype=torch.uint8)
    source = bits.view(kind)
    ids = make_ids(4)
    store.dump(ids, source).wait()
    into = torch.zeros_like(bits).view(kind)
    store.load(ids, into).wait()
    assert torch.equal(into.view(torch.uint8), bits)


def test_layers_of_a_kv_cache(store: ucmstore.Store) -> None:
    """The way an engine uses it: pages of one big cache, layer by layer."""
    cache = torch.randn(SHARDS, 8, SHARD // 2, dtype=torch.float32).to(torch.bfloat16)
    ids = make_ids(3)
    pages = [5, 0, 7]
    for layer in range(SHARDS):
        store.dump(ids, [cache[layer, page] for page in pages], shard=layer).wait()
    other = torch.zeros_like(cache)
    tasks = [
        store.load(ids, [other[layer, page] for page in pages], shard=layer)
        for layer in range(SHARDS)
    ]
    for task in tasks:
        task.wait()
    assert torch.equal(other[:, pages], cache[:, pages])
    untouched = [page for page in range(8) if page not in pages]
    assert not other[:, untouched].any()


def test_a_parameter_and_a_pinned_looking_tensor(store: ucmstore.Store) -> None:
    source = torch.nn.Parameter(torch.randn(2, BLOCK // 4))
    ids = make_ids(2)
    store.dump(ids, source).wait()
    into = torch.empty(2, BLOCK // 4)
    store.load(ids, into).wait()
    assert torch.equal(into, source.detach())


def test_what_is_no_row_of_bytes_is_refused(store: ucmstore.Store) -> None:
    ids = make_ids(2)
    wide = torch.zeros(2, BLOCK * 2, dtype=torch.uint8)
    with pytest.raises(ucmstore.ArgumentError, match="into is not contiguous"):
        store.load(ids, wide[:, ::2])
    with pytest.raises(ucmstore.ArgumentError, match="source is not contiguous"):
        store.dump(ids, torch.zeros(1, BLOCK, dtype=torch.uint8).expand(2, -1))
    with pytest.raises(ucmstore.UnsupportedError, match="source is on device meta"):
        store.dump(ids, torch.empty(2, BLOCK, dtype=torch.uint8, device="meta"))
    with pytest.raises(ucmstore.ArgumentError, match=r"source has layout torch\.sparse_coo"):
        store.dump(ids, torch.zeros(2, BLOCK).to_sparse())
    assert store.lookup(ids).tolist() == [0, 0]


_NEW_STORAGE: dict[str, Callable[[Any], object]] = {
    "data": lambda tensor: setattr(tensor, "data", torch.empty(1, dtype=torch.uint8)),
    "set_": lambda tensor: tensor.set_(),
}


@pytest.mark.parametrize("way", _NEW_STORAGE)
@pytest.mark.parametrize("listed", [False, True])
def test_a_task_keeps_the_storage_of_a_tensor_that_got_another(way: str, listed: bool) -> None:
    with faulty() as (store, fault):
        ids, rows = make_ids(1), make_rows(1)
        rule = fault.arm("dump hold when=before")
        kept = rows.copy()
        alive = weakref.ref(kept)
        tensor = torch.from_numpy(kept)  # whose storage keeps the array
        del kept
        task = store.dump(ids, [tensor] if listed else tensor)
        fault.wait_held(rule, 1)
        _NEW_STORAGE[way](tensor)
        gc.collect()
        assert alive() is not None
        fault.disarm(rule)
        fault.release(rule)
        task.wait(LONG_S)
        assert alive() is None  # let go as soon as it was waited for
        into = torch.zeros(1, BLOCK, dtype=torch.uint8)
        store.load(ids, into).wait()
        assert (into.numpy() == rows).all()


def test_a_tensor_whose_storage_was_emptied_is_refused(store: ucmstore.Store) -> None:
    """Its address is 0, which in raw columns says that the piece is to be skipped."""
    ids = make_ids(1)
    store.dump(ids, make_rows(1)).wait()
    into = torch.zeros(BLOCK, dtype=torch.uint8)
    into.untyped_storage().resize_(0)
    with pytest.raises(ucmstore.ArgumentError, match="8192 bytes, but its storage holds 0"):
        store.load(ids, into)
