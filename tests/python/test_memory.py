# SPDX-License-Identifier: Apache-2.0
"""Memory in every form that a load or dump takes, and in those it refuses, each with a sentence."""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ucmstore
from api_support import BLOCK, LONG_S, SHARD, faulty, make_ids, make_rows, open_store


@pytest.fixture
def store() -> Iterator[ucmstore.Store]:
    with open_store() as opened:
        yield opened


class Dlpack:
    """Speaks DLPack and nothing else; versioned or not."""

    def __init__(self, owner: np.ndarray[Any, Any], versioned: bool) -> None:
        self._owner = owner
        self._versioned = versioned

    def __dlpack__(self, **options: Any) -> Any:
        if not self._versioned:
            if options:
                raise TypeError("max_version")
            return self._owner.__dlpack__()
        return self._owner.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class Tensor:
    """Looks like a torch tensor to those who do not import torch."""

    def __init__(self, owner: np.ndarray[Any, Any], device: str = "cpu") -> None:
        self._owner = owner
        self.device = device
        self.shape = owner.shape

    def data_ptr(self) -> int:
        return self._owner.ctypes.data

    def element_size(self) -> int:
        return self._owner.itemsize

    def numel(self) -> int:
        return self._owner.size

    def is_contiguous(self) -> bool:
        return self._owner.flags.c_contiguous


def anonymous(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size)


ROWS = 3
SINGLE: dict[str, Callable[[], Any]] = {
    "uint8": lambda: np.zeros((ROWS, BLOCK), np.uint8),
    "flat": lambda: np.zeros(ROWS * BLOCK, np.uint8),
    "float16": lambda: np.zeros((ROWS, 2, BLOCK // 4), np.float16),
    "complex": lambda: np.zeros((ROWS, BLOCK // 16), np.complex128),
    "datetime": lambda: np.zeros((ROWS, BLOCK // 8), "datetime64[s]"),
    "structured": lambda: (
        np.zeros((ROWS, BLOCK // 6), [("a", "<u2"), ("b", "<f4")])
        if BLOCK % 6 == 0
        else np.zeros((ROWS, BLOCK // 8), [("a", "<u4"), ("b", "<f4")])
    ),
    "big-endian": lambda: np.zeros((ROWS, BLOCK // 4), ">i4"),
    "bytearray": lambda: bytearray(ROWS * BLOCK),
    "memoryview": lambda: memoryview(bytearray(ROWS * BLOCK)),
    "array": lambda: array.array("d", bytes(ROWS * BLOCK)),
    "mmap": lambda: anonymous(ROWS * BLOCK),
    "ctypes": lambda: (ctypes.c_char * (ROWS * BLOCK))(),
    "dlpack": lambda: Dlpack(np.zeros((ROWS, BLOCK), np.uint8), versioned=True),
    "old dlpack": lambda: Dlpack(np.zeros((ROWS, BLOCK), np.uint8), versioned=False),
    "tensor": lambda: Tensor(np.zeros((ROWS, BLOCK), np.uint8)),
}


def content(memory: Any) -> bytes:
    if isinstance(memory, (Dlpack, Tensor)):
        memory = memory._owner
    if isinstance(memory, np.ndarray):
        return memory.tobytes()
    return bytes(memory)


@pytest.mark.parametrize("name", SINGLE)
def test_one_object_holds_all_rows(store: ucmstore.Store, name: str) -> None:
    ids, rows = make_ids(ROWS), make_rows(ROWS)
    store.dump(ids, rows).wait()
    into = SINGLE[name]()
    store.load(ids, into).wait()
    assert content(into) == rows.tobytes()
    others = make_ids(ROWS, seed=1)
    store.dump(others, into).wait()
    back = np.zeros_like(rows)
    store.load(others, back).wait()
    assert (back == rows).all()


def test_a_list_has_one_object_for_each_id(store: ucmstore.Store) -> None:
    rows = make_rows(4)
    ids = make_ids(4)
    parts = [rows[0], bytes(rows[1]), memoryview(rows[2].tobytes()), Tensor(rows[3])]
    store.dump(ids, parts).wait()
    into: list[Any] = [
        np.zeros(BLOCK, np.uint8),
        bytearray(BLOCK),
        Tensor(np.zeros(BLOCK, np.uint8)),
        Dlpack(np.zeros((2, SHARD), np.uint8), versioned=True),
    ]
    store.load(ids, into).wait()
    assert b"".join(map(content, into)) == rows.tobytes()


def test_one_block_may_have_any_shape(store: ucmstore.Store) -> None:
    rows = make_rows(1)
    (one,) = make_ids(1)
    store.dump(one, rows.reshape(2, 4, -1)).wait()
    into = np.zeros((8, BLOCK // 8), np.uint8)
    store.load(one, into).wait()
    assert into.tobytes() == rows.tobytes()


def test_memory_cannot_be_resized_while_it_is_used(store: ucmstore.Store) -> None:
    rows = bytearray(BLOCK)
    task = store.dump(make_ids(1), rows)
    task.wait()
    rows += b"now it can"


def read_only(size: int) -> Any:
    buffer = np.zeros(size, np.uint8)
    buffer.flags.writeable = False
    return buffer


REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: np.zeros((2, BLOCK * 2), np.uint8)[:, ::2], ucmstore.ArgumentError, "not contiguous"),
    (lambda: np.zeros((BLOCK, 2), np.uint8).T, ucmstore.ArgumentError, "not contiguous"),
    (lambda: np.zeros((4, BLOCK // 2), np.uint8), ucmstore.ArgumentError, "4 rows .* for 2 ids"),
    (lambda: np.zeros((2, BLOCK + 1), np.uint8), ucmstore.ArgumentError,
     f"{2 * BLOCK + 2} bytes for 2 ids.*needs {BLOCK}.*{2 * BLOCK}"),
    (lambda: np.zeros((2, SHARD), np.uint8), ucmstore.ArgumentError, f"{2 * SHARD} bytes"),
    (lambda: [bytearray(BLOCK)], ucmstore.ArgumentError, "1 items for 2 ids"),
    (lambda: [bytearray(BLOCK), bytearray(BLOCK - 1)], ucmstore.ArgumentError,
     rf"\[1\] has {BLOCK - 1} bytes; a block needs {BLOCK}"),
    (lambda: [bytearray(BLOCK), None], ucmstore.ArgumentTypeError, r"\[1\] is None"),
    (lambda: [bytearray(BLOCK), -1], ucmstore.ArgumentError, r"\[1\] = -1 is no address"),
    (lambda: [0, 0], ucmstore.ArgumentError, r"\[0\] = 0 is no address"),
    (lambda: [True, False], ucmstore.ArgumentTypeError, r"\[0\] is a 'bool'"),
    (lambda: None, ucmstore.ArgumentTypeError, "is None"),
    (lambda: 4096, ucmstore.ArgumentTypeError, "is a 'int'"),
    (lambda: "x" * 2 * BLOCK, ucmstore.ArgumentTypeError, "is a 'str'"),
    (lambda: {"a": 1}, ucmstore.ArgumentTypeError, "is a 'dict'"),
    (lambda: np.full(2 * BLOCK // 8, None, object), ucmstore.ArgumentError, "Python objects"),
    (lambda: Tensor(np.zeros((2, BLOCK), np.uint8), "cuda:0"), ucmstore.UnsupportedError,
     "is on device cuda:0; only host memory"),
    (lambda: Tensor(np.zeros((2, 2 * BLOCK), np.uint8)[:, ::2]), ucmstore.ArgumentError,
     "not contiguous"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "kind", "words"), REFUSED)
@pytest.mark.parametrize("verb", ["load", "dump"])
def test_what_cannot_be_is_refused_in_words(
    store: ucmstore.Store, verb: str, make: Callable[[], Any], kind: type[Exception], words: str
) -> None:
    ids = make_ids(2)
    name = "into" if verb == "load" else "source"
    with pytest.raises(kind, match=rf"^{name}.*{words}"):
        getattr(store, verb)(ids, make())
    assert store.lookup(ids).tolist() == [0, 0]
    store.dump(ids, make_rows(2)).wait()
    assert store.lookup(ids).tolist() == [1, 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: bytes(2 * BLOCK),
        lambda: memoryview(bytes(2 * BLOCK)),
        lambda: read_only(2 * BLOCK),
        lambda: Dlpack(read_only(2 * BLOCK), versioned=True),
    ],
)
def test_read_only_memory_is_no_destination(store: ucmstore.Store, make: Callable[[], Any]) -> None:
    ids, rows = make_ids(2), make_rows(2)
    store.dump(ids, rows).wait()
    with pytest.raises(ucmstore.ArgumentError, match=r"^into is read-only"):
        store.load(ids, make())
    store.dump(make_ids(2, seed=1), make()).wait()


def test_short_shards_name_their_limits(store: ucmstore.Store) -> None:
    ids = make_ids(2)
    with pytest.raises(ucmstore.ArgumentError, match=f"1 to {SHARD}"):
        store.dump(ids, np.zeros((2, SHARD + 1), np.uint8), shard=0)
    with pytest.raises(ucmstore.ArgumentError, match=f"1 to {SHARD}"):
        store.dump(ids, [b"x", b""], shard=0)
    with pytest.raises(ucmstore.ArgumentError, match="3 bytes for 2 ids"):
        store.dump(ids, b"xyz", shard=0)
    with pytest.raises(ucmstore.ArgumentError, match=f"a shard needs {SHARD}"):
        store.load(ids, np.zeros((2, SHARD - 1), np.uint8), shard=0)
    with pytest.raises(ucmstore.ArgumentError, match="for no ids"):
        store.dump([], b"x")


def test_a_tensor_on_a_device_is_never_touched(store: ucmstore.Store) -> None:
    class OnDevice:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

        def __dlpack__(self, **options: Any) -> Any:
            raise AssertionError("asked for its memory")

    with pytest.raises(ucmstore.UnsupportedError, match=r"source is on DLPack device \(2, 0\)"):
        store.dump(make_ids(1), OnDevice())

    class Cuda:
        __cuda_array_interface__ = ()

    with pytest.raises(ucmstore.UnsupportedError, match="CUDA"):
        store.dump(make_ids(1), Cuda())


def test_a_task_keeps_what_a_tensor_without_storage_exports() -> None:
    """A tensor of another framework: its memory may be replaced as well."""

    class Both(Tensor, Dlpack):
        def __init__(self, owner: np.ndarray[Any, Any]) -> None:
            Tensor.__init__(self, owner)
            Dlpack.__init__(self, owner, versioned=True)

    with faulty() as (store, fault):
        rule = fault.arm("dump hold when=before")
        kept = make_rows(1)
        alive = weakref.ref(kept)
        tensor = Both(kept)
        del kept
        task = store.dump(make_ids(1), tensor)
        fault.wait_held(rule, 1)
        tensor._owner = np.zeros(1, np.uint8)
        gc.collect()
        assert alive() is not None
        fault.disarm(rule)
        fault.release(rule)
        task.wait(LONG_S)
        assert alive() is None


def test_half_a_tensor_is_named(store: ucmstore.Store) -> None:
    class Half:
        def data_ptr(self) -> int:
            return 1

    with pytest.raises(ucmstore.ArgumentTypeError, match="source is a 'Half' whose memory"):
        store.dump(make_ids(1), Half())


RAW: list[tuple[Any, Any, str]] = [
    ([[1]], [SHARD], "for 2 ids and 1 sizes"),
    ([[1, 2], [3, 4]], [SHARD], "give"),
    ([1, 2, 3], [SHARD], "for 2 ids"),
    ([[1], [2]], [], "none given"),
    ([[1.5], [2.5]], [SHARD], "addresses are float64"),
    ([[1], [2]], [1.5], "sizes are float64"),
    ([["a"], ["b"]], [SHARD], "addresses"),
    ([[1], [1 << 65]], [SHARD], "addresses"),
    ([[1], [2]], [-1], "negative"),
    ([[1], [-2]], [SHARD], "row 1: piece 0 has no address"),
    ([[1], [2]], [SHARD + 1], str(SHARD + 1)),
]


@pytest.mark.parametrize(("addresses", "sizes", "words"), RAW)
def test_raw_columns_that_do_not_fit_are_refused(
    store: ucmstore.Store, addresses: Any, sizes: Any, words: str
) -> None:
    with pytest.raises(ucmstore.ArgumentError, match=words):
        store.load_raw(make_ids(2), 0, addresses, sizes)


def test_raw_blocks_must_be_whole(store: ucmstore.Store) -> None:
    with pytest.raises(ucmstore.ArgumentError, match=f"row 0: {SHARD} bytes given.*= {BLOCK}"):
        store.load_raw(make_ids(2), None, [[4096], [4096]], [SHARD])
