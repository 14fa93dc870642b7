# SPDX-License-Identifier: Apache-2.0
"""The Store: what goes in comes out, in every form that the API takes, over each stack."""

from __future__ import annotations

import pickle
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
    running,
    until,
)
from ucmstore import Code


@pytest.fixture(params=["Dram", "Posix", "Cache|Posix"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ucmstore.Store]:
    options: dict[str, Any] = {}
    if "Posix" in request.param:
        options["posix"] = {"roots": [tmp_path / "root"]}
    if "Cache" in request.param:
        options["cache"] = {"path": tmp_path, "capacity": "4MiB"}
    with open_store(request.param, **options) as opened:
        yield opened


def stored(store: ucmstore.Store, count: int, seed: int = 0) -> tuple[list[bytes], Any]:
    ids, rows = make_ids(count, seed), make_rows(count, seed=seed)
    store.dump(ids, rows).wait()
    return ids, rows


def test_whole_blocks_come_back(store: ucmstore.Store) -> None:
    ids, rows = stored(store, 5)
    into = np.full_like(rows, 0xAB)
    store.load(ids[::-1], into).wait()
    assert (into[::-1] == rows).all()


def test_lookup_says_where(store: ucmstore.Store) -> None:
    ids, _ = stored(store, 3)
    absent = make_ids(2, seed=9)
    where = 2 if store.config.spec == "Posix" else 1
    found = store.lookup([ids[0], absent[0], ids[1], ids[0], absent[1]])
    assert found.dtype == np.uint8
    assert found.tolist() == [where, 0, where, where, 0]
    assert store.lookup([]).tolist() == []


@pytest.mark.parametrize("touch", [True, False])
def test_lookup_prefix_counts_leading_hits(store: ucmstore.Store, touch: bool) -> None:
    ids, _ = stored(store, 4)
    absent = make_ids(1, seed=9)
    assert store.lookup_prefix(ids, touch=touch) == 4
    assert store.lookup_prefix(ids[:2] + absent + ids[2:], touch=touch, timeout=10) == 2
    assert store.lookup_prefix(absent) == 0
    assert store.lookup_prefix(b"") == 0
    assert store.lookup_prefix_async(ids, touch=touch).result(30) == 4


def test_ids_in_every_form_are_the_same_ids(store: ucmstore.Store) -> None:
    ids, rows = stored(store, 3)
    flat = b"".join(ids)
    array = np.frombuffer(flat, np.uint8).reshape(-1, 16)
    forms: list[Any] = [
        ids,
        tuple(ids),
        [bytearray(one) for one in ids],
        [memoryview(one) for one in ids],
        list(array),
        flat,
        bytearray(flat),
        memoryview(flat),
        array,
        array.copy(),
        array.reshape(-1),
        array.view("S16").reshape(-1),
        array.view("V16").reshape(-1),
    ]
    for form in forms:
        assert np.count_nonzero(store.lookup(form)) == 3, form
        assert store.lookup_prefix(form) == 3
        into = np.zeros_like(rows)
        store.load(form, into).wait()
        assert (into == rows).all()
    assert np.count_nonzero(store.lookup(array[1:])) == 2


def test_one_shard_of_many_blocks(store: ucmstore.Store) -> None:
    ids, rows = stored(store, 4)
    for shard in range(SHARDS):
        into = np.zeros((4, SHARD), np.uint8)
        store.load(ids, into, shard=shard).wait()
        assert (into == rows[:, shard * SHARD : (shard + 1) * SHARD]).all()


def test_shards_make_a_block_in_any_order(store: ucmstore.Store) -> None:
    ids, rows = make_ids(3), make_rows(3)
    store.dump(ids, [row[SHARD:] for row in rows], shard=1).wait()
    assert store.lookup(ids).tolist() == [0, 0, 0]
    store.dump(ids, [row[:SHARD] for row in rows], shard=0).wait()
    assert store.lookup_prefix(ids) == 3
    into = np.zeros_like(rows)
    store.load(ids, into).wait()
    assert (into == rows).all()


def test_a_short_shard_keeps_its_length(store: ucmstore.Store) -> None:
    ids = make_ids(2)
    store.dump(ids, make_rows(2, 100), shard=0).wait()
    store.dump(ids, [bytes(1), bytes(SHARD)], shard=1).wait()
    into = np.full((2, BLOCK), 7, np.uint8)
    task = store.load(ids, into)
    task.wait()
    assert task.results.lengths.tolist() == [[100, 1], [100, SHARD]]
    assert task.results.codes.tolist() == [[0, 0], [0, 0]]
    assert (into[:, :100] == make_rows(2, 100)).all()
    assert (into[:, 100:SHARD] == 7).all()  # beyond the length nothing is touched


def test_results_have_the_shape_of_the_call(store: ucmstore.Store) -> None:
    ids, rows = stored(store, 3)
    absent = make_ids(1, seed=5)
    task = store.load(ids[:1] + absent + ids[1:], np.zeros((4, BLOCK), np.uint8))
    with pytest.raises(ucmstore.TransferError, match=r"1 of 4 failed \(ids\[1\]\)") as caught:
        task.wait()
    assert isinstance(caught.value, ucmstore.NotFoundError)
    assert caught.value.failed == [1]
    assert caught.value.codes == [Code.NOT_FOUND]
    assert task.results.codes.shape == (4, SHARDS)
    assert (task.results.codes != 0).any(axis=1).tolist() == [False, True, False, False]
    one = store.load(ids, rows[:, :SHARD].copy(), shard=0)
    one.wait()
    assert one.results.codes.shape == one.results.lengths.shape == (3,)


def test_prefetch_finds_what_is_there(store: ucmstore.Store) -> None:
    ids, _ = stored(store, 3)
    store.prefetch(ids).wait()
    store.prefetch(ids, shard=1, timeout=10, priority=-3).wait()
    with pytest.raises(ucmstore.NotFoundError):
        store.prefetch(make_ids(1, seed=3)).wait()


def test_zero_ids_are_a_finished_task(store: ucmstore.Store) -> None:
    for task in (
        store.load([], np.zeros((0, BLOCK), np.uint8)),
        store.load(b"", []),
        store.dump([], b""),
        store.prefetch([]),
        store.load_raw([], 0, np.zeros((0, 1), np.uint64), [SHARD]),
    ):
        task.wait(timeout=10)
        assert task.done()
        assert task.results.codes.size == 0


def test_raw_addresses_in_pieces(store: ucmstore.Store) -> None:
    ids, rows = stored(store, 3)
    into = np.zeros((2, 3, SHARD // 2), np.uint8)  # halves lie apart
    base = into.ctypes.data
    half = SHARD // 2
    addresses = np.array([[base + i * half, base + (3 + i) * half] for i in range(3)], np.uint64)
    store.load_raw(ids, 1, addresses, np.array([half, half], np.uint64), keep=into).wait()
    assert (into[0] == rows[:, SHARD : SHARD + half]).all()
    assert (into[1] == rows[:, SHARD + half :]).all()


def test_raw_addresses_of_whole_blocks_are_cut_at_shards(store: ucmstore.Store) -> None:
    ids, rows = make_ids(2), make_rows(2)
    sizes = np.array([1000, SHARD, BLOCK - SHARD - 1000], np.int64)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    addresses = (rows.ctypes.data + np.array([[0], [BLOCK]]) + starts).astype(np.int64)
    store.dump_raw(ids, None, addresses, sizes, keep=rows).wait()
    into = np.full_like(rows, 9)
    target = into.ctypes.data + np.array([[0], [BLOCK]]) + starts
    target[:, 1] = 0  # skipped
    store.load_raw(ids, None, target, sizes).wait()
    assert (into[:, :1000] == rows[:, :1000]).all()
    assert (into[:, 1000 : 1000 + SHARD] == 9).all()
    assert (into[:, 1000 + SHARD :] == rows[:, 1000 + SHARD :]).all()


def test_a_list_of_plain_addresses(store: ucmstore.Store) -> None:
    ids, rows = stored(store, 2)
    into = np.zeros_like(rows)
    store.load(ids, [into.ctypes.data, into.ctypes.data + BLOCK]).wait()
    assert (into == rows).all()


def test_f11_dumping_again_what_is_there_succeeds(store: ucmstore.Store) -> None:
    ids, rows = stored(store, 2)
    for _ in range(20):
        store.dump(ids, make_rows(2, seed=8)).wait()
    into = np.zeros_like(rows)
    store.load(ids, into).wait()
    assert (into == rows).all()


def test_n01_n03_counters_equal_what_happened(store: ucmstore.Store) -> None:
    stage = store.config.spec.split("|")[0].lower()
    ids, _ = stored(store, 6)
    store.lookup(ids + make_ids(4, seed=7))
    store.load(ids, np.zeros((6, BLOCK), np.uint8)).wait()
    stats = store.stats()[stage]
    hits = stats["lookup_hits_memory"] + stats["lookup_hits_below"]
    assert (hits, stats["lookup_misses"]) == (6, 4)
    assert stats["load_shards"] == 6 * SHARDS
    assert stats["load_bytes"] == 6 * BLOCK
    assert store.stats()["python"] == {"tasks_in_flight": 0, "tasks_parked": 0}


def test_what_it_is(store: ucmstore.Store) -> None:
    assert (store.shard_size, store.shards_per_block, store.block_size) == (SHARD, SHARDS, BLOCK)
    assert store.namespace == NAMESPACE
    assert repr(store).startswith(f"<ucmstore.Store '{store.config.spec}': test-model-")
    assert not store.closed


def test_config_is_picklable_and_opens_the_same(store: ucmstore.Store) -> None:
    ids, rows = stored(store, 2)
    config = pickle.loads(pickle.dumps(store.config))
    assert config == store.config
    with ucmstore.open(config=config) as again:
        assert again.config == config
        if config.spec == "Posix":
            into = np.zeros_like(rows)
            again.load(ids, into).wait()
            assert (into == rows).all()


def test_an_open_store_is_no_value(store: ucmstore.Store) -> None:
    with pytest.raises(TypeError, match=r"store\.config"):
        pickle.dumps(store)


def test_closed_store_raises_and_never_crashes(store: ucmstore.Store) -> None:
    ids, rows = stored(store, 2)
    pending = store.load(ids, np.zeros_like(rows))
    store.close()
    store.close()
    assert store.closed
    calls: list[Callable[[], object]] = [
        lambda: store.lookup(ids),
        lambda: store.lookup_prefix(ids),
        lambda: store.lookup_prefix_async(ids),
        lambda: store.load(ids, np.zeros_like(rows)),
        lambda: store.dump(ids, rows),
        lambda: store.prefetch(ids),
        lambda: store.poll(),
        lambda: store.fileno(),
        lambda: store.stats(),
    ]
    for call in calls:
        with pytest.raises(ucmstore.ClosedError):
            call()
    assert pending.done()
    pending.cancel()
    assert pending.results.codes.shape == (2, SHARDS)


def test_a_with_block_closes_and_lets_errors_through() -> None:
    with pytest.raises(ZeroDivisionError), open_store() as store:
        _ = 1 // 0
    assert store.closed


def test_a_store_that_is_not_closed_says_so() -> None:
    store = open_store()
    with pytest.warns(ResourceWarning, match="was not closed"):
        del store


def test_null_takes_all_and_finds_nothing() -> None:
    with open_store("Null") as store:
        ids, _ = stored(store, 2)
        assert store.lookup(ids).tolist() == [0, 0]


def test_l04_memory_limit_reached_again_and_again() -> None:
    with open_store("Dram", dram={"capacity": 8 * BLOCK}) as store:
        for _ in range(3):
            for seed in range(4):
                ids, rows = stored(store, 4, seed)
                into = np.zeros_like(rows)
                hits = store.lookup_prefix(ids)
                store.load(ids[:hits], into[:hits]).wait()
                assert (into[:hits] == rows[:hits]).all()
        assert store.stats()["dram"]["evicted_blocks"] > 0


def test_a11_every_stack_fills_the_destination(tmp_path: Path) -> None:
    for spec in ("Dram", "Posix", "Fault|Dram", "Fault|Posix", "Fault|Fault|Dram"):
        posix = {"roots": [tmp_path]} if "Posix" in spec else None
        with open_store(spec, posix=posix, plugin_path=[fault_folder()]) as store:
            ids, rows = stored(store, 3)
            into = np.full_like(rows, 0xEE)
            store.load(ids, into).wait()
            assert (into == rows).all(), spec


def test_c01_one_missing_block_spoils_no_other(tmp_path: Path) -> None:
    with open_store("Posix", posix={"roots": [tmp_path]}) as store:
        ids, rows = stored(store, 10)
        (victim,) = tmp_path.rglob(ids[4].hex())
        victim.unlink()
        into = np.zeros_like(rows)
        task = store.load(ids, into)
        with pytest.raises(ucmstore.NotFoundError) as caught:
            task.wait()
        assert isinstance(caught.value, ucmstore.TransferError)
        assert caught.value.failed == [4]
        good = [i for i in range(10) if i != 4]
        assert (into[good] == rows[good]).all()
        # D02: the failure is forgotten, in both directions.
        assert store.lookup(ids).tolist() == [2] * 4 + [0] + [2] * 5
        store.dump(ids[4:5], rows[4:5]).wait()
        assert store.lookup_prefix(ids) == 10


def test_corrupt_bytes_are_a_corruption_error_with_words(tmp_path: Path) -> None:
    with open_store("Posix", posix={"roots": [tmp_path]}) as store:
        ids, rows = stored(store, 2)
        (victim,) = tmp_path.rglob(ids[1].hex())
        content = bytearray(victim.read_bytes())
        content[SHARD + 17] ^= 1
        victim.write_bytes(content)
        task = store.load(ids, np.zeros_like(rows))
        with pytest.raises(ucmstore.CorruptionError, match=r"Posix|posix") as caught:
            task.wait()
        assert isinstance(caught.value, ucmstore.TransferError)
        assert caught.value.failed == [1]
        assert caught.value.codes == [Code.CORRUPTION]
        assert ids[1].hex() in str(caught.value)


def test_j09_refused_calls_hold_no_place() -> None:
    with open_store(max_tasks=4) as store:
        ids, rows = stored(store, 1)
        for _ in range(1000):
            with pytest.raises(ucmstore.ArgumentError):
                store.load_raw(ids, 0, [[0x1000]], [SHARD + 1])
            with pytest.raises(ucmstore.ArgumentError):
                store.dump_raw(ids, 0, [[0]], [SHARD])
        store.load(ids, np.zeros_like(rows)).wait()
        assert store.stats()["python"]["tasks_in_flight"] == 0
        assert store.stats()["dram"]["tasks_in_flight"] == 0


def test_a_full_task_table_is_busy_and_heals() -> None:
    with faulty(max_tasks=4) as (store, fault):
        ids, rows = stored(store, 1)
        rule = fault.arm("load hold")
        shard = np.zeros((1, SHARD), np.uint8)
        tasks = [store.load(ids, shard.copy(), shard=0) for _ in range(4)]
        with pytest.raises(ucmstore.BusyError):
            store.load(ids, shard, shard=0)
        fault.disarm(rule)
        fault.release(rule)
        for task in tasks:
            task.wait(30)
        store.load(ids, rows.copy()).wait(30)


def test_prefix_lookups_of_a_closed_store_end() -> None:
    with faulty() as (store, fault):
        rule = fault.arm("lookup hold")
        lookups = [store.lookup_prefix_async(make_ids(1)) for _ in range(6)]
        fault.wait_held(rule, 4)  # as many as there are threads; two wait behind them
        with running(lambda: store.close(timeout=30)):
            until(lambda: store.closed, "it closes")
            fault.disarm(rule)
            fault.release(rule)
        for lookup in lookups:
            assert isinstance(lookup.exception(30), (ucmstore.ClosedError, type(None)))
        for lookup in lookups[4:]:
            with pytest.raises(ucmstore.ClosedError):
                lookup.result(30)
