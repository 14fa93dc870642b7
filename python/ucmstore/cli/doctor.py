# SPDX-License-Identifier: Apache-2.0
"""`ucmstore doctor [PATH]`: what this machine offers a store, line by line, with what to do."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ucmstore.cli.doctor_checks import Finding, all_findings
from ucmstore.cli.output import EXIT_BAD, JsonFlag, cell, in_words, print_json, stdout
from ucmstore.cli.stages import stage_names

_STYLE = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def _table(findings: list[Finding]) -> Table:
    table = Table(show_lines=False)
    for heading in ("check", "", "found", "what to do"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        style = _STYLE[finding.verdict]
        table.add_row(
            cell(finding.check),
            f"[{style}]{finding.verdict}[/]",
            cell(finding.found),
            cell(finding.advice),
        )
    return table


@in_words
def command(
    path: Annotated[Path, typer.Argument(help="The folder that is or shall be a root.")] = Path(),
    as_json: JsonFlag = False,
) -> None:
    """Look at this machine: kernel, io_uring, direct I/O, memory, limits, versions.

    Exit code 1 if any line is a failure; a warning is not one.
    """
    findings = all_findings(path, stage_names)
    failed = any(finding.verdict == "fail" for finding in findings)
    if as_json:
        print_json({"ok": not failed, "checks": [asdict(finding) for finding in findings]})
    else:
        stdout().print(_table(findings))
    if failed:
        raise typer.Exit(EXIT_BAD)
