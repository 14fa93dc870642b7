# SPDX-License-Identifier: Apache-2.0
#
# Two ways to learn that a task has ended without a thread that waits: await it in asyncio, or, once
# a step of an engine's loop, ask for all that have ended at once (`poll`; `fileno` for a selector).
"""Await tasks, and poll for them: `python await_tasks.py`."""

import asyncio
import selectors

import ucmstore

SHARD = 64 * 1024


async def awaiting(store: ucmstore.Store, ids: list[bytes]) -> None:
    source = bytes(range(256)) * (SHARD // 256)
    await asyncio.gather(*(store.dump([block], source=source) for block in ids))
    into = [bytearray(SHARD) for _ in ids]
    await asyncio.gather(
        *(store.load([block], into=memory) for block, memory in zip(ids, into, strict=True))
    )
    assert all(memory == source for memory in into)
    print(f"awaited {2 * len(ids)} tasks")


def polling(store: ucmstore.Store, ids: list[bytes]) -> None:
    memory = bytearray(len(ids) * SHARD)
    view = memoryview(memory)
    running = {}
    for i, block in enumerate(ids):
        task = store.load([block], into=view[i * SHARD : (i + 1) * SHARD])
        running[task.id] = task
    with selectors.DefaultSelector() as selector:
        selector.register(store.fileno(), selectors.EVENT_READ)
        while running:
            selector.select(timeout=10)
            tasks, codes = store.poll()
            for task_id, code in zip(tasks.tolist(), codes.tolist(), strict=True):
                task = running.pop(task_id)
                assert code == ucmstore.Code.OK, task.results
    print(f"polled for {len(ids)} tasks")


def main() -> None:
    name = ucmstore.Namespace(model="example", dtype="uint8", block_tokens=16)
    ids = ucmstore.BlockHasher(name).hash(range(64 * 16))
    blocks = [bytes(block) for block in ids]
    with ucmstore.open("Dram", shard_size=SHARD, shards_per_block=1, namespace=name) as store:
        asyncio.run(awaiting(store, blocks))
        polling(store, blocks)


if __name__ == "__main__":
    main()
