# SPDX-License-Identifier: Apache-2.0
"""`ucmstore ls ROOT`: the namespaces below a root, with blocks, bytes and ages.
`ucmstore inspect PATH`: one block file, namespace or root, every field in words."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ucmstore.cli.admin import Tally, inspect, tally
from ucmstore.cli.output import (
    EXIT_BAD,
    JsonFlag,
    cell,
    facts,
    fail,
    human_bytes,
    in_words,
    print_json,
    progress,
    stdout,
)
from ucmstore.errors import CorruptionError


def _when(mtime_ns: int) -> str | None:
    if not mtime_ns:
        return None
    return datetime.fromtimestamp(mtime_ns / 1e9, UTC).isoformat(timespec="seconds")


def _table(root: Path, tallies: dict[str, Tally]) -> Table:
    table = Table(title=cell(f"{root}"), title_justify="left")
    for heading, justify in (
        ("namespace", "left"),
        ("blocks", "right"),
        ("on disk", "right"),
        ("oldest", "left"),
        ("newest", "left"),
        ("besides", "left"),
    ):
        table.add_column(
            heading, justify="right" if justify == "right" else "left", overflow="fold"
        )
    for label, counts in sorted(tallies.items()):
        besides = [
            f"{count:,} {what}"
            for count, what in (
                (counts.activated, "being written"),
                (counts.leftovers, "leftovers"),
                (counts.set_aside, "set aside"),
                (counts.foreign, "foreign"),
            )
            if count
        ]
        if counts.damaged:
            besides.insert(0, "damaged: see `ucmstore verify`")
        table.add_row(
            cell(label or "(none)"),
            f"{counts.blocks:,}",
            human_bytes(counts.disk_bytes),
            _when(counts.oldest_ns) or "",
            _when(counts.newest_ns) or "",
            ", ".join(besides),
        )
    return table


@in_words
def command(
    root: Annotated[Path, typer.Argument(help="The root of a store.")],
    as_json: JsonFlag = False,
) -> None:
    """List the namespaces below a root: blocks, bytes, oldest and newest (UTC)."""
    with progress("looking at files", None, quiet=as_json) as bar:
        tallies = tally(root, total=bar.set_total, seen=bar)
    if not as_json:
        stdout().print(_table(root, tallies) if tallies else cell(f"{root}: no namespace here"))
        return
    print_json(
        {
            "root": str(root),
            "namespaces": [
                {
                    "label": label,
                    "blocks": counts.blocks,
                    "block_bytes": counts.block_bytes,
                    "disk_bytes": counts.disk_bytes,
                    "oldest": _when(counts.oldest_ns),
                    "newest": _when(counts.newest_ns),
                    "activated": counts.activated,
                    "leftovers": counts.leftovers,
                    "set_aside": counts.set_aside,
                    "foreign": counts.foreign,
                    "damaged": counts.damaged,
                }
                for label, counts in sorted(tallies.items())
            ],
        }
    )


@in_words
def inspect_command(
    path: Annotated[Path, typer.Argument(help="A block file, a namespace's folder, or a root.")],
    as_json: JsonFlag = False,
) -> None:
    """Describe a block file, a namespace or a root, every field in words.

    Exit code 1 if it is torn or corrupt.
    """
    try:
        fields = inspect(path)
    except CorruptionError as error:
        raise fail(str(error), as_json=as_json, code=EXIT_BAD) from error
    if as_json:
        print_json(
            {
                "path": str(path),
                "fields": [{"name": name, "value": value} for name, value in fields],
            }
        )
    else:
        stdout().print(facts(f"{path}", [(name, value.rstrip()) for name, value in fields]))
    if dict(fields).get("verdict", "good") != "good":
        raise typer.Exit(EXIT_BAD)
