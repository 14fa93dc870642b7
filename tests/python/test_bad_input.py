# SPDX-License-Identifier: Apache-2.0
"""Bad input: a clear error that names the thing, nothing stored, the store usable afterwards."""

from __future__ import annotations

import os
import pickle
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ucmstore
from api_support import (
    BLOCK,
    NAMESPACE,
    SHARD,
    SHARDS,
    fault_folder,
    faulty,
    make_ids,
    make_rows,
    open_store,
)


@pytest.fixture
def store() -> Iterator[ucmstore.Store]:
    with open_store() as opened:
        yield opened
        ids, rows = make_ids(2, seed=77), make_rows(2)
        opened.dump(ids, rows).wait()
        into = np.zeros_like(rows)
        opened.load(ids, into).wait()
        assert (into == rows).all()  # usable afterwards, whatever the test did
        assert opened.stats()["dram"]["stored_blocks"] == 2


# ---- ids -----------------------------------------------------------------------------------------

WRONG_IDS: list[tuple[Any, type[Exception], str]] = [
    (b"x" * 17, ucmstore.ArgumentError, "17 bytes is not a whole number of 16-byte"),
    (b"x", ucmstore.ArgumentError, "1 bytes"),
    ([b"x" * 15, b"x" * 17], ucmstore.ArgumentError, r"ids\[0\] has 15 bytes"),
    ([b"x" * 16, b"x" * 17], ucmstore.ArgumentError, r"ids\[1\] has 17 bytes"),
    ([b"x" * 16, "x" * 16], ucmstore.ArgumentTypeError, r"ids\[1\] is a 'str'"),
    ([b"x" * 16, None], ucmstore.ArgumentTypeError, r"ids\[1\] is None"),
    ([1, 2], ucmstore.ArgumentTypeError, r"ids\[0\] is a 'int'"),
    ("x" * 16, ucmstore.ArgumentTypeError, "ids is a 'str'"),
    (None, ucmstore.ArgumentTypeError, "ids is None"),
    (5, ucmstore.ArgumentTypeError, "ids is a 'int'"),
    ({b"x" * 16}, ucmstore.ArgumentTypeError, "ids is a 'set'"),
    (np.zeros((2, 15), np.uint8), ucmstore.ArgumentError, "rows of 15 bytes"),
    (np.zeros((16, 2), np.uint8), ucmstore.ArgumentError, "rows of 2 bytes"),
    (np.zeros((2, 2), np.uint64), ucmstore.ArgumentError, "items of 8 bytes"),
    (np.zeros((2, 32), np.uint8)[:, ::2], ucmstore.ArgumentError, "not contiguous"),
    (np.zeros((4, 16), np.uint8)[::2], ucmstore.ArgumentError, "not contiguous"),
]


@pytest.mark.parametrize(("ids", "kind", "words"), WRONG_IDS)
def test_wrong_ids(store: ucmstore.Store, ids: Any, kind: type[Exception], words: str) -> None:
    rows = np.zeros((2, BLOCK), np.uint8)
    calls: list[Callable[[], object]] = [
        lambda: store.lookup(ids),
        lambda: store.lookup_prefix(ids),
        lambda: store.lookup_prefix_async(ids),
        lambda: store.load(ids, rows),
        lambda: store.dump(ids, rows),
        lambda: store.prefetch(ids),
        lambda: store.load_raw(ids, 0, [[1], [2]], [SHARD]),
        lambda: store.dump_raw(ids, 0, [[1], [2]], [SHARD]),
    ]
    for call in calls:
        with pytest.raises(kind, match=words):
            call()


@pytest.mark.parametrize("shard", [-1, SHARDS, 1 << 40, "0", 0.0, True, [0]])
def test_shards_out_of_range(store: ucmstore.Store, shard: Any) -> None:
    ids = make_ids(1)
    row = np.zeros((1, SHARD), np.uint8)
    calls: list[Callable[[], object]] = [
        lambda: store.load(ids, row, shard=shard),
        lambda: store.dump(ids, row, shard=shard),
        lambda: store.prefetch(ids, shard=shard),
        lambda: store.load_raw(ids, shard, [[row.ctypes.data]], [SHARD]),
    ]
    for call in calls:
        with pytest.raises(ucmstore.ArgumentError, match="shard"):
            call()


@pytest.mark.parametrize("priority", [1 << 31, "high", None, 1.5])
def test_wrong_priorities(store: ucmstore.Store, priority: Any) -> None:
    with pytest.raises(ucmstore.ArgumentError, match="priority"):
        store.prefetch(make_ids(1), priority=priority)


@pytest.mark.parametrize("timeout", [-1, float("nan"), "soon", True])
def test_wrong_close_timeouts(timeout: Any) -> None:
    with open_store() as store:
        with pytest.raises(ucmstore.ArgumentError, match="timeout"):
            store.close(timeout)
        assert not store.closed


# ---- opening -------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "spec": "Dram",
    "shard_size": SHARD,
    "shards_per_block": SHARDS,
    "namespace": NAMESPACE,
}

WRONG_OPENINGS: list[tuple[dict[str, Any], str]] = [
    ({"spec": ""}, "spec"),
    ({"spec": "Dramm"}, 'Dramm.*"?Dram'),
    ({"spec": "Dram|Null"}, "Dram"),
    ({"spec": "Fault"}, "Fault"),
    ({"spec": "Dram||Dram"}, "column"),
    ({"spec": "Dram|../../x"}, "column|stage"),
    ({"spec": b"Dram"}, "spec is a 'bytes'"),
    ({"shard_size": 0}, "shard_size = 0"),
    ({"shard_size": -4096}, "shard_size = -4096"),
    ({"shard_size": 1 << 32}, "shard_size"),
    ({"shard_size": 4096.0}, "shard_size is a 'float'"),
    ({"shard_size": True}, "shard_size is a 'bool'"),
    ({"shard_size": "4 parsecs"}, "shard_size = '4 parsecs'"),
    ({"shard_size": "4096"}, "shard_size = '4096' has no unit"),
    ({"shard_size": "4K"}, "shard_size = '4K'"),
    ({"shards_per_block": 0}, "shards_per_block = 0"),
    ({"shards_per_block": 65537}, "shards_per_block = 65537"),
    ({"shards_per_block": "2"}, "shards_per_block is a 'str'"),
    ({"namespace": {"model": "m"}}, "namespace is a 'dict'"),
    ({"namespace": "m"}, "namespace is a 'str'"),
    ({"workers": 0}, "workers.*0"),
    ({"workers": "4"}, "workers"),
    ({"workers": True}, "workers"),
    ({"workres": 4}, "workres.*workers"),
    ({"storage_backend": "x"}, "storage_backend"),
    ({"dram": {"capacty": "1GiB"}}, "dram.*capacty.*capacity"),
    ({"dram": {"capacity": "1"}}, "dram.*capacity"),
    ({"dram": {"capacity": "1GB/s"}}, "dram.*capacity.*1GB/s"),
    ({"dram": {"capacity": -1}}, "dram.*capacity"),
    ({"dram": {"capacity": 0}}, "dram.*capacity"),
    ({"dram": {"capacity": True}}, "dram.*capacity"),
    ({"dram": {"capacity": 1.5}}, "dram.*capacity"),
    ({"dram": {"capacity": [1]}}, "dram.*capacity"),
    ({"dram": {"capacity": {}}}, "dram.*capacity is a 'dict'"),
    ({"dram": {"capacity": None}}, "dram.*capacity is None"),
    ({"dram": {"capacity": 1 << 70}}, "dram.*capacity.*64 bits"),
    ({"dram": {5: 6}}, "dram: option 5"),
    ({"drma": {"capacity": "1GiB"}}, "drma.*dram"),
    ({"posix": {"roots": ["/x"]}}, "posix"),
    ({"Dram": {"capacity": "1GiB"}}, "Dram.*dram"),
    ({"plugin_path": 5}, "plugin_path"),
    ({"plugin_path": ["/nowhere"], "spec": "Nowhere"}, "/nowhere"),
    ({"log_level": "loud"}, "log_level.*loud"),
]


@pytest.mark.parametrize(("changes", "words"), WRONG_OPENINGS)
def test_m01_wrong_openings(changes: dict[str, Any], words: str) -> None:
    arguments = {**GOOD, **changes}
    with pytest.raises(ucmstore.ArgumentError, match=rf"(?s){words}") as caught:
        ucmstore.open(arguments.pop("spec"), **arguments)
    assert isinstance(caught.value, ValueError)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ucmstore.ArgumentTypeError, match="shard_size, namespace missing"):
        ucmstore.open("Dram")  # type: ignore[call-overload]
    with open_store() as store, pytest.raises(ucmstore.ArgumentError, match="config says it all"):
        ucmstore.open("Dram", config=store.config)  # type: ignore[call-overload]
    with pytest.raises(ucmstore.ArgumentTypeError, match="config is a 'dict'"):
        ucmstore.open(config={})  # type: ignore[call-overload]


def test_options_of_a_stage_given_as_none_are_not_given() -> None:
    with open_store(dram=None) as store:
        assert "dram" not in store.config.options


# ---- roots ---------------------------------------------------------------------------------------


def refuses(root: Path | str, words: str, **changes: Any) -> None:
    with pytest.raises(ucmstore.Error, match=words) as caught:
        open_store("Posix", **{"posix": {"roots": [root]}, **changes})
    assert str(root) in str(caught.value) or "roots" in str(caught.value)


@pytest.mark.parametrize("value", [5, "/tmp", ["roots"]])
def test_m01_the_options_of_a_stage_are_a_mapping(value: object) -> None:
    with pytest.raises(ucmstore.OptionError, match=r"^dram = .*a stage are a mapping; give dram={"):
        open_store("Dram", dram=value)
    with pytest.raises(ucmstore.OptionError, match=r"^posix = .*are a mapping"):
        open_store("Dram", stages={"posix": value})
    with pytest.raises(ucmstore.OptionError, match=r"^own = .*are a mapping"):
        open_store("Own|Dram", own=value)
    with pytest.raises(ucmstore.ArgumentTypeError, match=r"^stages is a"):
        open_store("Dram", stages=value)


def test_a_config_can_be_a_key() -> None:
    with open_store("Dram") as store, open_store("Dram", workers=2) as other:
        assert {store.config: 1}[pickle.loads(pickle.dumps(store.config))] == 1
        assert store.config != other.config


def test_l06_a_root_that_cannot_be(tmp_path: Path) -> None:
    refuses(tmp_path / "a" / "b", "b")
    (tmp_path / "file").write_text("x")
    refuses(tmp_path / "file", "file")
    refuses("", 'roots|empty|""')
    with pytest.raises(ucmstore.OptionError, match="roots"):
        open_store("Posix")
    with pytest.raises(ucmstore.OptionError, match='did you mean "Dram"'):
        open_store("dram")  # the stages' names have a capital
    with pytest.raises(ucmstore.OptionError, match="roots"):
        open_store("Posix", posix={"roots": []})


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to be two users")
def test_l06_a_root_that_cannot_be_written(tmp_path: Path) -> None:
    from api_support import run_python

    root = tmp_path / "root"
    root.mkdir()
    for folder in (root, *root.parents):
        if folder != Path("/") and folder.is_relative_to(tmp_path.parents[1]):
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    done = run_python(
        """
import os, sys
from api_support import *
os.setuid(65534)
try:
    open_store("Posix", posix={"roots": [sys.argv[1]]})
except ucmstore.Error as error:
    print(type(error).__name__, error.errno, error)
""",
        str(root),
    )
    assert str(root) in done.stdout, done.stderr
    assert "13" in done.stdout
    assert list(root.iterdir()) == []


def test_a_root_of_another_geometry_or_content(tmp_path: Path) -> None:
    posix = {"roots": [tmp_path]}
    with open_store("Posix", posix=posix) as store:
        store.dump(make_ids(2), make_rows(2)).wait()
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    refuses(tmp_path, f"{SHARD}|shard", shard_size=2 * SHARD)
    refuses(tmp_path, "shards", shards_per_block=SHARDS + 1)
    with open_store("Posix", posix=posix) as store:
        assert store.lookup_prefix(make_ids(2)) == 2
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before


def test_a_root_of_a_newer_format(tmp_path: Path) -> None:
    with open_store("Posix", posix={"roots": [tmp_path]}) as store:
        label = store.namespace.label
    mark = tmp_path / label / "UCMSTORE"
    text = mark.read_text()
    assert text.startswith("ucmstore 1\n")
    mark.write_text(text.replace("ucmstore 1", "ucmstore 99", 1))
    refuses(tmp_path, "99")
    assert mark.read_text().startswith("ucmstore 99\n")


# ---- errors are words ----------------------------------------------------------------------------

CODES = {
    "not_found": ucmstore.NotFoundError,
    "invalid_argument": ucmstore.ArgumentError,
    "unsupported": ucmstore.UnsupportedError,
    "busy": ucmstore.BusyError,
    "no_space": ucmstore.NoSpaceError,
    "timeout": ucmstore.DeadlineError,
    "cancelled": ucmstore.TaskCancelledError,
    "aborted": ucmstore.AbortedError,
    "corruption": ucmstore.CorruptionError,
    "io_error": ucmstore.StoreIOError,
    "system_limit": ucmstore.LimitError,
    "internal_error": ucmstore.InternalError,
}


@pytest.mark.parametrize("code", CODES)
def test_m06_every_code_is_a_class_with_words(code: str) -> None:
    with faulty() as (store, fault):
        ids, rows = make_ids(1), make_rows(1)
        store.dump(ids, rows).wait()
        fault.arm(f"load fail={code} errno=5 count=1")
        task = store.load(ids, np.zeros_like(rows))
        with pytest.raises(CODES[code], match="load of 1 blocks: 1 of 1 failed") as caught:
            task.wait(30)
        assert isinstance(caught.value, ucmstore.TransferError)
        assert caught.value.errno == 5
        assert "Fault" in str(caught.value) or "fault" in str(caught.value)
        rule = fault.arm(f"lookup refuse={code} count=1")
        with pytest.raises(CODES[code]) as refused:
            store.lookup(ids)
        assert not isinstance(refused.value, ucmstore.TransferError)
        fault.disarm(rule)
        assert store.lookup_prefix(ids) == 1


def test_d03_a_worker_that_throws_is_an_error() -> None:
    with faulty() as (store, fault):
        fault.arm("dump throw count=1")
        with pytest.raises(ucmstore.InternalError):
            store.dump(make_ids(1), make_rows(1)).wait(30)
        store.dump(make_ids(1), make_rows(1)).wait(30)


def test_errors_pickle() -> None:
    import pickle

    with open_store() as store:
        with pytest.raises(ucmstore.TransferError) as caught:
            store.load(make_ids(2), np.zeros((2, BLOCK), np.uint8)).wait()
        again = pickle.loads(pickle.dumps(caught.value))
        assert type(again) is type(caught.value)
        assert str(again) == str(caught.value)
        assert (again.failed, again.codes) == ([0, 1], [ucmstore.Code.NOT_FOUND] * 2)
        with pytest.raises(ucmstore.ArgumentError) as argument:
            store.lookup(b"x")
        assert str(pickle.loads(pickle.dumps(argument.value))) == str(argument.value)


def test_q01_what_is_stored_is_never_run(tmp_path: Path) -> None:
    import pickle

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, (f"touch {tmp_path / 'exploded'}",)

    bomb = pickle.dumps(Bomb()).ljust(BLOCK, b"\0")
    root = tmp_path / "root"
    with open_store("Posix", posix={"roots": [root]}) as store:
        (good, bad) = make_ids(2)
        store.dump(good, bomb).wait()
        folder = next(root.rglob(good.hex())).parent
        (folder / bad.hex()).write_bytes(bomb)
        (folder / f"{bad.hex()}.x.activated").write_bytes(bomb)
        (root / "bomb.pickle").write_bytes(bomb)
        store.lookup([good, bad])
        into = bytearray(BLOCK)
        store.load(good, into).wait()
        assert into == bomb
    with open_store("Posix", posix={"roots": [root]}):
        pass
    assert not (tmp_path / "exploded").exists()


def test_o05_bad_plugins_are_named_with_their_reason(tmp_path: Path) -> None:
    (tmp_path / "libucmstore_broken.so").write_text("not an object")
    (tmp_path / "libucmstore_renamed.so").symlink_to(fault_folder() / "libucmstore_null.so")
    for stage in ("Broken", "Renamed"):
        with pytest.raises(ucmstore.Error, match=rf"libucmstore_{stage.lower()}\.so"):
            open_store(stage, plugin_path=[tmp_path])


def test_l02_a_scheduler_needs_no_device(tmp_path: Path) -> None:
    """The same store, opened where there is no device: lookups work, device memory is refused."""
    with open_store("Posix", posix={"roots": [tmp_path]}) as store:
        store.dump(make_ids(2), make_rows(2)).wait()
    with open_store("Posix", posix={"roots": [tmp_path]}) as scheduler:
        assert scheduler.lookup_prefix(make_ids(2)) == 2

        class OnDevice:
            device = "cuda:0"

            def data_ptr(self) -> int:
                return 1

        with pytest.raises(ucmstore.UnsupportedError, match="cuda:0"):
            scheduler.load(make_ids(2), OnDevice())
