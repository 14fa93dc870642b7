# SPDX-License-Identifier: Apache-2.0
"""`ucmstore replay TRACE`: serve a real trace from a real store and check every byte."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import ucmstore
from ucmstore import _core
from ucmstore.cli.output import (
    EXIT_BAD,
    JsonFlag,
    facts,
    human_bytes,
    human_duration,
    in_words,
    print_json,
    progress,
    stdout,
)
from ucmstore.cli.stages import parse_settings
from ucmstore.cli.trace import Trace, chain, read_trace
from ucmstore.cli.workload import Client, Figures


@dataclass(frozen=True)
class Plan:
    """What to replay, and on what."""

    pipeline: str
    roots: list[str]
    block_bytes: int
    shards: int
    settings: dict[str, dict[str, Any]]

    def stage_options(self) -> dict[str, dict[str, Any]]:
        """The options of each stage; --root goes to Posix, if the pipeline has it."""
        options = {stage: dict(values) for stage, values in self.settings.items()}
        stages = [part.strip().lower() for part in self.pipeline.split("|")]
        if self.roots:
            if "posix" not in stages:
                raise ValueError(f"--root: the pipeline {self.pipeline!r} has no stage Posix")
            options.setdefault("posix", {}).setdefault("roots", self.roots)
        return options


def open_store(plan: Plan, trace: Trace) -> ucmstore.Store:
    """Open the store; blocks of different traces never meet."""
    if plan.shards < 1 or plan.block_bytes % plan.shards:
        raise ValueError(f"--shards {plan.shards} does not divide --block-bytes {plan.block_bytes}")
    return ucmstore.open(
        plan.pipeline,
        shard_size=plan.block_bytes // plan.shards,
        shards_per_block=plan.shards,
        namespace=namespace_of(trace),
        stages=plan.stage_options(),
    )


def namespace_of(trace: Trace) -> ucmstore.Namespace:
    """The trace's content is what makes its ids mean what they mean."""
    return ucmstore.Namespace(model=f"trace-{trace.name}", revision=trace.fingerprint)


def run(plan: Plan, trace: Trace, *, quiet: bool) -> tuple[Figures, float]:
    """Replay every request in order; give the figures and the seconds it took."""
    name_space = namespace_of(trace)
    with open_store(plan, trace) as store:
        client = Client(store, plan.block_bytes, trace.longest)
        started = time.perf_counter()
        with progress("replaying requests", len(trace.requests), quiet=quiet) as advance_to:
            for index, numbers in enumerate(trace.requests, start=1):
                client.serve(name_space.derive(chain(numbers), width=32))
                if index % 64 == 0:
                    advance_to(index)
        return client.figures, time.perf_counter() - started


def _rows(figures: Figures, seconds: float) -> list[tuple[str, str]]:
    rows = [
        ("requests", f"{figures.requests:,} in {seconds:.1f} s"),
        ("references", f"{figures.references:,}"),
        ("prefix hits", f"{figures.prefix_hits:,}"),
        ("hit rate", f"{100 * figures.hit_rate:.2f} %"),
        (
            "blocks loaded",
            f"{figures.blocks_loaded:,}, {human_bytes(figures.bytes_loaded)}, "
            f"{human_bytes(figures.rate('load', figures.bytes_loaded))}/s",
        ),
        (
            "blocks stored",
            f"{figures.blocks_stored:,}, {human_bytes(figures.bytes_stored)}, "
            f"{human_bytes(figures.rate('dump', figures.bytes_stored))}/s",
        ),
    ]
    rows += [
        (
            f"{name} p50 / p99",
            f"{human_duration(figures.latency_s(name, 50))} / "
            f"{human_duration(figures.latency_s(name, 99))}",
        )
        for name, samples in figures.nanoseconds.items()
        if samples
    ]
    rows.append(("mismatches", f"{figures.mismatches:,}"))
    for name, count in (
        ("hits lost before load", figures.lost_hits),
        ("refused as corrupt", figures.corrupt),
        ("failed", figures.failed),
    ):
        if count:
            rows.append((name, f"{count:,}"))
    if figures.first_failure:
        rows.append(("first failure", figures.first_failure))
    return rows


@in_words
def command(
    trace: Annotated[Path, typer.Argument(help="A trace: JSON lines with `hash_ids`.")],
    pipeline: Annotated[str, typer.Option(help="The pipeline, topmost stage first.")] = "Posix",
    root: Annotated[list[Path] | None, typer.Option(help="A root of Posix; repeatable.")] = None,
    block_bytes: Annotated[str, typer.Option(help="Size of a block.")] = "4KiB",
    shards: Annotated[int, typer.Option(min=1, help="Shards in a block.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N requests.")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="STAGE.OPTION=VALUE", help="A stage's option; repeatable."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Replay every request of a trace in order: look up, load and check the hits, dump the rest.

    Exit code 1 if any byte was wrong, or if a load or a dump failed for a reason other than the
    block being gone.
    """
    plan = Plan(
        pipeline,
        [str(path) for path in root or []],
        _core.parse_size(block_bytes),
        shards,
        parse_settings(setting or []),
    )
    read = read_trace(trace, limit)
    figures, seconds = run(plan, read, quiet=as_json)
    if as_json:
        print_json(
            {
                "trace": str(trace),
                "pipeline": pipeline,
                "block_bytes": plan.block_bytes,
                "shards_per_block": shards,
                "seconds": round(seconds, 3),
                **figures.to_json(),
            }
        )
    else:
        stdout().print(facts(f"{trace.name} on {pipeline}", _rows(figures, seconds)))
    if figures.mismatches or figures.failed:
        raise typer.Exit(EXIT_BAD)
