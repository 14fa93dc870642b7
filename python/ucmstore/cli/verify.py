# SPDX-License-Identifier: Apache-2.0
"""`ucmstore verify ROOT`: read everything, check everything, say what is bad; repair if asked."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ucmstore.cli.admin import Action, Entry, Kind, Verdict, Walk, walk
from ucmstore.cli.output import (
    EXIT_BAD,
    JsonFlag,
    cell,
    facts,
    human_bytes,
    in_words,
    print_json,
    progress,
    stdout,
)

_MAX_LISTED = 10_000  # a report of a broken disk stays a report
_MAX_SHOWN = 50
_REMARKABLE = (Verdict.TORN, Verdict.CORRUPT, Verdict.UNREADABLE, Verdict.LEFTOVER)


@dataclass
class Report:
    """What was found, and what was done about it."""

    blocks: int = 0
    bytes: int = 0
    verdicts: dict[Verdict, int] = field(default_factory=lambda: dict.fromkeys(Verdict, 0))
    actions: dict[Action, int] = field(default_factory=lambda: dict.fromkeys(Action, 0))
    set_aside_before: int = 0
    foreign: int = 0
    bad: int = 0
    bad_namespaces: list[Entry] = field(default_factory=list)
    listed: list[Entry] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        """Take one entry in."""
        self.actions[entry.action] += 1
        if entry.kind == Kind.BLOCK:
            self.blocks += 1
            self.bytes += entry.size_bytes
        elif entry.kind == Kind.SET_ASIDE:
            self.set_aside_before += 1
        elif entry.kind == Kind.FOREIGN:
            self.foreign += 1
        # Unknown promises nothing: foreign files and what was set aside are counted by kind.
        self.verdicts[entry.verdict] += 1
        self.bad += entry.bad
        if entry.bad_namespace:
            self.bad_namespaces.append(entry)
        if entry.verdict in _REMARKABLE and len(self.listed) < _MAX_LISTED:
            self.listed.append(entry)

    def to_json(self) -> dict[str, Any]:
        """Plain data; `bad` is what is torn, corrupt or unreadable, leftovers are not."""
        return {
            "ok": not self.bad,
            "blocks": self.blocks,
            "bytes": self.bytes,
            "bad": self.bad,
            "bad_namespaces": len(self.bad_namespaces),
            "torn": self.verdicts[Verdict.TORN],
            "corrupt": self.verdicts[Verdict.CORRUPT],
            "unreadable": self.verdicts[Verdict.UNREADABLE],
            "leftovers": self.verdicts[Verdict.LEFTOVER],
            "in_use": self.verdicts[Verdict.IN_USE],
            "set_aside_before": self.set_aside_before,
            "foreign": self.foreign,
            "repaired": {
                "set_aside": self.actions[Action.SET_ASIDE],
                "removed": self.actions[Action.REMOVED],
                "failed": self.actions[Action.FAILED],
            },
            "entries": [
                {
                    "path": entry.path,
                    "namespace": entry.namespace,
                    "verdict": entry.verdict.name.lower(),
                    "why": entry.text,
                    "action": entry.action.name.lower(),
                }
                for entry in self.listed
            ],
        }


def verify(root: Path, *, repair: bool, namespace: str | None, quiet: bool) -> Report:
    """Read and check everything below `root`."""
    report = Report()
    seen = 0
    with progress("verifying files", None, quiet=quiet) as bar:

        def see(entry: Entry) -> None:
            nonlocal seen
            seen += 1
            report.add(entry)
            if seen % 64 == 0:
                bar(seen)

        flags = Walk.READ | (Walk.REPAIR if repair else Walk.LOOK)
        walk(root, flags, see, namespace=namespace, total=bar.set_total)
        bar(seen)
    return report


def _summary(report: Report, seconds: float, *, repair: bool) -> list[tuple[str, str]]:
    rate = report.bytes / seconds if seconds else 0.0
    rows = [
        (
            "blocks",
            f"{report.blocks:,}, {human_bytes(report.bytes)} in {seconds:.1f} s, "
            f"{human_bytes(rate)}/s",
        ),
        ("bad", f"{report.bad:,}"),
    ]
    for name, count in (
        ("  whole namespaces", len(report.bad_namespaces)),
        ("  torn", report.verdicts[Verdict.TORN]),
        ("  corrupt", report.verdicts[Verdict.CORRUPT]),
        ("  unreadable", report.verdicts[Verdict.UNREADABLE]),
        ("leftovers of dead writers", report.verdicts[Verdict.LEFTOVER]),
        ("being written", report.verdicts[Verdict.IN_USE]),
        ("set aside earlier", report.set_aside_before),
        ("foreign files", report.foreign),
    ):
        if count:
            rows.append((name, f"{count:,}"))
    if repair:
        rows.append(
            (
                "repaired",
                f"{report.actions[Action.SET_ASIDE]:,} set aside, "
                f"{report.actions[Action.REMOVED]:,} removed, "
                f"{report.actions[Action.FAILED]:,} failed",
            )
        )
    return rows


def _list(entries: list[Entry]) -> Table:
    table = Table()
    for heading in ("verdict", "path", "why", "done"):
        table.add_column(heading, overflow="fold")
    for entry in entries[:_MAX_SHOWN]:
        done = "" if entry.action == Action.NONE else entry.action.name.lower().replace("_", " ")
        table.add_row(entry.verdict.name.lower(), cell(entry.path), cell(entry.text), done)
    return table


def _way_out(namespace: Entry) -> str:
    """What brings the blocks of a namespace back."""
    if namespace.verdict == Verdict.UNREADABLE:
        return (
            f"{namespace.path} cannot be read ({namespace.text}), so its blocks were not: see to "
            "that first."
        )
    return (
        f"{namespace.path}/UCMSTORE is damaged, so no store opens this namespace; its blocks were "
        "not read. Delete that file: the next store that opens the namespace with the options "
        "that it had makes it anew, and finds the blocks. Then verify again."
    )


@in_words
def command(
    root: Annotated[Path, typer.Argument(help="The root of a store.")],
    repair: Annotated[
        bool, typer.Option("--repair", help="Set bad files aside, remove leftovers.")
    ] = False,
    namespace: Annotated[
        str | None, typer.Option(metavar="LABEL", help="Only this namespace.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Read and check every block below a root, while engines use it or not.

    Exit code 0: all good. 1: a block, or a whole namespace, is torn, corrupt or unreadable (also
    when --repair dealt with it). Leftovers of dead writers are reported and are not an error: no
    reader can see them.
    """
    started = time.perf_counter()
    report = verify(root, repair=repair, namespace=namespace, quiet=as_json)
    seconds = time.perf_counter() - started
    if as_json:
        print_json({"root": str(root), "seconds": round(seconds, 3), **report.to_json()})
    else:
        console = stdout()
        if report.listed:
            console.print(_list(report.listed))
            if len(report.listed) > _MAX_SHOWN:
                console.print(f"… and more; --json lists up to {_MAX_LISTED:,}.")
        console.print(facts(f"{root}", _summary(report, seconds, repair=repair)))
        leftovers = report.verdicts[Verdict.LEFTOVER]
        if not report.blocks and not report.bad_namespaces:
            console.print("There are no blocks here.")
        for entry in report.bad_namespaces[:_MAX_SHOWN]:
            console.print(cell(_way_out(entry)))
        if not repair and (report.bad > len(report.bad_namespaces) or leftovers):
            console.print("Run again with --repair to set bad files aside and remove leftovers.")
    if report.bad:
        raise typer.Exit(EXIT_BAD)
