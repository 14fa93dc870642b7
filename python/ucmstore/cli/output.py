# SPDX-License-Identifier: Apache-2.0
"""How every command speaks: one JSON document or a rich table on stdout, the rest on stderr.

Exit codes are the same everywhere: 0 good, 1 something bad was found, 2 the command could not do
what was asked (a wrong option, a missing folder). Single-threaded.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from ucmstore.errors import Error

EXIT_GOOD = 0
EXIT_BAD = 1
EXIT_USAGE = 2

_WIDTH_OF_A_FILE = 120  # a pipe has no width, and a path is long

P = ParamSpec("P")
R = TypeVar("R")

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of words.")]


def stdout() -> Console:
    """The console of results. Made anew each time, since tests replace the stream."""
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDTH_OF_A_FILE
    return console


def stderr() -> Console:
    """The console of progress and errors."""
    return Console(stderr=True, highlight=False)


def print_json(document: Any) -> None:
    """Print one JSON document, keys in the order given."""
    typer.echo(json.dumps(document, indent=2))


def harmless(text: str) -> str:
    """`text` with nothing in it that a terminal obeys: control characters as \\x1b, \\n, \\u202e.

    Names on a disk are anybody's choice, and so are the errors that quote them.
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def cell(text: str) -> Text:
    """The cell of a table: harmless, and no markup."""
    return Text("\n".join(map(harmless, text.split("\n"))), overflow="fold")


def fail(message: str, *, as_json: bool, code: int = EXIT_USAGE) -> typer.Exit:
    """Say in words what is wrong; raise what is returned."""
    if as_json:
        print_json({"error": message})
    stderr().print(f"error: {harmless(message)}", style="red", markup=False, soft_wrap=True)
    return typer.Exit(code)


def in_words(command: Callable[P, R]) -> Callable[P, R]:
    """Turn the errors a user can cause into one line and exit code 2, without a traceback."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        as_json = bool(kwargs.get("as_json", False))
        try:
            return command(*args, **kwargs)
        except (Error, OSError, ValueError) as error:
            raise fail(str(error), as_json=as_json) from error
        except KeyboardInterrupt:
            raise fail("interrupted", as_json=as_json, code=130) from None

    return wrapped


class Bar:
    """A progress bar: call it with how far things are."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def __call__(self, done: int) -> None:
        self._progress.update(self._task, completed=done)

    def set_total(self, total: int) -> None:
        """Say how far it goes, once that is known."""
        self._progress.update(self._task, total=total)


@contextmanager
def progress(what: str, total: int | None, *, quiet: bool = False) -> Iterator[Bar]:
    """A progress bar on stderr, if that is a terminal and the command is not to be quiet."""
    console = stderr()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    shown = console.is_terminal and not quiet
    with Progress(*columns, console=console, disable=not shown, transient=True) as bar:
        yield Bar(bar, bar.add_task(what, total=total))


def facts(title: str, rows: list[tuple[str, str]]) -> Table:
    """A two-column table of names and values."""
    table = Table(title=cell(title), show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(cell(name), cell(value))
    return table


def human_bytes(count: float) -> str:
    """1536 -> "1.5 KiB"."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def human_duration(seconds: float) -> str:
    """0.000012 -> "12.0 µs"."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.2f} ms"
    return f"{seconds:.2f} s"
