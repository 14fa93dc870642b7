# SPDX-License-Identifier: Apache-2.0
"""Kind H of the faults: an id depends on all that changes the bytes, on nothing else, and is the
same in every process. Compared throughout with the reference, which is hashlib alone."""

from __future__ import annotations

import enum
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import identity_reference as reference
import ucmstore
from api_support import make_ids, make_rows, open_store, run_python
from ucmstore import BlockHasher, Layout, Namespace

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True).filter(lambda name: name != "model")
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
FIELDS = st.dictionaries(NAMES, TEXTS, max_size=5)
HASHES = st.integers(1, 40).flatmap(
    lambda width: st.tuples(
        st.just(width), st.lists(st.binary(min_size=width, max_size=width), max_size=20)
    )
)


def listed(ids: ucmstore.block_id.Ids) -> list[bytes]:
    assert ids.shape[1:] == (16,)
    return [bytes(one) for one in ids]


def raw(namespace: Namespace) -> dict[str, bytes]:
    return {name: value.encode() for name, value in namespace.fields.items()}


# ---- namespaces ----------------------------------------------------------------------------------


@given(model=TEXTS, fields=FIELDS)
def test_a_namespace_is_what_the_reference_says(model: str, fields: dict[str, str]) -> None:
    namespace = Namespace(model=model, **fields)
    assert namespace.fields == {"model": model, **fields}
    assert namespace.text.encode() == reference.namespace_text(raw(namespace))
    assert namespace.fingerprint == reference.fingerprint(raw(namespace))
    assert namespace.label == reference.label(raw(namespace))


@given(fields=FIELDS, others=FIELDS)
def test_namespaces_are_equal_only_if_all_fields_are(
    fields: dict[str, str], others: dict[str, str]
) -> None:
    one = Namespace(model="m", **fields)
    two = Namespace(model="m", **others)
    reordered = Namespace(**dict(reversed(one.fields.items())))
    assert (one == two) == (fields == others) == (one.fingerprint == two.fingerprint)
    assert one == reordered
    assert hash(one) == hash(reordered)
    assert one != "m"


class Word(str, enum.Enum):  # noqa: UP042  (as older code has it)
    FLOAT = "float16"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"), (False, "false"), (4, "4"), (-1, "-1"), (10**30, "1" + "0" * 30),
        (0.5, "0.5"), (1.0, "1.0"), (1e-9, "1e-09"), ("x", "x"), ("", ""),
        (np.int32(7), "7"), (np.uint64(2**64 - 1), str(2**64 - 1)), (np.float64(0.1), "0.1"),
        (np.bool_(True), "true"), (np.str_("s"), "s"), (Word.FLOAT, "float16"),
    ],
)  # fmt: skip
def test_a_value_has_one_spelling(value: Any, text: str) -> None:
    assert Namespace(model="m", field=value).fields["field"] == text
    assert Namespace(model="m", field=value) == Namespace(model="m", field=text)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"x": None}, "'x' is a 'NoneType'"),
        ({"x": [1]}, "'x' is a 'list'"),
        ({"x": float("nan")}, "'x' = nan is not a finite"),
        ({"x": float("inf")}, "'x' = inf is not a finite"),
        ({"x": "a\0b"}, "x"),
        ({"x": "\ud800"}, "'x'.*no valid Unicode"),
        ({"X": "1"}, "X"),
        ({"9x": "1"}, "9x"),
        ({"x-y": "1"}, "x-y"),
        ({"x" * 65: "1"}, "xxx"),
        ({"x": "y" * 20_000}, "16384"),
    ],
)
def test_fields_that_cannot_be_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ucmstore.ArgumentError, match=words):
        Namespace(model="m", **fields)
    with pytest.raises(TypeError, match="model"):
        Namespace(**fields)


def test_a_namespace_pickles_and_shows_itself() -> None:
    namespace = Namespace(model="org/m", dtype="bfloat16", tp=4)
    assert pickle.loads(pickle.dumps(namespace)) == namespace
    assert repr(namespace) == "Namespace(dtype='bfloat16', model='org/m', tp='4')"
    assert Namespace.from_fields(namespace.fields) == namespace
    with pytest.raises(ucmstore.ArgumentError, match="model"):
        Namespace.from_fields({"dtype": "x"})


HOSTILE = [
    "../x",
    "/abs",
    "a/../../b",
    ".",
    "..",
    "",
    "x" * 5000,
    "-rf",
    "a\nb",
    "\u202e",
    "~",
    "C:\\",
]


@pytest.mark.parametrize("model", HOSTILE)
def test_q02_a_namespace_never_leaves_the_root(model: str, tmp_path: Path) -> None:
    namespace = Namespace(model=model)
    assert 0 < len(namespace.label) <= 80
    assert namespace.label[0] not in ".-"
    assert set(namespace.label) <= set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
    )
    root = tmp_path / "a" / "root"
    root.mkdir(parents=True)
    with open_store("Posix", namespace=namespace, posix={"roots": [root]}) as store:
        store.dump(make_ids(1), make_rows(1)).wait()
        assert store.lookup_prefix(make_ids(1)) == 1
    outside = [path for path in tmp_path.rglob("*") if root not in (path, *path.parents)]
    assert outside == [tmp_path / "a"]


def test_h04_a_served_name_alone_is_no_identity() -> None:
    one = Namespace(model="chat", revision="a1b2")
    two = Namespace(model="chat", revision="c3d4")
    hashes = bytes(range(64))
    assert not set(listed(one.derive(hashes))) & set(listed(two.derive(hashes)))


def test_h03_every_dtype_has_ids_of_its_own() -> None:
    tokens = np.arange(64)
    ids = [
        one
        for dtype in ("bfloat16", "float16", "fp8_e4m3")
        for one in listed(
            BlockHasher(Namespace(model="m", dtype=dtype, block_tokens=16)).hash(tokens)
        )
    ]
    assert len(ids) == len(set(ids)) == 12


def test_a10_another_layout_has_no_hits(tmp_path: Path) -> None:
    hashes = b"".join(make_ids(6))
    old = Namespace(model="m", dtype="bfloat16", kv_layout="nhd")
    new = Namespace(model="m", dtype="bfloat16", kv_layout="hnd")
    posix = {"roots": [tmp_path]}
    with open_store("Posix", namespace=old, posix=posix) as store:
        store.dump(old.derive(hashes, width=32), make_rows(3)).wait()
    with open_store("Posix", namespace=new, posix=posix) as store:
        assert store.lookup_prefix(new.derive(hashes, width=32)) == 0
        assert store.lookup_prefix(old.derive(hashes, width=32)) == 0
    with open_store("Posix", namespace=old, posix=posix) as store:
        assert store.lookup_prefix(old.derive(hashes, width=32)) == 3


# ---- derived ids ---------------------------------------------------------------------------------


@given(hashes=HASHES, every=st.integers(1, 5), tag=st.binary(max_size=10), fields=FIELDS)
def test_derive_is_what_the_reference_says(
    hashes: tuple[int, list[bytes]], every: int, tag: bytes, fields: dict[str, str]
) -> None:
    width, each = hashes
    namespace = Namespace(model="m", **fields)
    expected = reference.derive(raw(namespace), b"".join(each), width, every, tag)
    flat = b"".join(each)
    array = np.frombuffer(flat, np.uint8).reshape(-1, width)
    for form in (each, tuple(each), flat, bytearray(flat), memoryview(flat), array):
        assert listed(namespace.derive(form, width=width, every=every, tag=tag)) == expected


@given(hashes=HASHES, every=st.integers(1, 5), count=st.integers(0, 20))
def test_derived_ids_of_a_prefix_are_a_prefix(
    hashes: tuple[int, list[bytes]], every: int, count: int
) -> None:
    width, each = hashes
    namespace = Namespace(model="m")
    whole = listed(namespace.derive(each, width=width, every=every))
    part = listed(namespace.derive(each[:count], width=width, every=every))
    assert part == whole[: len(part)]


def test_h05_a13_ranks_have_ids_of_their_own() -> None:
    layout = Layout(tp=2, pp=2, cp=2)
    namespace = Namespace(model="m", **layout.fields())
    tags = {
        layout.tag(tp=tp, pp=pp, cp=cp) for tp in range(2) for pp in range(2) for cp in range(2)
    }
    ids = [one for tag in tags for one in listed(namespace.derive(bytes(64), tag=tag))]
    assert len(tags) == 8
    assert len(set(ids)) == 8  # two equal hashes, eight ranks
    replicated = Layout(tp=2, pp=2, cp=2, tensor_replicated=True)
    assert replicated.tag(tp=0, pp=1, cp=0) == replicated.tag(tp=1, pp=1, cp=0)


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_h11_scheduler_and_workers_agree(tp: int) -> None:
    hashes = b"".join(make_ids(8))
    scheduler = Layout(tp=tp)
    asked = [
        listed(
            Namespace(model="m", **scheduler.fields()).derive(hashes, tag=scheduler.tag(tp=rank))
        )
        for rank in range(tp)
    ]
    for rank in range(tp):
        worker = Layout(tp=tp)
        namespace = Namespace(model="m", **worker.fields())
        assert listed(namespace.derive(hashes, tag=worker.tag(tp=rank))) == asked[rank]
    assert len({tuple(ids) for ids in asked}) == tp


def test_h12_replicas_share_and_others_do_not() -> None:
    hashes = b"".join(make_ids(8))

    def ids(tp: int, replicated: bool) -> list[bytes]:
        layout = Layout(tp=tp, tensor_replicated=replicated)
        namespace = Namespace(model="m", **layout.fields())
        return listed(namespace.derive(hashes, tag=layout.tag(tp=tp - 1)))

    assert ids(4, True) == ids(8, True) == ids(1, True)
    assert len({tuple(ids(tp, False)) for tp in (1, 4, 8)}) == 3


def test_h13_groups_of_other_block_sizes_keep_apart() -> None:
    hashes = b"".join(make_ids(16))
    namespace = Namespace(model="m")
    groups = {
        size: listed(namespace.derive(hashes, width=32, every=size // 32, tag=f"group{size}"))
        for size in (32, 64, 128)
    }
    assert [len(ids) for ids in groups.values()] == [8, 4, 2]
    assert len({one for ids in groups.values() for one in ids}) == 14


def test_h10_ids_are_whole_and_their_path_too(tmp_path: Path) -> None:
    base = make_ids(1)[0]
    near = [(int.from_bytes(base, "big") ^ (1 << bit)).to_bytes(16, "big") for bit in range(128)]
    ids = [base, *near]
    with open_store("Posix", posix={"roots": [tmp_path]}) as store:
        store.dump(ids, make_rows(129)).wait()
        assert store.lookup_prefix(ids) == 129
        names = {path.name for path in tmp_path.rglob("*") if len(path.name) == 32}
        assert names == {one.hex() for one in ids}
        into = np.zeros_like(make_rows(129))
        store.load(ids, into).wait()
        assert (into == make_rows(129)).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"hashes": bytes(33)}, "33|hash"),
        ({"hashes": [bytes(32), bytes(31)]}, r"hashes\[1\] has 31 bytes; width is 32"),
        ({"hashes": [bytes(32), 5]}, r"hashes\[1\] is a 'int'"),
        ({"hashes": "x" * 32}, "hashes is a 'str'"),
        ({"hashes": 5}, "hashes is a 'int'"),
        ({"hashes": b"", "width": 0}, "width = 0"),
        ({"hashes": b"", "width": 1025}, "width = 1025"),
        ({"hashes": b"", "every": 0}, "every = 0"),
        ({"hashes": b"", "every": True}, "every is a 'bool'"),
        ({"hashes": b"", "tag": 5}, "tag is a 'int'"),
    ],
)
def test_wrong_hashes_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ucmstore.ArgumentError, match=words):
        Namespace(model="m").derive(arguments.pop("hashes"), **arguments)


@pytest.mark.parametrize("size", [{"tp": 0}, {"pp": -1}, {"cp": "2"}, {"tp": True}])
def test_wrong_layouts_are_refused(size: dict[str, Any]) -> None:
    with pytest.raises(ucmstore.ArgumentError, match=next(iter(size))):
        Layout(**size)
    with pytest.raises(ucmstore.ArgumentError, match="tp"):
        Layout(tp=2).tag(tp=2)


def test_h01_ids_are_the_same_in_every_process() -> None:
    code = """
import ucmstore
namespace = ucmstore.Namespace(model="m", dtype="bfloat16", tp=2, block_tokens=16)
hasher = ucmstore.BlockHasher(namespace, salt="tenant", adapter="lora")
media = [ucmstore.Media(b"image", 20, 10)]
print(namespace.label, hasher.hash(range(64), media=media).tobytes().hex(),
      namespace.derive(bytes(range(256)), tag="tp1 pp0 cp0").tobytes().hex())
"""
    seeds: list[dict[str, str]] = [
        {"PYTHONHASHSEED": "random"}, {"PYTHONHASHSEED": "0"}, {"PYTHONHASHSEED": "1"},
        {"PYTHONHASHSEED": "4294967295"}, {"PYTHONHASHSEED": "random", "LC_ALL": "C"},
    ]  # fmt: skip
    outputs = {run_python(code, **seed).stdout for seed in seeds}
    assert len(outputs) == 1
    fields = {
        "model": b"m", "dtype": b"bfloat16", "tp": b"2", "block_tokens": b"16",
    }  # fmt: skip
    chained = reference.chain(
        fields, 16, range(64), salt=b"tenant", adapter=b"lora",
        media=[reference.Media(b"image", 20, 10)],
    )  # fmt: skip
    derived = reference.derive(fields, bytes(range(256)), 32, 1, b"tp1 pp0 cp0")
    expected = [reference.label(fields), b"".join(chained).hex(), b"".join(derived).hex()]
    assert outputs.pop().split() == expected
