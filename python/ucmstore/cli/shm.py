# SPDX-License-Identifier: Apache-2.0
"""`ucmstore shm ls|inspect|rm`: the rings of Cache in a folder of shared memory, looked at without
joining them. Removing one that is in use harms nobody: its processes keep it until they end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ucmstore.cli.admin import Entry, Kind, Verdict, Walk, inspect, walk
from ucmstore.cli.output import (
    EXIT_BAD,
    JsonFlag,
    cell,
    facts,
    fail,
    human_bytes,
    in_words,
    print_json,
    stdout,
)
from ucmstore.errors import CorruptionError

FOLDER = Path("/dev/shm")  # where Cache puts them unless told otherwise

Folder = Annotated[Path, typer.Option("--path", help="The folder of the segments: Cache's `path`.")]
Name = Annotated[str, typer.Argument(help="A segment's name, as `shm ls` shows it.")]

app = typer.Typer(no_args_is_help=True, help="The shared-memory rings of Cache.")

_WORDS = {
    Verdict.GOOD: "unused",
    Verdict.IN_USE: "in use",
    Verdict.CORRUPT: "damaged",
    Verdict.UNREADABLE: "unreadable",
    Verdict.UNKNOWN: "not of this release",
}


def _find(folder: Path, name: str | None = None) -> list[Entry]:
    found: list[Entry] = []
    walk(folder, Walk.LOOK, found.append, namespace=name, stage="Cache")
    return found


def _one(folder: Path, name: str, *, as_json: bool) -> Entry:
    found = [entry for entry in _find(folder, name) if entry.kind == Kind.SEGMENT]
    if not found:
        raise fail(f"{folder}: no ring is named {name}; see `ucmstore shm ls`", as_json=as_json)
    return found[-1]


@app.command("ls")
@in_words
def ls_command(path: Folder = FOLDER, as_json: JsonFlag = False) -> None:
    """List the rings: name, size, whether a process uses it."""
    found = _find(path)
    if as_json:
        print_json(
            {
                "path": str(path),
                "rings": [
                    {
                        "name": entry.namespace,
                        "file": entry.path,
                        "bytes": entry.size_bytes,
                        "state": _WORDS[entry.verdict],
                        "text": entry.text,
                    }
                    for entry in found
                ],
            }
        )
        return
    if not found:
        stdout().print(cell(f"{path}: no ring here"))
        return
    table = Table(title=cell(f"{path}"), title_justify="left")
    for heading in ("ring", "size", "state", ""):
        table.add_column(heading, overflow="fold")
    for entry in found:
        table.add_row(
            cell(entry.namespace),
            human_bytes(entry.size_bytes),
            _WORDS[entry.verdict],
            cell(entry.text),
        )
    stdout().print(table)


@app.command("inspect")
@in_words
def inspect_command(name: Name, path: Folder = FOLDER, as_json: JsonFlag = False) -> None:
    """Describe a ring: whose blocks it holds, who uses it, what its slots are. Exit 1: damaged."""
    entry = _one(path, name, as_json=as_json)
    try:
        fields = inspect(Path(entry.path), stage="Cache")
    except CorruptionError as error:
        raise fail(str(error), as_json=as_json, code=EXIT_BAD) from error
    if as_json:
        print_json(
            {
                "path": entry.path,
                "fields": [{"name": field, "value": value} for field, value in fields],
            }
        )
    else:
        rows = [(field, value.rstrip()) for field, value in fields]
        stdout().print(facts(entry.path, rows))


@app.command("rm")
@in_words
def rm_command(
    name: Name,
    path: Folder = FOLDER,
    force: Annotated[
        bool, typer.Option("--force", help="Also one in use, or with blocks not written back.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove a ring, unless it is in use, or holds confirmed blocks that are nowhere else."""
    entry = _one(path, name, as_json=as_json)
    if not force and entry.verdict == Verdict.IN_USE:
        raise fail(f"{entry.path}: processes use it; end them, or --force", as_json=as_json)
    if not force and entry.verdict == Verdict.GOOD:
        states = dict(inspect(Path(entry.path), stage="Cache"))
        dirty = int(states["slots_dirty"]) + int(states["slots_flushing"])
        if dirty:
            raise fail(
                f"{entry.path}: {dirty} blocks in it were confirmed and are not written back; open "
                "its store once, or --force",
                as_json=as_json,
            )
    Path(entry.path).unlink()
    if as_json:
        print_json({"removed": entry.path})
    else:
        stdout().print(cell(f"{entry.path}: removed, {human_bytes(entry.size_bytes)}"))
