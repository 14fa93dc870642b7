# SPDX-License-Identifier: Apache-2.0
"""Option tables as the plugins give them: what `ucmstore options` prints and `--set` is read by.
An option is written in one place, its plugin's table; here it is only shown and read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ucmstore import _core

Value = bool | int | float | str | list[str]


@dataclass(frozen=True)
class Option:
    """One line of an option table."""

    name: str
    type: str  # bool, int, float, size, string, list
    default: str | None  # None: it must be given
    range: str  # "": any value of the type
    help: str


@dataclass(frozen=True)
class Scope:
    """The options of one stage, or of the store itself."""

    scope: str  # the key in a configuration: "store", "posix"
    stage: str  # the name in a spec: "Posix"; "" for the store itself
    version: str
    path: str
    terminal: bool
    options: tuple[Option, ...]


def scopes(plugin_path: Sequence[str] = ()) -> list[Scope]:
    """The store's own table first, then one for each stage that is found, by name."""
    return [
        Scope(
            scope=table["scope"],
            stage=table["stage"],
            version=table["version"],
            path=table["path"],
            terminal=table["terminal"],
            options=tuple(
                Option(row["name"], row["type"], row["default"], row["range"], row["help"])
                for row in table["options"]
            ),
        )
        for table in _core.plugins(list(plugin_path))
    ]


def stage_names() -> list[str]:
    """The stages that are found, as a spec names them."""
    return [scope.stage for scope in scopes() if scope.stage]


def _nearest(word: str, words: Iterable[str]) -> str:
    candidates = list(words)
    near = difflib.get_close_matches(word.lower(), candidates, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; there is {', '.join(candidates)}"


def find_scope(name: str, plugin_path: Sequence[str] = ()) -> Scope:
    """The scope called `name`, whatever its case. Raises ValueError with the nearest name."""
    known = {scope.scope: scope for scope in scopes(plugin_path)}
    if name.lower() in known:
        return known[name.lower()]
    raise ValueError(f"{name!r} is no stage{_nearest(name, known)}")


def _read(option: Option, text: str, where: str) -> Value:
    try:
        if option.type == "int":
            return int(text)
        if option.type == "float":
            return float(text)
    except ValueError:
        raise ValueError(f"{where}: {text!r} is no {option.type}") from None
    if option.type == "bool":
        if text not in ("true", "false"):
            raise ValueError(f"{where}: {text!r} is neither true nor false")
        return text == "true"
    return text


def parse_settings(settings: Iterable[str]) -> dict[str, dict[str, Any]]:
    """["posix.roots=/a", …] -> {"posix": {"roots": ["/a"]}}. A list's option may be repeated."""
    parsed: dict[str, dict[str, Any]] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        stage, dot, key = name.partition(".")
        if not (equals and dot and stage and key):
            raise ValueError(f"--set {setting!r}: write STAGE.OPTION=VALUE")
        scope = find_scope(stage)
        option = next((option for option in scope.options if option.name == key), None)
        if option is None:
            near = _nearest(key, (option.name for option in scope.options))
            raise ValueError(f"--set {setting!r}: {scope.scope} has no option {key!r}{near}")
        values = parsed.setdefault(scope.scope, {})
        if option.type == "list":
            values.setdefault(key, []).append(text)
        elif key in values:
            raise ValueError(f"--set {setting!r}: {name} is given twice")
        else:
            values[key] = _read(option, text, f"--set {setting!r}")
    return parsed
