# SPDX-License-Identifier: Apache-2.0
"""Tasks: waited for, polled, cancelled, lost; by one thread or by many. The Fault stage holds what
is in flight, so that every interleaving here is chosen."""

from __future__ import annotations

import gc
import select
import threading
import weakref

import numpy as np
import pytest

import ucmstore
from api_support import (
    BLOCK,
    LONG_S,
    faulty,
    make_ids,
    make_rows,
    open_store,
    running,
    until,
)
from ucmstore import Code


def test_wait_raises_timeout_and_stays_pending() -> None:
    with faulty() as (store, fault):
        ids, rows = make_ids(2), make_rows(2)
        rule = fault.arm("dump hold")
        task = store.dump(ids, rows)
        fault.wait_held(rule, 1)
        for timeout in (0, 0.01):
            with pytest.raises(TimeoutError, match=rf"task {task.id} \(dump of 2 blocks\)"):
                task.wait(timeout)
        assert not task.done()
        assert "pending" in repr(task)
        assert (task.results.codes == Code.PENDING).all()
        fault.disarm(rule)
        fault.release(rule)
        task.wait(LONG_S)
        assert task.done()
        assert "ended" in repr(task)
        assert (task.results.codes == Code.OK).all()


def test_d05_d06_waiting_twice_and_after_a_timeout() -> None:
    with faulty() as (store, fault):
        fault.arm("load fail=io_error errno=5 shard=1")
        ids, rows = make_ids(2), make_rows(2)
        store.dump(ids, rows).wait()
        task = store.load(ids, np.zeros_like(rows))
        for _ in range(3):
            with pytest.raises(ucmstore.StoreIOError, match="load of 2 blocks: 2 of 2") as caught:
                task.wait(LONG_S)
            assert caught.value.errno == 5
        assert task.results.codes.tolist() == [[Code.OK, Code.IO_ERROR]] * 2
        good = store.load(ids, np.zeros((2, BLOCK // 2), np.uint8), shard=0)
        until(good.done, "the load of shard 0 has ended")
        for _ in range(3):
            good.wait()


def test_many_threads_wait_for_one_task() -> None:
    with faulty() as (store, fault):
        rule = fault.arm("dump hold")
        task = store.dump(make_ids(1), make_rows(1))
        fault.wait_held(rule, 1)
        barrier = threading.Barrier(9)

        def wait() -> None:
            barrier.wait(LONG_S)
            task.wait(LONG_S)

        threads = [threading.Thread(target=wait, daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        barrier.wait(LONG_S)
        fault.disarm(rule)
        fault.release(rule)
        for thread in threads:
            thread.join(LONG_S)
            assert not thread.is_alive()
        task.wait(0)


def test_cancel_ends_what_has_not_begun() -> None:
    with faulty(workers=1) as (store, fault):
        rule = fault.arm("dump hold count=1")
        first = store.dump(make_ids(1), make_rows(1))
        fault.wait_held(rule, 1)
        others = [store.dump(make_ids(1, seed=i), make_rows(1)) for i in range(1, 4)]
        for task in others:
            task.cancel()
        fault.release(rule)
        first.wait(LONG_S)
        for task in others:
            try:
                task.wait(LONG_S)
            except ucmstore.TaskCancelledError as error:
                assert isinstance(error, ucmstore.TransferError)  # noqa: PT017
            task.cancel()  # of a task that has ended: nothing
        assert store.stats()["python"]["tasks_in_flight"] == 0


def test_a_deadline_ends_a_task_that_has_not_begun() -> None:
    with faulty() as (store, fault):
        ids, rows = make_ids(1), make_rows(1)
        store.dump(ids, rows).wait()
        rule = fault.arm("load hold when=before")
        task = store.load(ids, np.zeros_like(rows), timeout=0.05)
        with pytest.raises(ucmstore.DeadlineError) as caught:
            task.wait(LONG_S)
        assert isinstance(caught.value, ucmstore.TransferError)
        assert caught.value.codes == [Code.TIMEOUT]
        fault.disarm(rule)
        store.load(ids, np.zeros_like(rows), timeout=LONG_S).wait()


def test_poll_tells_each_end_once() -> None:
    with open_store() as store:
        ids, rows = make_ids(8), make_rows(8)
        tasks = [store.dump(ids[i], rows[i : i + 1]) for i in range(8)]
        missing = store.load(make_ids(1, seed=3), np.zeros((1, BLOCK), np.uint8))
        told: dict[int, int] = {}

        def poll() -> bool:
            numbers, codes = store.poll()
            assert numbers.dtype == np.uint64
            assert codes.dtype == np.int32
            for number, code in zip(numbers.tolist(), codes.tolist(), strict=True):
                assert number not in told
                told[number] = code
            return len(told) == 9

        until(poll, "all nine were told")
        assert told == {**{task.id: Code.OK for task in tasks}, missing.id: Code.NOT_FOUND}
        for task in tasks:
            task.wait(0)
        with pytest.raises(ucmstore.NotFoundError):
            missing.wait(0)
        assert store.poll()[0].size == 0


def test_poll_takes_at_most_so_many_and_keeps_their_order() -> None:
    with faulty() as (store, fault):
        ids, rows = make_ids(4), make_rows(4)
        store.dump(ids, rows).wait()
        rules, tasks = [], []
        for i in range(4):
            rules.append(fault.arm("load hold count=1 shard=1"))
            tasks.append(store.load(ids[i], rows[i : i + 1].copy()))
            fault.wait_held(rules[i], 1)
        order = [2, 0, 3, 1]
        for i in order:
            fault.release(rules[i])
            until(tasks[i].done, f"load {i} has ended")
        told = [number for _ in range(5) for number in store.poll(at_most=1)[0].tolist()]
        assert told == [tasks[i].id for i in order]


def test_fileno_is_readable_while_something_ended() -> None:
    with faulty() as (store, fault):
        fd = store.fileno()
        assert store.fileno() == fd

        def readable(timeout: float) -> bool:
            return bool(select.select([fd], [], [], timeout)[0])

        assert not readable(0)
        rule = fault.arm("dump hold")
        task = store.dump(make_ids(1), make_rows(1))
        fault.wait_held(rule, 1)
        assert not readable(0)
        fault.disarm(rule)
        fault.release(rule)
        assert readable(LONG_S)
        assert store.poll()[0].tolist() == [task.id]
        assert not readable(0)
        waited = store.dump(make_ids(1, seed=1), make_rows(1))
        waited.wait(LONG_S)  # and so not announced any more
        assert not readable(0)
        assert store.poll()[0].size == 0


def test_fileno_tells_what_ended_before_it_was_asked_for() -> None:
    with open_store() as store:
        task = store.dump(make_ids(1), make_rows(1))
        until(task.done, "the dump has ended")
        assert select.select([store.fileno()], [], [], LONG_S)[0]
        assert store.poll()[0].tolist() == [task.id]


def test_a_task_keeps_its_memory_alive() -> None:
    with faulty() as (store, fault):
        rule = fault.arm("dump hold")
        rows = make_rows(2)
        alive = weakref.ref(rows)
        task = store.dump(make_ids(2), rows)
        fault.wait_held(rule, 1)
        del rows
        gc.collect()
        assert alive() is not None
        fault.disarm(rule)
        fault.release(rule)
        task.wait(LONG_S)
        assert alive() is None  # let go as soon as it was waited for


def test_a_lost_task_parks_its_memory_until_nothing_moves() -> None:
    with faulty() as (store, fault):
        ids, rows = make_ids(1), make_rows(1)
        store.dump(ids, rows).wait()
        rule = fault.arm("load hold")
        into = np.zeros_like(rows)
        alive = weakref.ref(into)
        task = store.load(ids, into)
        fault.wait_held(rule, 1)
        del task, into
        gc.collect()
        assert alive() is not None
        assert store.stats()["python"] == {"tasks_in_flight": 1, "tasks_parked": 1}
        fault.disarm(rule)
        fault.release(rule)
        until(lambda: alive() is None, "the memory was let go, by nobody's call")
        assert store.stats()["python"] == {"tasks_in_flight": 0, "tasks_parked": 0}
        assert store.stats()["dram"]["tasks_in_flight"] == 0
        assert store.poll()[0].size == 0


def test_ten_thousand_lost_tasks_leave_nothing() -> None:
    with open_store(max_tasks=20_000) as store:
        ids, rows = make_ids(4), make_rows(4)
        store.dump(ids, rows).wait()
        into = np.zeros_like(rows)
        for i in range(5_000):
            store.load(ids[i % 4], into[i % 4 : i % 4 + 1])
            store.dump(make_ids(1, seed=i), rows[:1])
        until(lambda: store.stats()["python"]["tasks_in_flight"] == 0, "nothing is in flight")
        assert store.stats()["python"]["tasks_parked"] == 0
        assert store.stats()["dram"]["tasks_in_flight"] == 0
        assert (into == rows).all()


def test_a_store_closed_over_lost_and_pending_tasks() -> None:
    with faulty(workers=2) as (store, fault):
        rule = fault.arm("dump hold")
        pending = [store.dump(make_ids(1, seed=i), make_rows(1)) for i in range(6)]
        store.dump(make_ids(1, seed=9), make_rows(1))
        fault.wait_held(rule, 1)
        store.close()
        for task in pending:
            assert task.done()
            with pytest.raises(ucmstore.Error):
                task.wait(LONG_S)


def test_a_wait_in_another_thread_ends_when_the_store_closes() -> None:
    with faulty() as (store, fault):
        rule = fault.arm("dump hold")
        task = store.dump(make_ids(1), make_rows(1))
        fault.wait_held(rule, 1)

        def wait() -> None:
            with pytest.raises(ucmstore.Error):
                task.wait(LONG_S)

        with running(wait):
            store.close()


def test_close_says_busy_when_something_cannot_end() -> None:
    with faulty() as (store, fault):
        rule = fault.arm("load stuck")
        ids, rows = make_ids(1), make_rows(1)
        store.dump(ids, rows).wait()
        into = np.zeros_like(rows)
        alive = weakref.ref(into)
        task = store.load(ids, into)
        fault.wait_held(rule, 1)
        with pytest.raises(ucmstore.BusyError, match="memory"):
            store.close(timeout=0.05)
        with pytest.raises(ucmstore.ClosedError):
            task.wait(LONG_S)
        del task, into
        gc.collect()
        assert alive() is not None  # it may still be written to
        fault.disarm(rule)
        fault.release(rule)
        until(lambda: alive() is None, "it ended after all")


def test_d04_what_moves_after_a_close_that_gave_up_has_not_ended() -> None:
    """Memory is free when the task says so, and not before, closed or not."""
    with faulty() as (store, fault):
        rule = fault.arm("load stuck")
        ids, rows = make_ids(1), make_rows(1)
        store.dump(ids, rows).wait()
        task = store.load(ids, np.zeros_like(rows))
        fault.wait_held(rule, 1)

        def wait() -> None:
            with pytest.raises(ucmstore.ClosedError, match=r"still moves.* until done\(\) is true"):
                task.wait(LONG_S)

        with running(wait), pytest.raises(ucmstore.BusyError):
            store.close(timeout=0.05)
        assert not task.done()
        assert "pending" in repr(task)
        assert (task.results.codes == Code.PENDING).all()
        fault.disarm(rule)
        fault.release(rule)
        until(task.done, "the load has ended")
        assert "ended" in repr(task)
        assert not (task.results.codes == Code.PENDING).any()


def test_tasks_of_many_threads() -> None:
    with open_store(workers=4) as store:

        def work(seed: int) -> None:
            ids, rows = make_ids(20, seed=seed), make_rows(20, seed=seed)
            for i in range(20):
                store.dump(ids[i], rows[i : i + 1]).wait(LONG_S)
                into = np.zeros((1, BLOCK), np.uint8)
                store.load(ids[i], into).wait(LONG_S)
                assert (into[0] == rows[i]).all()

        threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert store.stats()["dram"]["load_tasks"] == 160


@pytest.mark.parametrize("timeout", [-1, float("nan"), "1", True, [1]])
def test_wrong_timeouts_are_refused(timeout: object) -> None:
    with open_store() as store:
        task = store.dump(make_ids(1), make_rows(1))
        with pytest.raises(ucmstore.ArgumentError, match="timeout"):
            task.wait(timeout)  # type: ignore[arg-type]
        with pytest.raises(ucmstore.ArgumentError, match="timeout"):
            store.lookup(make_ids(1), timeout=timeout)  # type: ignore[arg-type]
        with pytest.raises(ucmstore.ArgumentError, match="timeout"):
            store.prefetch(make_ids(1), timeout=timeout)  # type: ignore[arg-type]
        task.wait(float("inf"))
