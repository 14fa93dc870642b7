# SPDX-License-Identifier: Apache-2.0
"""Prints options.py: `python -m ucmstore._generate_options > python/ucmstore/options.py`.

One TypedDict for each stage, from the option tables of the plugins themselves, so that a type
checker finds a misspelt option. A test holds the file to what this prints.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

from ucmstore import _core

NOT_SHIPPED = {"fault", "shelf"}  # built for tests only

HEAD = '''# SPDX-License-Identifier: Apache-2.0
"""The options of each stage, as types. Generated from the stages' own tables; do not edit.

`python -m ucmstore._generate_options` prints this file. What they are at run time: plain dicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Literal, Required, TypeAlias, TypedDict

Size: TypeAlias = int | str  # bytes, or a text such as "512KiB"
Texts: TypeAlias = str | PathLike[str] | Sequence[str | PathLike[str]]  # one, or several
'''

TYPES = {"bool": "bool", "int": "int", "float": "float", "size": "Size", "list": "Texts"}


def _type(option: dict[str, Any]) -> str:
    if option["type"] == "string":
        words = [word for word in option["range"].split("|") if word]
        return f"Literal[{', '.join(map(repr, words))}]".replace("'", '"') if words else "str"
    return TYPES[option["type"]]


def _help(option: dict[str, Any]) -> str:
    default = option["default"]
    said = "must be given" if default is None else f"default: {default or 'none'}"
    limits = f"; {option['range']}" if option["range"] and option["type"] != "string" else ""
    return f"{option['help'].rstrip('.')}. ({said}{limits})"


def _lines(options: list[dict[str, Any]]) -> list[str]:
    lines = []
    for option in options:
        lines += textwrap.wrap(
            _help(option), 94, initial_indent="    # ", subsequent_indent="    # ",
            break_on_hyphens=False,
        )  # fmt: skip
        kind = _type(option)
        if option["default"] is None:
            kind = f"Required[{kind}]"
        lines.append(f"    {option['name']}: {kind}")
    return lines


def generate() -> str:
    """The text of options.py for the stages that are shipped."""
    shipped = Path(_core.core_path()).parent / "ucmstore_stages"
    store, *stages = _core.plugins()
    stages = [
        table
        for table in stages
        if table["scope"] not in NOT_SHIPPED and Path(table["path"]).parent == shipped
    ]
    parts = [HEAD]
    for table in stages:
        body = _lines(table["options"]) or ["    # None yet."]
        doc = f'    """Of the stage {table["stage"]}."""\n'
        parts.append("\n".join([f"\n\nclass {table['stage']}Options(TypedDict, total=False):",
                                doc, *body]) + "\n")  # fmt: skip
    parts.append(
        "\n\nclass StageOptions(TypedDict, total=False):\n"
        '    """A keyword of `open` for each stage."""\n\n'
        + "".join(f"    {table['scope']}: {table['stage']}Options | None\n" for table in stages)
    )
    parts.append(
        "\n\nclass OpenOptions(StageOptions, total=False):\n"
        '    """The keywords of `open`: the stages\', and those of the store as a whole."""\n\n'
        + "\n".join(_lines(store["options"]))
        + "\n"
    )
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(generate())
