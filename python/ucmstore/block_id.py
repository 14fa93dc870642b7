# SPDX-License-Identifier: Apache-2.0
"""Block ids: what a block is named by, so that equal ids mean equal bytes, in every process.

`Namespace` says what makes bytes mean the same. `Namespace.derive` turns an engine's own chained
hashes into ids; `BlockHasher` chains ids over tokens for an engine that has none. Both give arrays
of [n, 16] bytes: `ids[:3]` are three ids, and any of them goes to a store as it is.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from ucmstore import _core
from ucmstore.errors import ArgumentError, ArgumentTypeError

Ids: TypeAlias = npt.NDArray[np.uint8]
FieldValue: TypeAlias = str | int | float | bool

_MOST_RANKS = (1 << 32) - 1


def index_of(value: object, name: str, least: int, most: int) -> int:
    """`value` as an integer in range, or an error that names it."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, SupportsIndex):
        raise ArgumentTypeError(f"{name} is a {type(value).__name__!r}; give an integer")
    number = operator.index(value)
    if not least <= number <= most:
        raise ArgumentError(f"{name} = {number} is out of range; {least} to {most} can be")
    return number


def _text(value: object, name: str) -> str:
    """A field's value in its one spelling: True is "true", 4 is "4", 0.5 is "0.5"."""
    if isinstance(value, str):
        return str.__str__(value)  # not an enum member's name for itself
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (float, np.floating)):
        if not math.isfinite(value):
            raise ArgumentError(f"namespace field {name!r} = {value} is not a finite number")
        return float.__repr__(float(value))
    if isinstance(value, SupportsIndex):
        return int.__repr__(operator.index(value))
    raise ArgumentTypeError(
        f"namespace field {name!r} is a {type(value).__name__!r}; "
        "give a text, a number or a bool, or leave it out"
    )


def _check_text(text: str, name: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"{name}: {text!r} is no valid Unicode text: {error.reason}") from None
    return text


class Namespace:
    """A fingerprint of everything that makes bytes mean the same.

    That is the model's content (not the name it is served under), the dtype, the layout, the length
    of a block in tokens; never the rank. Any fields may be added. Values are compared as text, in
    any order; another value, one field more or one less is another namespace. Immutable.
    """

    __slots__ = ("_core",)

    def __init__(self, *, model: FieldValue, **fields: FieldValue) -> None:
        named: dict[str, FieldValue] = {"model": model, **fields}
        texts = {
            _check_text(name, "namespace field name"): _check_text(
                _text(value, name), f"namespace field {name!r}"
            )
            for name, value in named.items()
        }
        self._core = _core.Namespace(texts)

    @classmethod
    def from_fields(cls, fields: Mapping[str, FieldValue]) -> Namespace:
        """The same, from a mapping such as `Namespace.fields`."""
        if "model" not in fields:
            raise ArgumentError("a namespace needs the field 'model'")
        return cls(**dict(fields))

    @property
    def fields(self) -> dict[str, str]:
        """The fields in their one spelling."""
        return self._core.fields

    @property
    def text(self) -> str:
        """All fields as lines of "name: value"."""
        return self._core.text

    @property
    def fingerprint(self) -> bytes:
        """32 bytes; equal only if all fields are."""
        return self._core.fingerprint

    @property
    def label(self) -> str:
        """A short, harmless name for folders and logs, unique to the fingerprint."""
        return self._core.label

    def derive(
        self, hashes: object, *, width: int = 32, every: int = 1, tag: str | bytes = ""
    ) -> Ids:
        """Ids from an engine's own chained hashes, many at a time.

        `hashes` is one buffer of `width` bytes each, or a sequence of them. Of each group of
        `every` the last is taken, since it covers the others; a rest is left out. `tag` keeps apart
        what shares a hash but not its bytes: a rank (`Layout.tag`), a group of layers.
        """
        width = index_of(width, "width", 1, 1024)
        every = index_of(every, "every", 1, 1 << 31)
        if isinstance(hashes, (list, tuple)):
            hashes = _joined(hashes, width)
        ids = self._core.derive(hashes, width, every, _bytes(tag, "tag") or b"")
        return np.frombuffer(ids, np.uint8).reshape(-1, 16)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Namespace):
            return NotImplemented
        return self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Namespace({', '.join(f'{name}={value!r}' for name, value in self.fields.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Namespace.from_fields, (self.fields,)


def _joined(hashes: Sequence[object], width: int) -> bytes:
    for i, one in enumerate(hashes):
        if not isinstance(one, (bytes, bytearray, memoryview)):
            raise ArgumentTypeError(f"hashes[{i}] is a {type(one).__name__!r}; give bytes")
        if len(one) != width:
            raise ArgumentError(f"hashes[{i}] has {len(one)} bytes; width is {width}")
    return b"".join(hashes)  # type: ignore[arg-type]


class Layout:
    """How the KV of one model is cut over the ranks of a deployment.

    Scheduler and workers both ask here, so they cannot disagree: `Namespace(**layout.fields(), …)`
    and `namespace.derive(hashes, tag=layout.tag(tp=rank))`. `tensor_replicated`: all tensor
    parallel ranks hold the same bytes (MLA), so deployments of any number of them share.
    """

    __slots__ = ("_core",)

    def __init__(
        self, *, tp: int = 1, pp: int = 1, cp: int = 1, tensor_replicated: bool = False
    ) -> None:
        self._core = _core.Layout(
            index_of(tp, "tp", 1, _MOST_RANKS),
            index_of(pp, "pp", 1, _MOST_RANKS),
            index_of(cp, "cp", 1, _MOST_RANKS),
            bool(tensor_replicated),
        )

    def fields(self) -> dict[str, str]:
        """What a namespace must say about the layout: the fields tp, pp and cp."""
        return self._core.add_to({})

    def tag(self, *, tp: int = 0, pp: int = 0, cp: int = 0) -> str:
        """The tag of one rank."""
        return self._core.tag(
            index_of(tp, "tp", 0, _MOST_RANKS),
            index_of(pp, "pp", 0, _MOST_RANKS),
            index_of(cp, "cp", 0, _MOST_RANKS),
        )


class Media(NamedTuple):
    """An image, a sound, an embedding: its content replaces that of its placeholder tokens."""

    content_hash: bytes
    offset: int  # its first token in the whole sequence
    length: int  # in tokens


class ChainEnd(NamedTuple):
    """The end of a block to go on from: how many precede, and the id of the last of them."""

    blocks: int
    last: bytes


def _bytes(value: str | bytes | None, name: str) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return _check_text(value, name).encode()
    raise ArgumentTypeError(f"{name} is a {type(value).__name__!r}; give bytes or a text")


def _tokens(tokens: object) -> npt.NDArray[np.int64]:
    array = np.asarray(tokens)
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise ArgumentTypeError(
            f"tokens: {array.ndim} dimensions of {array.dtype}; give one row of integers"
        )
    if array.dtype.kind == "u" and array.max() > np.iinfo(np.int64).max:
        raise ArgumentError(f"tokens: {array.max()} does not fit into 63 bits")
    return np.ascontiguousarray(array, np.int64)


class BlockHasher:
    """Ids for engines that have none: chained over the tokens of a sequence, block by block.

    An id depends on the namespace, on the request's `salt` (keeps tenants apart) and `adapter`
    (LoRA), on every token up to the block's end and on the media among them; on nothing else.
    `block_tokens`: 0 takes it from the namespace's field of that name. Immutable.
    """

    __slots__ = ("_core",)

    def __init__(
        self,
        namespace: Namespace,
        block_tokens: int = 0,
        *,
        salt: str | bytes | None = None,
        adapter: str | bytes | None = None,
    ) -> None:
        if not isinstance(namespace, Namespace):
            raise ArgumentTypeError(f"namespace is a {type(namespace).__name__!r}")
        self._core = _core.BlockHasher(
            namespace._core,
            index_of(block_tokens, "block_tokens", 0, (1 << 32) - 1),
            _bytes(salt, "salt"),
            _bytes(adapter, "adapter"),
        )

    @property
    def block_tokens(self) -> int:
        """The length of a block in tokens."""
        return self._core.block_tokens

    def hash(
        self, tokens: object, *, media: Sequence[Media] = (), after: ChainEnd | None = None
    ) -> Ids:
        """One id for each full block of `tokens`; a rest is left out.

        `tokens` is an array or sequence of integers. To go on with a sequence give in `after` what
        was hashed already, and in `tokens` only what follows. `media` lists the items of the whole
        sequence.
        """
        items = [
            (
                _bytes(content_hash, f"media[{i}].content_hash") or b"",
                index_of(offset, f"media[{i}].offset", 0, 1 << 62),
                index_of(length, f"media[{i}].length", 0, 1 << 62),
            )
            for i, (content_hash, offset, length) in enumerate(media)
        ]
        blocks, last = after if after is not None else (0, b"")
        blocks = index_of(blocks, "after.blocks", 0, 1 << 62)
        ids = self._core.hash(_tokens(tokens), items, blocks, bytes(last))
        return np.frombuffer(ids, np.uint8).reshape(-1, 16)
