# SPDX-License-Identifier: Apache-2.0
"""`ucmstore demo`: the main job in a few seconds. A chat workload of many turns is served twice, by
two processes one after the other; the second finds on disk what the first stored.

Each serving process is a process of its own (`ucmstore demo --serve ROOT`, hidden), so nothing but
the files can carry a block from one to the other.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.table import Table

import ucmstore
from ucmstore.cli.output import (
    EXIT_BAD,
    JsonFlag,
    human_bytes,
    in_words,
    print_json,
    stderr,
    stdout,
)
from ucmstore.cli.workload import Client

PIPELINE = "Posix"
BLOCK_TOKENS = 64
SHARDS = 4  # layers, say
SHARD_BYTES = 64 << 10
CHATS = 12
TURNS = 6
SYSTEM_TOKENS = 640  # of a prompt that all chats share
_SERVE_TIMEOUT_S = 120

Tokens = npt.NDArray[np.int64]


def name_space() -> ucmstore.Namespace:
    """What the demo's blocks are made of."""
    return ucmstore.Namespace(model="ucmstore-demo", dtype="bfloat16", block_tokens=BLOCK_TOKENS)


def prompts() -> Iterator[Tokens]:
    """The prompts in the order in which they arrive: turn by turn, every chat in each turn.

    A prompt is the system prompt, all earlier turns with their answers, and a new question.
    """
    random = np.random.default_rng(20240229)  # any number, but always the same
    system = random.integers(0, 32_000, SYSTEM_TOKENS)
    chats = [system] * CHATS
    for _turn in range(TURNS):
        for chat in range(CHATS):
            question = random.integers(0, 32_000, random.integers(60, 200))
            answer = random.integers(0, 32_000, random.integers(40, 260))
            prompt = np.concatenate([chats[chat], question])
            yield prompt
            chats[chat] = np.concatenate([prompt, answer])


def serve(root: Path) -> dict[str, Any]:
    """Serve the whole workload from a store at `root`; give the figures."""
    hasher = ucmstore.BlockHasher(name_space())
    requests = [hasher.hash(tokens) for tokens in prompts()]
    with ucmstore.open(
        PIPELINE,
        shard_size=SHARD_BYTES,
        shards_per_block=SHARDS,
        namespace=name_space(),
        posix={"roots": [str(root)]},
    ) as store:
        client = Client(store, SHARD_BYTES * SHARDS, max(len(ids) for ids in requests))
        for ids in requests:
            client.serve(ids)
    return client.figures.to_json()


def _serve_in_new_process(root: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "ucmstore.cli", "demo", "--serve", str(root)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=_SERVE_TIMEOUT_S
    )
    if done.returncode != 0:
        raise RuntimeError(f"a serving process ended with {done.returncode}: {done.stderr.strip()}")
    figures = json.loads(done.stdout)
    assert isinstance(figures, dict)
    return figures


def _table(first: dict[str, Any], second: dict[str, Any]) -> Table:
    table = Table(
        title=f"{CHATS} chats of {TURNS} turns, served twice by the pipeline {PIPELINE!r}",
        title_justify="left",
    )
    for heading in ("", "first process", "second process"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, key in (
        ("requests", "requests"),
        ("blocks asked for", "references"),
        ("found (prefix hits)", "prefix_hits"),
    ):
        table.add_row(name, f"{first[key]:,}", f"{second[key]:,}")
    table.add_row("hit rate", *(f"{100 * run['hit_rate']:.1f} %" for run in (first, second)))
    for name, blocks, size in (
        ("loaded", "blocks_loaded", "bytes_loaded"),
        ("stored", "blocks_stored", "bytes_stored"),
    ):
        table.add_row(
            name, *(f"{run[blocks]:,} ({human_bytes(run[size])})" for run in (first, second))
        )
    table.add_row("wrong blocks", *(f"{run['mismatches']:,}" for run in (first, second)))
    return table


def _verdict(first: dict[str, Any], second: dict[str, Any]) -> str:
    """What went wrong, in words; "" if nothing did."""
    for name, run in (("first", first), ("second", second)):
        if run["mismatches"]:
            return f"the {name} process loaded {run['mismatches']} wrong blocks"
        if run["failed"]:
            return f"{run['failed']} transfers of the {name} process failed: {run['first_failure']}"
    if not first["blocks_stored"]:
        return "the first process stored nothing"
    if second["prefix_hits"] != second["references"] or second["blocks_stored"]:
        return (
            f"the second process found {second['prefix_hits']} of {second['references']} "
            "blocks; it should have found every one"
        )
    return ""


@in_words
def command(
    serve_root: Annotated[Path | None, typer.Option("--serve", hidden=True)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Serve a chat workload twice, in two processes; show the second finding what the first stored.

    Every byte is checked. Exit code 0 if all is well.
    """
    if serve_root is not None:
        print_json(serve(serve_root))
        return
    with (
        tempfile.TemporaryDirectory(prefix="ucmstore-demo-") as folder,
        stderr().status("serving the workload in two processes, one after the other"),
    ):
        first = _serve_in_new_process(Path(folder))
        second = _serve_in_new_process(Path(folder))
    wrong = _verdict(first, second)
    if as_json:
        print_json({"ok": not wrong, "problem": wrong, "first": first, "second": second})
    else:
        stdout().print(_table(first, second))
        stdout().print(
            f"[bold red]{wrong}[/]"
            if wrong
            else "[green]The second process found every block the first had stored, and "
            "every byte was right.[/]"
        )
    if wrong:
        raise typer.Exit(EXIT_BAD)
