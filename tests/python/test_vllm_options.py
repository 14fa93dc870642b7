# SPDX-License-Identifier: Apache-2.0
"""The parts of the vLLM connector that need no vLLM: options, geometry, content, the command."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ucmstore
from cli_support import cli
from ucmstore.integrations.vllm import identity
from ucmstore.integrations.vllm.geometry import MOST_BLOCK_TOKENS, derive
from ucmstore.integrations.vllm.options import parse


def test_the_shortest_options_are_enough() -> None:
    options = parse({"root": "/mnt/kv"})
    assert options.spec == "Cache|Posix"
    assert options.has_ring
    assert options.on_load_failure == "recompute"
    assert options.open_stages() == {"posix": {"roots": ["/mnt/kv"]}, "cache": {"capacity": "auto"}}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "'root' is missing"),
        ({"rot": "/mnt/kv"}, "did you mean 'root'"),
        ({"root": ""}, "give a folder"),
        ({"root": 3}, "give a folder"),
        ({"root": "/r", "load_timeout": "5"}, "give a number"),
        ({"root": "/r", "load_timeout": True}, "give a number"),
        ({"root": "/r", "min_hit_tokens": 2.5}, "give a number"),
        ({"root": "/r", "held_pages": 2}, "0.001 to 0.5"),
        ({"root": "/r", "load": "layerwise"}, "give 'async'"),
        ({"root": "/r", "on_load_failure": "retry"}, "'recompute' or 'fail'"),
        ({"root": "/r", "stages": {"cache": 5}}, "stages.cache"),
        ({"root": "/r", "namespace": {"tenant": 5}}, "namespace.tenant"),
        ({"root": "/r", "spec": ""}, "give a pipeline"),
        ({"root": "/r", "ring": None}, "'auto', or a size"),
    ],
)
def test_l06_a_bad_option_is_refused_in_words(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ucmstore.OptionError) as caught:
        parse(given)
    assert words in str(caught.value)


def test_stages_may_say_more_and_have_the_last_word() -> None:
    options = parse(
        {
            "root": ["/a", "/b"],
            "stages": {"posix": {"mode": "group"}, "cache": {"capacity": 1 << 30}},
        }
    )
    assert options.open_stages() == {
        "posix": {"mode": "group", "roots": ["/a", "/b"]},
        "cache": {"capacity": 1 << 30},
    }
    assert not parse({"spec": "Dram"}).has_ring
    assert parse({"spec": "Cache|Dram"}).is_private
    below = parse({"root": "/a", "stages": {"cache": {"name": "x"}}}).without_ring()
    assert below.spec == "Posix"
    assert below.open_stages() == {"posix": {"roots": ["/a"]}}


@pytest.mark.parametrize(
    ("page_bytes", "layers", "page_tokens", "tokens"),
    [
        (16 * 4096, 32, 16, 32),  # 8B: 4 MiB
        (16 * 4096, 80, 16, 16),  # 70B: 5 MiB
        (16 * 512, 80, 16, 64),  # one of its eight ranks: 2.5 MiB
        (128 * 768, 30, 128, 128),  # SmolLM2-135M on a CPU: 2.8 MiB
        (32 * 64, 2, 32, MOST_BLOCK_TOKENS),  # tiny: the bound
        (1 << 24, 100, 128, 128),  # huge: one page
    ],
)
def test_a_block_is_about_4_mib(
    page_bytes: int, layers: int, page_tokens: int, tokens: int
) -> None:
    geometry = derive(page_bytes, layers, page_tokens)
    assert geometry.block_tokens == tokens
    assert geometry.shard_bytes * geometry.shards_per_block == geometry.block_bytes
    assert layers % geometry.shards_per_block == 0
    assert geometry.shards_per_block == 1 or geometry.shard_bytes >= 512 << 10


def test_no_layers_are_refused() -> None:
    with pytest.raises(ucmstore.ArgumentError):
        derive(4096, 0, 16)


def config(**fields: Any) -> Any:
    return SimpleNamespace(to_dict=lambda: fields, _commit_hash=None)


def test_a10_other_weights_are_other_content(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"header" + bytes(1 << 17))
    first = identity.content(str(tmp_path), config())
    assert identity.content(str(tmp_path), config()) == first
    times = (weights.stat().st_atime_ns, weights.stat().st_mtime_ns)
    weights.write_bytes(b"headed" + bytes(1 << 17))
    os.utime(weights, ns=times)
    other = identity.content(str(tmp_path), config())
    assert other != first
    os.utime(weights, ns=(times[0], times[1] + 1))
    assert identity.content(str(tmp_path), config()) not in (first, other)


def test_a_hub_model_is_told_by_its_commit(tmp_path: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    folder = tmp_path / "snapshots" / commit
    folder.mkdir(parents=True)
    assert identity.content(str(folder), config()) == f"commit {commit}"
    known = SimpleNamespace(_commit_hash=commit)
    assert identity.content("owner/model", known) == f"commit {commit}"
    with pytest.raises(ucmstore.OptionError, match="no known commit"):
        identity.content("owner/model", config())


def test_hashes_of_one_process_only_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    identity.check_hashes("sha256")
    identity.check_hashes("sha256_cbor")
    with pytest.raises(ucmstore.OptionError, match="sha256"):
        identity.check_hashes("xxhash")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    identity.check_hashes("xxhash")


def test_vllm_args(tmp_path: Path) -> None:
    done = cli("vllm-args", str(tmp_path))
    assert done.code == 0, done.err
    name, _, value = done.out.strip().partition("=")
    assert name == "--kv-transfer-config"
    assert " " not in value
    assert parse(json.loads(value)["kv_connector_extra_config"]).root == (str(tmp_path),)
    assert cli("vllm-args", str(tmp_path), "--json").document == json.loads(value)
    assert cli("vllm-args", str(tmp_path / "no" / "where")).code == 2
    (tmp_path / "two words").mkdir()
    assert cli("vllm-args", str(tmp_path / "two words")).code == 2
