# SPDX-License-Identifier: Apache-2.0
"""Where the bytes of a load or dump lie: from anything with memory to columns of addresses.

Accepted are objects with `data_ptr()` (torch tensors; torch itself is never imported), with a
buffer (numpy arrays, bytearray, memoryview, mmap, …), or with `__dlpack__`, and bare addresses.
What is not contiguous, not in host memory, read-only where a load writes, or of another size is
refused. Kept alive is what owns the bytes, not only the object that showed them: a tensor can be
given another storage (`t.data = …`, `t.set_()`) while its bytes move. What nobody can keep is a
storage that its owner resizes or moves in place.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ucmstore import _core
from ucmstore.errors import ArgumentError, ArgumentTypeError, Error, UnsupportedError

_ONLY_HOST = "only host memory can be used: copy it there"


class SupportsDataPtr(Protocol):
    """A torch tensor, or what looks like one."""

    def data_ptr(self) -> int: ...
    def element_size(self) -> int: ...
    def is_contiguous(self) -> bool: ...
    def numel(self) -> int: ...


class SupportsDlpack(Protocol):
    """A tensor of any framework that speaks DLPack."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...


# A buffer has no type in Python before 3.12, so what may be given is said as `Any`.
Piece: TypeAlias = SupportsDataPtr | SupportsDlpack | Any
Memory: TypeAlias = Piece | Sequence[Piece | int]


Column: TypeAlias = "array[int] | npt.NDArray[Any]"  # of 64 bits each


class Columns(NamedTuple):
    """n rows of memory: their addresses and sizes in bytes, and what keeps them alive."""

    addresses: Column
    sizes: Column
    owners: list[object]


class _Place(NamedTuple):
    address: int
    nbytes: int
    rows: int  # the first of several dimensions; -1: flat
    owner: object


def _of_tensor(tensor: Any) -> _Place:
    device = getattr(tensor, "device", None)
    kind = getattr(device, "type", device)
    if kind is not None and str(kind) != "cpu":
        raise UnsupportedError(f"is on device {device}; {_ONLY_HOST}")
    layout = str(getattr(tensor, "layout", "torch.strided"))
    if layout != "torch.strided":
        raise ArgumentError(f"has layout {layout}; only a dense tensor has bytes in a row")
    if not tensor.is_contiguous():
        raise ArgumentError("is not contiguous; give a contiguous copy, or its pieces")
    shape = tuple(tensor.shape) if hasattr(tensor, "shape") else ()
    rows = int(shape[0]) if len(shape) > 1 else -1
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else None
    address, nbytes = tensor.data_ptr(), tensor.numel() * tensor.element_size()
    if storage is None:
        return _Place(address, nbytes, rows, _exported(tensor))
    first, size = storage.data_ptr(), storage.nbytes()
    if nbytes > 0 and not (first <= address and address + nbytes <= first + size):
        raise ArgumentError(f"has {nbytes} bytes, but its storage holds {size}: it was emptied")
    return _Place(address, nbytes, rows, storage)


def _exported(tensor: Any) -> object:
    """The tensor, with its memory exported if it can be."""
    if not hasattr(tensor, "__dlpack__"):
        return tensor
    with contextlib.suppress(BufferError, RuntimeError, TypeError, ValueError):
        return (_capsule(tensor), tensor)
    return tensor


def _of_buffer(buffer: object, writable: bool) -> _Place:
    pin = _core.Pin(buffer, writable)
    return _Place(pin.address, pin.nbytes, pin.rows, pin)


def _capsule(tensor: Any) -> object:
    try:
        return tensor.__dlpack__(max_version=(1, 1))
    except TypeError:  # it is older than versions
        return tensor.__dlpack__()


def _of_dlpack(tensor: Any, writable: bool) -> _Place:
    # Asked before the capsule is: some frameworks would first move or copy what we then refuse.
    kind, number = tensor.__dlpack_device__() if hasattr(tensor, "__dlpack_device__") else (1, 0)
    if int(kind) not in (1, 3, 11):  # plain host memory, or pinned for CUDA or ROCm
        raise UnsupportedError(f"is on DLPack device ({int(kind)}, {number}); {_ONLY_HOST}")
    capsule = _capsule(tensor)
    address, nbytes, rows = _core.dlpack_memory(capsule, writable)
    return _Place(address, nbytes, rows, (capsule, tensor))


def _locate(piece: object, writable: bool) -> _Place:
    """The memory of one object. Errors are without a subject."""
    if hasattr(piece, "data_ptr"):
        return _of_tensor(piece)
    if hasattr(piece, "__cuda_array_interface__"):
        raise UnsupportedError(f"is on a CUDA device; {_ONLY_HOST}")
    try:
        return _of_buffer(piece, writable)
    except ArgumentTypeError:
        if not hasattr(piece, "__dlpack__"):
            raise
        return _of_dlpack(piece, writable)


def _place(piece: object, writable: bool, name: str) -> _Place:
    try:
        return _locate(piece, writable)
    except Error as error:
        raise type(error)(f"{name} {error}") from None
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ArgumentTypeError(
            f"{name} is a {type(piece).__name__!r} whose memory cannot be used: {error}"
        ) from error


def _size_error(name: str, given: int, wanted: int, short: bool, what: str) -> ArgumentError:
    rule = f"1 to {wanted}" if short else f"{wanted}"
    return ArgumentError(f"{name} has {given} bytes; {what} needs {rule}")


def _rows_of_one(
    place: _Place, rows: int, wanted: int, short: bool, name: str, what: str
) -> Columns:
    if rows == 0:
        if place.nbytes != 0:
            raise ArgumentError(f"{name} has {place.nbytes} bytes for no ids at all")
        return Columns(array("Q"), array("Q"), [])
    if place.rows not in (-1, rows) and rows != 1:
        raise ArgumentError(
            f"{name} has {place.rows} rows (its first dimension) for {rows} ids; give one row for "
            "each id"
        )
    size, rest = divmod(place.nbytes, rows)
    if rest != 0 or not (0 < size <= wanted if short else size == wanted):
        each = f"1 to {wanted}" if short else f"{wanted}"
        raise ArgumentError(
            f"{name} has {place.nbytes} bytes for {rows} ids; {what} needs {each}, so all of them "
            f"{'at most ' if short else ''}{wanted * rows}"
        )
    first = place.address
    addresses = array("Q", range(first, first + rows * size, size))
    return Columns(addresses, array("Q", (size,)), [place.owner])


def _rows_of_many(
    memory: Sequence[object],
    rows: int,
    wanted: int,
    *,
    writable: bool,
    short: bool,
    name: str,
    what: str,
) -> Columns:
    if len(memory) != rows:
        raise ArgumentError(f"{name} has {len(memory)} items for {rows} ids; give one for each id")
    addresses = array("Q")
    sizes = array("Q")
    owners: list[object] = []
    for i, piece in enumerate(memory):
        if isinstance(piece, int) and not isinstance(piece, bool):  # a bare address
            if not 0 < piece < 1 << 63:
                raise ArgumentError(f"{name}[{i}] = {piece} is no address")
            addresses.append(piece)
            sizes.append(wanted)
            continue
        place = _place(piece, writable, f"{name}[{i}]")
        if not (0 < place.nbytes <= wanted if short else place.nbytes == wanted):
            raise _size_error(f"{name}[{i}]", place.nbytes, wanted, short, what)
        addresses.append(place.address)
        sizes.append(place.nbytes)
        owners.append(place.owner)
    return Columns(addresses, sizes, owners)


def columns(
    memory: Memory, rows: int, wanted: int, *, writable: bool, short: bool, name: str, what: str
) -> Columns:
    """`rows` rows of `wanted` bytes each (`short`: or fewer) in `memory`.

    `memory` is one object, whose bytes are the rows one after the other, or a list of one object or
    address for each row. `name` and `what` are for errors: "into", "a block".
    """
    if isinstance(memory, (list, tuple)):
        return _rows_of_many(
            memory, rows, wanted, writable=writable, short=short, name=name, what=what
        )
    return _rows_of_one(_place(memory, writable, name), rows, wanted, short, name, what)


def _column(values: object, name: str) -> npt.NDArray[Any]:
    try:
        array = np.asarray(values)
        if array.dtype == object or (array.size == 0 and array.dtype.kind == "f"):
            array = np.asarray(values, np.uint64)  # Python integers above 2**63, or none at all
    except (OverflowError, TypeError, ValueError) as error:
        raise ArgumentTypeError(f"{name}: {error}; give 64-bit integers") from None
    if array.dtype.kind not in "iu":
        raise ArgumentTypeError(f"{name} are {array.dtype}; give 64-bit integers")
    if array.dtype.itemsize != 8:
        array = array.astype(np.int64 if array.dtype.kind == "i" else np.uint64)
    return np.ascontiguousarray(array)


def raw_columns(rows: int, addresses: object, sizes: object, keep: object) -> Columns:
    """Bare addresses [rows, pieces] and sizes [pieces], as the caller gave them."""
    size_column = _column(sizes, "sizes").reshape(-1)
    address_column = _column(addresses, "addresses")
    pieces = len(size_column)
    if pieces == 0:
        raise ArgumentError("sizes: none given; give the size of each piece of a row")
    flat = pieces == 1 and address_column.shape == (rows,)
    if not flat and address_column.shape != (rows, pieces):
        raise ArgumentError(
            f"addresses: an array of {list(address_column.shape)} for {rows} ids and "
            f"{pieces} sizes; give [{rows}, {pieces}]"
        )
    return Columns(address_column, size_column, [keep])
