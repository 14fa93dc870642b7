# SPDX-License-Identifier: Apache-2.0
"""`python -m bench [lookup] [transfer] [scale] [idle] [ring] [cache] [--root DIR] [--pairs N]
[--json]`: take the figures, all if none is named, and print them as a table, as Markdown or as
JSON. `python -m bench lmcache`: beside LMCache, where that is installed.
`python -m bench policy --trace FILE`: what a full cache should keep; it takes no times.
`python -m bench reclaim [--trace FILE] [--files N]`: what a full root keeps, and its cost."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import cache, idle, lmcache, lookup, policy, reclaim, ring, scale, transfer
from bench.measure import Figure, machine

PARTS: dict[str, Callable[[Path | None, int], list[Figure]]] = {
    "lookup": lookup.run,
    "transfer": transfer.run,
    "scale": scale.run,
    "idle": idle.run,
    "ring": ring.run,
    "cache": cache.run,
    "lmcache": lmcache.run,
}
ASKED_FOR = {"lmcache"}  # only if named


def _verdict(figure: Figure) -> str:
    if figure.met is None:
        return ""
    return "met" if figure.met else "MISSED"


def _cells(figure: Figure) -> tuple[str, ...]:
    beside = "; ".join(f"{name} {spread.text()}" for name, spread in figure.beside.items())
    return (
        figure.name,
        figure.value.text(figure.unit),
        figure.target,
        _verdict(figure),
        beside,
        figure.setting,
    )


_HEADINGS = ("figure", "median (low - high)", "target", "", "beside it", "on what")


def _print_table(figures: list[Figure], as_markdown: bool) -> None:
    if as_markdown:
        print(f"| {' | '.join(_HEADINGS)} |\n|{' --- |' * len(_HEADINGS)}")
        for figure in figures:
            cells = (cell.replace("|", "\\|") for cell in _cells(figure))  # "Cache|Posix"
            print(f"| {' | '.join(cells)} |")
        return
    table = Table(*_HEADINGS)
    for figure in figures:
        table.add_row(*_cells(figure))
    Console().print(table)


def main() -> int:
    """Take the figures; 1 if a target was missed."""
    if sys.argv[1:2] == ["policy"]:
        return policy.main(sys.argv[2:])
    if sys.argv[1:2] == ["reclaim"]:
        return reclaim.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all but lmcache")
    parser.add_argument("--root", type=Path, help="a folder on the medium to measure")
    parser.add_argument("--pairs", type=int, default=7, help="runs of each (default 7)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    if given.pairs < 1:
        parser.error("--pairs must be at least 1")
    figures: list[Figure] = []
    for part in given.parts or [part for part in PARTS if part not in ASKED_FOR]:
        print(f"taking {part} …", file=sys.stderr)
        figures += PARTS[part](given.root, given.pairs)
    where = machine(given.root or Path(tempfile.gettempdir()))
    if given.json:
        print(json.dumps({"machine": where, "figures": [f.to_json() for f in figures]}, indent=2))
    else:
        print("  ".join(f"{name}: {value}" for name, value in where.items()))
        _print_table(figures, given.markdown)
    return int(any(figure.met is False for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
