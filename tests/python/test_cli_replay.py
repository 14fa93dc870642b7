# SPDX-License-Identifier: Apache-2.0
"""`ucmstore replay` on a small trace of its own: figures that can be counted by hand, a second run,
a process killed in the middle, wrong bytes in the store."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_support import TIMEOUT_S, cli, command_line
from ucmstore.cli.replay import Plan, namespace_of, open_store
from ucmstore.cli.trace import TraceError, chain, read_trace

Requests = list[list[int]]


def make_requests(count: int, seed: int) -> Requests:
    """Requests that extend earlier ones, as chats do; every number has one predecessor."""
    random = np.random.default_rng(seed)
    requests: Requests = []
    fresh = 0
    for _ in range(count):
        earlier = requests[random.integers(len(requests))] if requests else []
        kept = int(random.integers(len(earlier) + 1))
        new = int(random.integers(1, 12))
        requests.append([*earlier[:kept], *range(fresh, fresh + new)])
        fresh += new
    return requests


def expected(requests: Requests) -> dict[str, int]:
    """The figures of a store that keeps everything."""
    seen: set[int] = set()
    hits = 0
    for numbers in requests:
        for number in numbers:
            if number not in seen:
                break
            hits += 1
        seen.update(numbers)
    return {
        "requests": len(requests),
        "references": sum(map(len, requests)),
        "prefix_hits": hits,
        "blocks_stored": len(seen),
        "mismatches": 0,
        "failed": 0,
    }


def write_trace(path: Path, requests: Requests) -> Path:
    path.write_text(
        "".join(json.dumps({"timestamp": 0, "hash_ids": numbers}) + "\n" for numbers in requests)
    )
    return path


def replay(trace: Path, root: Path, *more: str) -> dict[str, Any]:
    done = cli("replay", trace, "--root", root, "--json", *more)
    assert done.code == 0, done.err
    return done.document


@pytest.mark.parametrize("shards", [1, 4])
def test_replay_reproduces_the_figures(tmp_path: Path, shards: int) -> None:
    requests = make_requests(60, seed=shards)
    trace = write_trace(tmp_path / "trace.jsonl", requests)
    (tmp_path / "root").mkdir()
    want = expected(requests)
    first = replay(trace, tmp_path / "root", "--shards", str(shards))
    assert {name: first[name] for name in want} == want
    assert first["bytes_stored"] == want["blocks_stored"] * 4096
    assert first["bytes_loaded"] == want["prefix_hits"] * 4096
    assert first["latency_us"]["lookup"]["calls"] == want["requests"]
    assert first["hit_rate"] == pytest.approx(want["prefix_hits"] / want["references"], abs=1e-6)

    second = replay(trace, tmp_path / "root", "--shards", str(shards))
    assert second["prefix_hits"] == want["references"]
    assert second["blocks_stored"] == 0
    assert second["mismatches"] == 0


def test_replay_in_words(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "trace.jsonl", [[1, 2, 3], [1, 2, 4]])
    done = cli("replay", trace, "--pipeline", "Dram")
    assert done.code == 0, done.err
    for words in ("prefix hits", "33.33 %", "mismatches", "p50 / p99"):
        assert words in done.out


def test_replay_only_the_first_requests(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "trace.jsonl", [[1], [1, 2], [1, 2, 3]])
    assert replay(trace, tmp_path, "--limit", "2")["requests"] == 2


def test_equal_numbers_after_different_prefixes_are_different_blocks(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "trace.jsonl", [[1, 9], [2, 9]])
    figures = replay(trace, tmp_path)
    assert figures["prefix_hits"] == 0
    assert figures["blocks_stored"] == 4


def test_two_traces_never_share_blocks(tmp_path: Path) -> None:
    replay(write_trace(tmp_path / "a.jsonl", [[1, 2]]), tmp_path)
    assert replay(write_trace(tmp_path / "b.jsonl", [[1, 2], [3]]), tmp_path)["prefix_hits"] == 0


def block_count(root: Path) -> int:
    return sum(1 for path in root.glob("*/*/*") if len(path.name) == 32)


@pytest.mark.parametrize("blocks", [1, 150, 900])
def test_replay_killed_and_run_again(tmp_path: Path, blocks: int) -> None:
    requests = make_requests(400, seed=blocks)
    trace = write_trace(tmp_path / "trace.jsonl", requests)
    root = tmp_path / "root"
    root.mkdir()
    want = expected(requests)
    assert want["blocks_stored"] > 1500
    with subprocess.Popen(
        command_line("replay", trace, "--root", root, "--json"), stdout=subprocess.DEVNULL
    ) as process:
        while process.poll() is None and block_count(root) < blocks:
            pass
        process.kill()
        process.wait(TIMEOUT_S)
    survived = block_count(root)
    assert survived >= blocks

    again = replay(trace, root)
    assert again["mismatches"] == again["failed"] == again["corrupt"] == 0
    assert again["prefix_hits"] >= want["prefix_hits"]
    assert block_count(root) == want["blocks_stored"]
    assert replay(trace, root)["prefix_hits"] == want["references"]
    checked = cli("verify", root, "--json")
    assert checked.code == 0, checked.out
    assert checked.document["blocks"] == want["blocks_stored"]


def test_replay_finds_wrong_bytes(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.jsonl", [[1, 2, 3], [1, 2, 3, 4]])
    trace = read_trace(path)
    plan = Plan("Posix", [str(tmp_path)], 4096, 1, {})
    ids = namespace_of(trace).derive(chain([1, 2, 3]), width=32)
    wrong = np.zeros((1, 4096), dtype=np.uint8)
    with open_store(plan, trace) as store:
        store.dump(ids[1:2], source=wrong).wait()
    done = cli("replay", path, "--root", tmp_path, "--json")
    assert done.code == 1
    assert done.document["mismatches"] == 1, "block 2 is found by the second request, and wrong"
    assert done.document["prefix_hits"] == 3


def test_replay_dumps_again_what_was_refused_as_corrupt(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.jsonl", [[1, 2, 3]])
    replay(path, tmp_path)
    for block in tmp_path.glob("*/*/*"):
        data = bytearray(block.read_bytes())
        data[77] ^= 1
        block.write_bytes(data)
    second = replay(path, tmp_path)
    assert (second["corrupt"], second["mismatches"], second["blocks_stored"]) == (3, 0, 3)
    third = replay(path, tmp_path)
    assert (third["corrupt"], third["prefix_hits"], third["blocks_stored"]) == (0, 3, 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no request"),
        ("not json\n", "line 1"),
        ('{"hash_ids": [1]}\n{"hash": [1]}\n', "line 2"),
        ('{"hash_ids": [1, "2"]}\n', "whole number"),
        ('{"hash_ids": [true]}\n', "whole number"),
        ("[]\n", "hash_ids"),
    ],
)
def test_a_bad_trace_is_said_in_words(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(TraceError, match=words):
        read_trace(path)
    done = cli("replay", path, "--root", tmp_path)
    assert done.code == 2
    assert words in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--block-bytes", "4 parsecs"], "parsecs"),
        (["--block-bytes", "4096", "--shards", "3"], "does not divide"),
        (["--pipeline", "Dram", "--root", "/x"], "no stage Posix"),
        (["--pipeline", "Possix"], "Posix"),
        (["--set", "posix.root=/x"], "roots"),
        (["--set", "pozix.roots=/x"], "posix"),
        (["--set", "nonsense"], "STAGE.OPTION=VALUE"),
        (["--set", "store.workers=many"], "int"),
        ([], "roots"),
    ],
)
def test_replay_says_what_is_wrong_with_its_options(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    trace = write_trace(tmp_path / "trace.jsonl", [[1]])
    done = cli("replay", trace, *arguments)
    assert done.code == 2
    assert words in done.err
    assert "Traceback" not in done.err


def test_replay_of_a_missing_trace(tmp_path: Path) -> None:
    done = cli("replay", tmp_path / "none.jsonl", "--root", tmp_path, "--json")
    assert done.code == 2
    assert "none.jsonl" in done.document["error"]
