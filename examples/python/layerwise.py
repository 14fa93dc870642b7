# SPDX-License-Identifier: Apache-2.0
#
# How an engine that works layer by layer uses a store: a block's shards are its layers. Each layer
# is dumped as soon as it is computed; the block becomes visible when the last one has landed. On
# the way back the first layer is waited for while the others still come.
"""Dump and load a model's KV cache layer by layer: `python layerwise.py FOLDER`."""

import sys

import numpy as np

import ucmstore

LAYERS = 8
BLOCK_TOKENS = 16
LAYER_BYTES = BLOCK_TOKENS * 2 * 4 * 128 * 2  # tokens x (K, V) x heads x head size x two bytes


def main(folder: str) -> None:
    name = ucmstore.Namespace(model="example-8l", dtype="bfloat16", block_tokens=BLOCK_TOKENS)
    prompt = range(10 * BLOCK_TOKENS)
    ids = ucmstore.BlockHasher(name).hash(prompt)  # one id for each 16 tokens, chained

    random = np.random.default_rng(1)
    computed = [random.bytes(len(ids) * LAYER_BYTES) for _ in range(LAYERS)]
    loaded = [bytearray(len(ids) * LAYER_BYTES) for _ in range(LAYERS)]

    with ucmstore.open(
        "Posix",
        shard_size=LAYER_BYTES,
        shards_per_block=LAYERS,
        namespace=name,
        posix={"roots": [folder]},
    ) as store:
        dumps = []
        for layer in range(LAYERS):
            dumps.append(store.dump(ids, source=computed[layer], shard=layer))
            if layer < LAYERS - 1:
                assert store.lookup_prefix(ids) in (0, len(ids)), "visible all at once, or not"
        for task in dumps:
            task.wait()

        hits = store.lookup_prefix(ids)
        print(f"{hits} of {len(ids)} blocks found")
        loads = [
            store.load(ids[:hits], into=loaded[layer], shard=layer, priority=LAYERS - layer)
            for layer in range(LAYERS)
        ]
        for task in loads:
            task.wait(timeout=10)  # the engine would now compute with this layer

    assert hits == len(ids)
    assert all(bytes(a) == b for a, b in zip(loaded, computed, strict=True))
    print("every byte is the same")


if __name__ == "__main__":
    main(sys.argv[1])
