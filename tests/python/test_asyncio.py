# SPDX-License-Identifier: Apache-2.0
"""Awaiting tasks: many at once, in several loops and threads, cancelled, and across a close."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

import ucmstore
from api_support import BLOCK, LONG_S, faulty, make_ids, make_rows, open_store, until


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def test_many_concurrent_awaits() -> None:
    with open_store() as store:
        ids, rows = make_ids(100), make_rows(100)

        async def one(i: int) -> None:
            await store.dump(ids[i], rows[i : i + 1])
            into = np.zeros((1, BLOCK), np.uint8)
            await store.load(ids[i], into)
            assert (into[0] == rows[i]).all()

        async def main() -> None:
            async with asyncio.timeout(LONG_S), asyncio.TaskGroup() as group:
                for i in range(100):
                    group.create_task(one(i))

        asyncio.run(main())
        asyncio.run(main())  # another loop, the same store
        assert store.poll()[0].size == 0
        assert store.stats()["python"]["tasks_in_flight"] == 0


def test_loops_in_several_threads() -> None:
    with open_store() as store:
        done: list[int] = []

        def run(seed: int) -> None:
            async def main() -> None:
                ids, rows = make_ids(30, seed=seed), make_rows(30)
                async with asyncio.timeout(LONG_S):
                    await asyncio.gather(
                        *(wait(store.dump(ids[i], rows[i : i + 1])) for i in range(30))
                    )
                    assert await store.lookup_prefix_async(ids) == 30

            asyncio.run(main())
            done.append(seed)

        async def wait(task: ucmstore.Task) -> None:
            await task

        threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(done) == list(range(6))


def test_two_loops_await_the_same_task() -> None:
    with faulty() as (store, fault):
        rule = fault.arm("dump hold")
        task = store.dump(make_ids(1), make_rows(1))
        fault.wait_held(rule, 1)
        waiting = threading.Semaphore(0)

        def run() -> None:
            async def main() -> None:
                awaiting = asyncio.ensure_future(wait())
                await asyncio.sleep(0)
                waiting.release()
                await asyncio.wait_for(awaiting, LONG_S)

            async def wait() -> None:
                await task

            asyncio.run(main())

        threads = [threading.Thread(target=run, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert waiting.acquire(timeout=LONG_S)
        fault.disarm(rule)
        fault.release(rule)
        for thread in threads:
            thread.join(LONG_S)
            assert not thread.is_alive()


def test_await_raises_what_wait_raises() -> None:
    with open_store() as store:

        async def main() -> None:
            with pytest.raises(ucmstore.NotFoundError):
                await store.load(make_ids(1), np.zeros((1, BLOCK), np.uint8))

        asyncio.run(main())


def test_an_await_that_gives_up_leaves_the_task() -> None:
    with faulty() as (store, fault):
        rule = fault.arm("dump hold")
        task = store.dump(make_ids(1), make_rows(1))
        fault.wait_held(rule, 1)

        async def main() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await task
            assert not task.done()
            fault.disarm(rule)
            fault.release(rule)
            await task

        asyncio.run(main())
        task.wait(0)


def test_an_abandoned_await_gives_the_end_back_to_poll() -> None:
    with faulty() as (store, fault):
        rule = fault.arm("dump hold")
        task = store.dump(make_ids(1), make_rows(1))
        fault.wait_held(rule, 1)

        async def main() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await task

        asyncio.run(main())
        fault.disarm(rule)
        fault.release(rule)
        until(task.done, "the dump has ended")
        assert store.poll()[0].tolist() == [task.id]


def test_poll_and_await_do_not_take_from_each_other() -> None:
    with faulty() as (store, fault):
        rule = fault.arm("dump hold")
        polled = store.dump(make_ids(1), make_rows(1))
        awaited = store.dump(make_ids(1, seed=1), make_rows(1))
        fault.wait_held(rule, 2)

        async def main() -> None:
            loop = asyncio.get_running_loop()
            readable = loop.create_future()
            loop.add_reader(store.fileno(), lambda: _set(readable))
            waiting = asyncio.ensure_future(wait())
            await asyncio.sleep(0)
            fault.disarm(rule)
            fault.release(rule)
            async with asyncio.timeout(LONG_S):
                await waiting
                await readable
            loop.remove_reader(store.fileno())

        async def wait() -> None:
            await awaited

        asyncio.run(main())
        assert store.poll()[0].tolist() == [polled.id]


def test_a_close_wakes_who_awaits() -> None:
    with faulty() as (store, fault):
        rule = fault.arm("dump hold")
        task = store.dump(make_ids(1), make_rows(1))
        fault.wait_held(rule, 1)

        async def wait() -> None:
            await task

        async def main() -> None:
            waiting = asyncio.ensure_future(wait())
            await asyncio.sleep(0)
            await asyncio.to_thread(store.close)
            with pytest.raises(ucmstore.Error):
                await asyncio.wait_for(waiting, LONG_S)

        asyncio.run(main())


def test_d04_a_close_that_gave_up_wakes_who_awaits_and_says_what_moves() -> None:
    with faulty() as (store, fault):
        ids, rows = make_ids(1), make_rows(1)
        store.dump(ids, rows).wait()
        rule = fault.arm("load stuck")
        task = store.load(ids, np.zeros_like(rows))
        fault.wait_held(rule, 1)

        async def wait() -> None:
            await task

        async def main() -> None:
            async with asyncio.timeout(LONG_S):
                waiting = [asyncio.create_task(wait()) for _ in range(2)]
                await asyncio.sleep(0)
                with pytest.raises(ucmstore.BusyError):
                    await asyncio.to_thread(store.close, 0.05)
                for one in (*waiting, asyncio.create_task(wait())):
                    with pytest.raises(ucmstore.ClosedError, match="still moves"):
                        await one

        asyncio.run(main())
        assert not task.done()
        fault.disarm(rule)
        fault.release(rule)
        until(task.done, "the load has ended")


def test_awaiting_what_has_ended_needs_no_loop_turn() -> None:
    with open_store() as store:
        task = store.dump(make_ids(1), make_rows(1))
        task.wait()

        async def main() -> None:
            await task
            await task

        asyncio.run(main())
