# SPDX-License-Identifier: Apache-2.0
"""Pipelines, requests and engines of many shapes: always the texts of an engine without a store."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from conftest import Site, Truth, assert_same, make_prompts

PROMPTS = make_prompts(1)
AGAIN: list[dict[str, Any]] = [{"prompts": PROMPTS}, {"prompts": PROMPTS, "reset": True}]


def tokens(seed: int, count: int) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(10, 1000) for _ in range(count)]


@pytest.mark.parametrize("spec", ["Posix", "Cache|Dram", "Dram"])
def test_pipelines(site: Site, truth: Truth, spec: str) -> None:
    told = site.run(AGAIN, extra=site.extra(spec=spec))
    assert_same(told["rounds"], truth.of(AGAIN))
    assert told["rounds"][1]["cached"][-1] >= 1024
    assert told["figures"]["ucmstore_loaded_blocks"] > 0
    if spec == "Posix":
        again = site.run(AGAIN[:1], extra=site.extra(spec=spec))
        assert_same(again["rounds"], truth.of(AGAIN[:1]))
        assert again["rounds"][0]["cached"][-1] >= 1024


def test_requests_of_many_shapes(site: Site, truth: Truth) -> None:
    whole = tokens(5, 512)
    edges = [whole[:1], whole[:255], whole[:256], whole[:257], whole[:511], whole, [*whole, 7]]
    rounds: list[dict[str, Any]] = [
        {"prompts": edges},
        {"prompts": edges, "reset": True},
        {"prompts": edges},  # all of it in the engine's own cache
        {"prompts": [whole, tokens(6, 300)], "sampling": {"prompt_logprobs": 0}, "reset": True},
        {
            "prompts": [[*whole, 9]],
            "sampling": {"n": 2, "temperature": 0.01, "max_tokens": 4},
            "reset": True,
        },
        {"prompts": [tokens(7, 1900)], "reset": True},  # in chunks
        {"prompts": [tokens(7, 1900)], "reset": True},
        {"prompts": [tokens(i, 5) for i in range(200)], "sampling": {"max_tokens": 2}},
    ]
    told = site.run(rounds)
    true = truth.of(rounds)
    assert_same(told["rounds"], true)
    for cached, least in zip(
        told["rounds"][1]["cached"], [0, 0, 0, 256, 256, 256, 512], strict=True
    ):
        assert cached >= least
    assert told["rounds"][6]["cached"] == [1792]
    for row, expected in zip(
        told["rounds"][3]["prompt_logprobs"], true[3]["prompt_logprobs"], strict=True
    ):
        assert row[1:] == pytest.approx(expected[1:], abs=0.2)


def test_tenants_share_nothing(site: Site, truth: Truth) -> None:
    prompts = PROMPTS[4:]
    rounds: list[dict[str, Any]] = [
        {"prompts": prompts, "salts": ["one"] * 4},
        {"prompts": prompts, "salts": ["two"] * 4, "reset": True},
        {"prompts": prompts, "salts": ["one"] * 4, "reset": True},
    ]
    told = site.run(rounds)
    assert_same(told["rounds"], truth.of(rounds))
    assert told["rounds"][1]["cached"][0] == 0
    assert told["rounds"][2]["cached"][0] >= 512


def test_what_a_reply_adds_is_found_in_the_next_turn(site: Site, truth: Truth) -> None:
    sampling = {"max_tokens": 300}
    first = [{"prompts": [tokens(8, 300)], "sampling": sampling}]
    reply = truth.of(first)[0]["tokens"][0]
    turn = {"prompts": [[*tokens(8, 300), *reply, *tokens(9, 40)]]}
    told = site.run([*first, {**turn, "reset": True}])
    assert_same(told["rounds"], truth.of([*first, turn]))
    assert told["rounds"][1]["cached"] == [512]


def test_s05_new_weights_find_nothing(site: Site, truth: Truth) -> None:
    rounds = [AGAIN[0], {"prompts": PROMPTS, "reset": "connector"}, AGAIN[1]]
    told = site.run(rounds)
    assert_same(told["rounds"], truth.of(rounds))
    assert told["rounds"][1]["cached"][0] == 0
    assert told["rounds"][2]["cached"][0] >= 256  # of its own epoch
    again = site.run(AGAIN[:1])
    assert again["rounds"][0]["cached"][-1] >= 1024  # of the weights that a new engine has


@pytest.mark.parametrize(
    "engine",
    [
        {"enable_prefix_caching": False},
        {"num_gpu_blocks_override": 70, "max_num_seqs": 8, "max_model_len": 1200},  # preempts
        {"max_num_batched_tokens": 2048, "block_size": 128},
    ],
)
def test_engines_of_many_shapes(site: Site, truth: Truth, engine: dict[str, Any]) -> None:
    sampling = {"max_tokens": 80}
    rounds = [{**one, "sampling": sampling} for one in AGAIN]
    # In float32: other chunks and batches mean other orders of sums.
    told = site.run(rounds, engine=engine, dtype="float32")
    assert_same(told["rounds"], truth.of(rounds, dtype="float32"), 0.002)
    assert told["figures"]["ucmstore_loaded_blocks"] > 0
    if "num_gpu_blocks_override" in engine:
        assert told["figures"]["num_preemptions"] > 0


def test_a_consumer_never_writes_and_a_producer_never_reads(site: Site, truth: Truth) -> None:
    true = truth.of(AGAIN)
    told = site.run(AGAIN, role="kv_consumer")
    assert_same(told["rounds"], true)
    assert not site.blocks()
    told = site.run(AGAIN, role="kv_producer")
    assert_same(told["rounds"], true)
    assert site.blocks()
    assert told["figures"]["ucmstore_loaded_blocks"] == 0
    assert told["figures"].get("external_prefix_cache_hits", 0) == 0


def test_below_a_multi_connector(site: Site, truth: Truth, tmp_path: Path) -> None:
    other = {
        "kv_connector": "UcmStoreConnector",
        "kv_connector_module_path": "ucmstore.integrations.vllm",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {**site.extra(spec="Posix"), "root": str(tmp_path / "other")},
    }
    told = site.run(AGAIN, beside=other)
    assert_same(told["rounds"], truth.of(AGAIN))
    assert told["rounds"][1]["cached"][-1] >= 1024
    assert site.blocks()
    assert list((tmp_path / "other").rglob("UCMSTORE"))


def test_sliding_windows_are_refused_or_kept_whole(
    site: Site, truth: Truth, tmp_path: Path
) -> None:
    import torch
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    torch.manual_seed(1)
    config = Gemma3TextConfig(
        vocab_size=1024,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=64,
        sliding_window=128,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
        initializer_range=0.2,
    )
    Gemma3ForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path / "gemma")
    name = str(tmp_path / "gemma")
    assert "--disable-hybrid-kv-cache-manager" in site.start(AGAIN, model=name).failure()
    engine = {"disable_hybrid_kv_cache_manager": True}
    told = site.run(AGAIN, model=name, engine=engine)
    assert_same(told["rounds"], truth.of(AGAIN, model=name, engine=engine))
    assert told["figures"]["ucmstore_loaded_blocks"] > 0
