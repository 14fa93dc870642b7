# SPDX-License-Identifier: Apache-2.0
"""An engine restarts, and its KV cache is still there: same texts, every whole block a hit."""

from __future__ import annotations

import random
from typing import Any

import pytest

from conftest import Site, Truth, assert_same, make_prompts

BLOCK = 256  # tokens of a block of the store, for the tiny model


def whole_blocks(prompts: list[list[int]]) -> list[int]:
    """The tokens that must be found: all whole blocks but that of the last token."""
    return [(len(prompt) - 1) // BLOCK * BLOCK for prompt in prompts]


def assert_loaded(told: dict[str, Any], prompts: list[list[int]]) -> None:
    for cached, whole in zip(told["cached"], whole_blocks(prompts), strict=True):
        assert cached >= whole


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_restart_finds_every_whole_block(site: Site, truth: Truth, dtype: str) -> None:
    prompts = make_prompts(1)
    source = random.Random(2)
    partly = [p[: 2 * BLOCK] + [source.randrange(10, 1000) for _ in range(77)] for p in prompts[4:]]
    rounds = [{"prompts": prompts}, {"prompts": partly, "reset": True}]
    true = truth.of(rounds, dtype=dtype)
    tolerance = 0.2 if dtype == "bfloat16" else 0.002

    first = site.run(rounds[:1], dtype=dtype)
    assert_same(first["rounds"], true[:1], tolerance)
    assert first["figures"]["ucmstore_loaded_blocks"] == 0
    assert first["figures"]["ucmstore_saved_blocks"] > 0

    for lose_ring in (False, True):
        if lose_ring:
            site.lose_ring()
        told = site.run(rounds, dtype=dtype)
        assert_same(told["rounds"], true, tolerance)
        assert_loaded(told["rounds"][0], prompts)
        assert all(cached >= 2 * BLOCK for cached in told["rounds"][1]["cached"])
        source_of = "ucmstore_hit_tokens_disk" if lose_ring else "ucmstore_hit_tokens_memory"
        assert told["figures"][source_of] > 0
        assert told["figures"]["ucmstore_failed_blocks_absent"] == 0
        assert told["figures"]["ucmstore_uncached"] == 0


def test_two_engines_on_one_root_and_one_ring(site: Site, truth: Truth) -> None:
    rounds = [{"prompts": make_prompts(1)}, {"prompts": make_prompts(3, common=40)}]
    true = truth.of(rounds)
    both = [site.start(order) for order in (rounds, rounds[::-1])]
    told = [each.finish() for each in both]
    assert_same(told[0]["rounds"], true)
    assert_same(told[1]["rounds"], true[::-1])
    again = site.run(rounds)
    assert_same(again["rounds"], true)
    assert_loaded(again["rounds"][0], rounds[0]["prompts"])


def test_a13_two_ranks_and_a_scheduler_in_processes_of_their_own(site: Site, truth: Truth) -> None:
    plan: dict[str, Any] = {
        "engine": {"tensor_parallel_size": 2},
        "environment": {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "0|1",
        },
        "dtype": "float32",
    }
    rounds = [{"prompts": make_prompts(1)}]
    true = truth.of(rounds, dtype="float32")
    first = site.run(rounds, **plan)
    assert_same(first["rounds"], true, 0.002)
    assert first["figures"]["ucmstore_saved_blocks"] == len(site.blocks())
    told = site.run(rounds, **plan)
    assert_same(told["rounds"], true, 0.002)
    assert_loaded(told["rounds"][0], rounds[0]["prompts"])
    one = site.run(rounds, dtype="float32")  # another layout of ranks: nothing in common
    assert_same(one["rounds"], true, 0.002)
    assert one["figures"]["ucmstore_loaded_blocks"] == 0


@pytest.mark.parametrize("rule", ["dump hold", "load hold"])
def test_c01_killed_while_it_moves_blocks(site: Site, truth: Truth, rule: str) -> None:
    rounds = [{"prompts": make_prompts(1)}]
    true = truth.of(rounds)
    if rule == "load hold":
        site.run(rounds)
        site.lose_ring()
    extra = site.extra(spec="Cache|Fault|Posix")
    site.start(rounds, extra=extra, hold=rule).kill_when_held()
    for _ in range(2):
        told = site.run(rounds, extra=site.extra(spec="Cache|Fault|Posix"))
        assert_same(told["rounds"], true)
    assert_loaded(told["rounds"][0], rounds[0]["prompts"])
