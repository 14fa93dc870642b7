# SPDX-License-Identifier: Apache-2.0
"""`ucmstore purge ROOT`: remove the blocks of one namespace, or of all, while engines use the root.
What a live writer is writing stays; an engine that had found a purged block gets not-found."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any

import typer

from ucmstore.cli.admin import Tally, Walk, tally
from ucmstore.cli.output import (
    EXIT_BAD,
    JsonFlag,
    cell,
    fail,
    harmless,
    human_bytes,
    in_words,
    print_json,
    progress,
    stdout,
)
from ucmstore.errors import Error, NotFoundError

_DAMAGED = (
    "its UCMSTORE is damaged or not to be read, so nothing says which files are its blocks; "
    "`ucmstore verify` says more"
)


def _chosen(tallies: dict[str, Tally], root: Path, namespace: str | None) -> dict[str, Tally]:
    labels = [label for label in tallies if label]
    if namespace is None:
        return {label: tallies[label] for label in labels}
    if namespace in labels:
        return {namespace: tallies[namespace]}
    near = difflib.get_close_matches(namespace, labels, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else f"; `ucmstore ls {root}` lists them"
    raise ValueError(f"--namespace {namespace!r}: no such namespace below {root}{hint}")


def _plan(chosen: dict[str, Tally]) -> str:
    lines = [
        f"  {harmless(label)}: {counts.blocks:,} blocks, {human_bytes(counts.disk_bytes)}"
        for label, counts in sorted(chosen.items())
    ]
    return "\n".join(lines)


def _document(root: Path, removed: dict[str, Tally], failures: dict[str, str]) -> dict[str, Any]:
    return {
        "root": str(root),
        "namespaces": [
            {
                "label": label,
                "removed_blocks": counts.removed_blocks,
                "removed_others": counts.removed_others,
                "freed_bytes": counts.removed_bytes,
                "failed": counts.failed,
            }
            for label, counts in sorted(removed.items())
        ],
        "removed_blocks": sum(counts.removed_blocks for counts in removed.values()),
        "freed_bytes": sum(counts.removed_bytes for counts in removed.values()),
        "failed": sum(counts.failed for counts in removed.values()),
        "failed_namespaces": [
            {"label": label, "error": error} for label, error in sorted(failures.items())
        ],
    }


@in_words
def command(
    root: Annotated[Path, typer.Argument(help="The root of a store.")],
    namespace: Annotated[
        str | None, typer.Option(metavar="LABEL", help="The namespace to empty.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Empty every namespace.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove the blocks of one namespace (--namespace) or of all (--all); print what went.

    Leftovers and files set aside go with them; what a live writer is writing stays. Exit code 1 if
    something could not be removed.
    """
    if everything == (namespace is not None):
        raise fail("choose what to remove: --namespace LABEL, or --all", as_json=as_json)
    if as_json and not yes:
        raise fail("--json asks no questions: give --yes too", as_json=as_json)
    chosen = _chosen(tally(root), root, namespace)
    console = stdout()
    if not yes:
        console.print(f"This removes from {harmless(str(root))}:\n{_plan(chosen)}", markup=False)
        typer.confirm("Go on?", abort=True)
    removed: dict[str, Tally] = {}
    failures: dict[str, str] = {}
    with progress("removing", None, quiet=as_json) as bar:
        for label in chosen:
            try:
                seen = tally(root, Walk.PURGE, label, total=bar.set_total, seen=bar)
            except NotFoundError:  # somebody else has removed it
                continue
            except (Error, OSError) as error:  # the others can be removed nevertheless
                failures[label] = str(error)
                continue
            removed.update(seen)
            if any(counts.damaged for counts in seen.values()):
                failures[label] = _DAMAGED
    document = _document(root, removed, failures)
    if as_json:
        print_json(document)
    else:
        for entry in document["namespaces"]:
            others = f" and {entry['removed_others']:,} others" if entry["removed_others"] else ""
            console.print(
                cell(
                    f"{entry['label']}: removed {entry['removed_blocks']:,} blocks{others}, "
                    f"freed {human_bytes(entry['freed_bytes'])}"
                )
            )
        if not document["namespaces"]:
            console.print(cell(f"{root}: nothing removed"))
        if document["failed"]:
            console.print(f"{document['failed']:,} files could not be removed", style="red")
        for label, why in sorted(failures.items()):
            console.print(cell(f"{label} could not be emptied: {why}"), style="red")
    if document["failed"] or failures:
        raise typer.Exit(EXIT_BAD)
