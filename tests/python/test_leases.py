# SPDX-License-Identifier: Apache-2.0
"""Leases from Python: blocks in the ring's memory, read and filled where they are."""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ucmstore
from api_support import BLOCK, SHARD, SHARDS, make_ids, make_rows, open_store, run_python
from ucmstore import _core
from ucmstore.cli.admin import inspect


def open_cache(folder: Path, spec: str = "Cache|Posix", **cache: Any) -> ucmstore.Store:
    return open_store(
        spec,
        posix={"roots": [folder / "root"]},
        cache={"path": folder, "capacity": "1MiB", **cache},
    )


def leases_out(store: ucmstore.Store) -> float:
    return store.stats()["cache"]["ring_leases"]


def press(store: ucmstore.Store) -> None:
    """Dump far more blocks than the ring holds."""
    count = 4 * int(store.stats()["cache"]["ring_slots"])
    store.dump(make_ids(count, seed=9), make_rows(count, seed=9)).wait()


def block_of(lease: ucmstore.Lease | ucmstore.Reservation, i: int) -> np.ndarray[Any, Any]:
    block = lease.blocks[i]
    assert block is not None
    return block


def test_a_block_is_read_in_place(tmp_path: Path) -> None:
    ids, rows = make_ids(3), make_rows(2)
    with open_cache(tmp_path) as store:
        store.dump(ids[:2], rows).wait()
        with store.acquire(ids) as lease:
            assert lease.codes.tolist() == [0, 0, ucmstore.Code.NOT_FOUND]
            assert lease.lengths.tolist() == [[SHARD] * SHARDS] * 2 + [[0] * SHARDS]
            assert lease.blocks[2] is None
            assert lease.addresses[2].tolist() == [0] * SHARDS
            for i in range(2):
                block = block_of(lease, i)
                assert block.shape == (SHARDS, SHARD)
                assert (block.reshape(-1) == rows[i]).all()
                assert not block.flags.writeable
                with pytest.raises(ValueError, match="WRITEABLE"):
                    block.flags.writeable = True
            memory = store.ring_memory()
            first = int(lease.addresses[0, 0])
            assert memory.address <= first < memory.address + memory.size
            assert ctypes.string_at(first, SHARD) == rows[0, :SHARD].tobytes()
            assert leases_out(store) == 2
            assert "2 of 3 blocks acquired" in repr(lease)
        assert leases_out(store) == 0
        lease.release()


def test_a_reserved_block_is_filled_in_place(tmp_path: Path) -> None:
    ids, rows = make_ids(2), make_rows(2)
    with open_cache(tmp_path) as store:
        with store.reserve(ids) as room:
            for i in range(2):
                block = block_of(room, i)
                assert block.flags.writeable
                block[:] = rows[i].reshape(SHARDS, SHARD)
            room.commit(0)
            room.commit(1, shard=1)
            assert store.lookup(ids, touch=False).tolist() == [1, 0]
            assert not block_of(room, 0).flags.writeable
            assert block_of(room, 1).flags.writeable
            room.commit(1, shard=0, bytes=100)
        assert store.lookup(ids, touch=False).tolist() == [1, 1]
        into = np.zeros_like(rows)
        task = store.load(ids, into)
        task.wait()
        assert task.results.lengths.tolist() == [[SHARD, SHARD], [100, SHARD]]
        assert (into[0] == rows[0]).all()
        assert (into[1, :100] == rows[1, :100]).all()
        assert (into[1, SHARD:] == rows[1, SHARD:]).all()
        with store.reserve(ids) as again:
            assert again.present.tolist() == [True, True]
            assert again.blocks == [None, None]


def test_one_shard_of_each(tmp_path: Path) -> None:
    ids, rows = make_ids(1), make_rows(1)
    with open_cache(tmp_path) as store:
        for shard in range(SHARDS):
            with store.reserve(ids, shard=shard) as room:
                block_of(room, 0)[0] = rows[0, shard * SHARD : (shard + 1) * SHARD]
                assert room.addresses.shape == (1, 1)
                with pytest.raises(ucmstore.ArgumentError, match="was not reserved"):
                    room.commit(0, shard=1 - shard)
                room.commit(0)
        into = np.zeros_like(rows)
        store.load(ids, into).wait()
        assert (into == rows).all()


def test_what_is_not_committed_is_given_up(tmp_path: Path) -> None:
    ids, rows = make_ids(1), make_rows(1)
    with open_cache(tmp_path) as store:
        with store.reserve([ids[0], ids[0]]) as room:
            assert room.codes.tolist() == [0, ucmstore.Code.PENDING]
            kept = block_of(room, 0)
            kept[:] = 7
        assert not kept.flags.writeable
        assert store.lookup(ids).tolist() == [0]
        with pytest.raises(ucmstore.NotFoundError, match="released"):
            room.commit(0)
        store.dump(ids, rows).wait()
        into = np.zeros_like(rows)
        store.load(ids, into).wait()
        assert (into == rows).all()


def test_d18_too_many_are_refused_in_words(tmp_path: Path) -> None:
    ids, rows = make_ids(5), make_rows(5)
    with open_cache(tmp_path, max_leases=3) as store:
        store.dump(ids, rows).wait()
        with store.acquire(ids) as lease:
            assert lease.codes.tolist() == [0, 0, 0, ucmstore.Code.BUSY, ucmstore.Code.BUSY]
            assert "max_leases" in lease.why
            press(store)
            for i in range(3):
                assert (block_of(lease, i).reshape(-1) == rows[i]).all()
        with store.acquire(ids[:1]) as lease:
            assert lease.why == ""


def test_an_array_keeps_the_lease_of_a_lost_one(tmp_path: Path) -> None:
    ids, rows = make_ids(1), make_rows(1)
    with open_cache(tmp_path) as store:
        store.dump(ids, rows).wait()
        piece = block_of(store.acquire(ids), 0)[1, 10:]
        gc.collect()
        press(store)
        assert (piece == rows[0, SHARD + 10 :]).all()
        assert leases_out(store) == 1
        del piece
        gc.collect()
        assert leases_out(store) == 0


def test_a_lease_outlives_the_close_of_its_store(tmp_path: Path) -> None:
    ids, rows = make_ids(2), make_rows(2)
    with open_cache(tmp_path) as store:
        store.dump(ids[:1], rows[:1]).wait()
        lease, room = store.acquire(ids[:1]), store.reserve(ids[1:])
        block = block_of(lease, 0)
    with pytest.raises(ucmstore.ClosedError):
        store.acquire(ids)
    with pytest.raises(ucmstore.ClosedError):
        room.commit(0)
    with open_cache(tmp_path) as other:
        press(other)
        assert (block.reshape(-1) == rows[0]).all()
        assert leases_out(other) == 2
        lease.release()
        room.release()
        assert leases_out(other) == 0
        press(other)
    assert block.sum() >= 0  # of whatever is there now: mapped still, and no crash


@pytest.mark.parametrize("spec", ["Posix", "Dram", "Null"])
def test_m06_without_cache_it_is_refused_in_words(tmp_path: Path, spec: str) -> None:
    options: dict[str, Any] = {"posix": {"roots": [tmp_path]}} if spec == "Posix" else {}
    with open_store(spec, **options) as store:
        for call in (lambda: store.acquire([]), lambda: store.reserve([]), store.ring_memory):
            with pytest.raises(ucmstore.UnsupportedError, match=f"begins with {spec}"):
                call()


def test_nothing_and_nonsense(tmp_path: Path) -> None:
    ids = make_ids(1)
    with open_cache(tmp_path) as store:
        with store.acquire([]) as lease:
            assert len(lease) == 0
            assert lease.lengths.shape == lease.addresses.shape == (0, SHARDS)
        with store.reserve(b"") as room:
            assert room.blocks == []
        with store.acquire(ids) as lease:
            assert lease.blocks == [None]
        with pytest.raises(ucmstore.ArgumentError, match="shard"):
            store.reserve(ids, shard=SHARDS)
        with pytest.raises(ucmstore.ArgumentError):
            store.acquire([b"short"])
        with store.reserve(ids) as room:
            for arguments in ({"i": 1}, {"i": -1}, {"i": 0, "bytes": 0}, {"i": 0, "bytes": BLOCK}):
                with pytest.raises(ucmstore.ArgumentError):
                    room.commit(**arguments)
            room.commit(0, 0)
            with pytest.raises(ucmstore.ArgumentError, match="committed before"):
                room.commit(0, 0)


KILLED = """
import os, signal, sys
from pathlib import Path
from api_support import make_ids, make_rows
from test_leases import open_cache
store = open_cache(Path(sys.argv[1]), max_leases=4)
store.dump(make_ids(2), make_rows(2)).wait()
leases = [store.acquire(make_ids(2)), store.reserve(make_ids(2, seed=3))]
assert all((lease.codes == 0).all() for lease in leases)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_e01_leases_die_with_their_process(tmp_path: Path) -> None:
    assert run_python(KILLED, str(tmp_path)).returncode == -9
    with open_cache(tmp_path, max_leases=4) as store:
        ids = make_ids(4, seed=3)
        with store.reserve(ids) as room:
            assert room.codes.tolist() == [0, 0, 0, 0]
            for i in range(4):
                block_of(room, i)[:] = i
                room.commit(i)
        into = np.zeros((4, BLOCK), np.uint8)
        store.load(ids, into).wait()
        assert (into == np.arange(4, dtype=np.uint8)[:, None]).all()


def test_p01_a_forked_child_cannot_harm_them(tmp_path: Path) -> None:
    ids, rows = make_ids(1), make_rows(1)
    with open_cache(tmp_path) as store:
        store.dump(ids, rows).wait()
        lease = store.acquire(ids)
        child = os.fork()
        if child == 0:
            try:
                lease.release()
                del lease
                gc.collect()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        press(store)
        assert (block_of(lease, 0).reshape(-1) == rows[0]).all()
        lease.release()


@pytest.mark.parametrize("kind", ["Lease", "Task", "AdminEntry"])
def test_the_core_lets_nobody_make_an_empty_object(kind: str) -> None:
    cls: Any = getattr(_core, kind)
    with pytest.raises(TypeError):
        cls()
    with pytest.raises(TypeError):
        cls.__new__(cls)
    with pytest.raises(TypeError):
        object.__new__(cls)


def test_inspect_says_who_has_leases(tmp_path: Path) -> None:
    ids = make_ids(3)
    with open_cache(tmp_path, name="mine") as store:
        segment = next(tmp_path.glob("ucmstore.mine.*"))
        assert dict(inspect(segment, stage="Cache"))["leases"] == "0"
        with store.reserve(ids):
            text = dict(inspect(segment, stage="Cache"))["leases"]
            assert text.startswith("3: 3 of process ")
            assert text.endswith(f"(pid {os.getpid()})")


def test_m06_a_name_for_a_ring_that_cannot_be_shared_is_refused(tmp_path: Path) -> None:
    memory: dict[str, Any] = {"path": tmp_path, "capacity": "1MiB"}
    with open_store("Cache|Dram", cache=memory):
        pass
    with pytest.raises(ucmstore.OptionError, match=r"name 'mine'.*cannot be shared"):
        open_store("Cache|Dram", cache={**memory, "name": "mine"})
