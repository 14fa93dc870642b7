# SPDX-License-Identifier: Apache-2.0
"""Options: the types in options.py are what the stages' tables say, and every option works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ucmstore
from api_support import NAMESPACE, SHARD, open_store
from ucmstore import _core, _generate_options

PACKAGE = Path(ucmstore.__file__).parent
TABLES = {
    table["scope"]: table
    for table in _core.plugins()
    if table["scope"] not in _generate_options.NOT_SHIPPED
}


def test_options_py_is_what_the_tables_say() -> None:
    assert (PACKAGE / "options.py").read_text() == _generate_options.generate(), (
        "run: python -m ucmstore._generate_options > python/ucmstore/options.py"
    )


def example(option: dict[str, Any]) -> object:
    """A value of the option that is not its default, in the type a Python user has."""
    kind, limits = option["type"], option["range"]
    default = option["default"] or ""
    if kind == "bool":
        return default != "true"
    if kind == "int":
        least, most = (int(text) for text in limits.split(".."))
        return least if str(least) != default else most
    if kind == "float":
        return float(limits.split("..")[0]) if limits else 0.5
    if kind == "size":
        return "64MiB"
    if kind == "string":
        return next(word for word in limits.split("|") if word != default) if limits else "word"
    return []


@pytest.mark.parametrize(
    ("scope", "name"),
    [(scope, option["name"]) for scope, table in TABLES.items() for option in table["options"]],
)
def test_m02_every_option_is_taken(scope: str, name: str, tmp_path: Path) -> None:
    option = next(option for option in TABLES[scope]["options"] if option["name"] == name)
    spec = TABLES[scope]["stage"] or "Dram"
    value = example(option)
    given: dict[str, Any] = {name: value} if scope == "store" else {scope: {name: value}}
    if spec == "Posix":
        given["posix"] = {"roots": [tmp_path], **(given["posix"] if name != "roots" else {})}
    if name == "high_mark":  # must lie above the other
        given["posix"]["low_mark"] = 1
    if spec == "Cache":  # a small ring of the test's own, that goes with it
        ring = {"capacity": "64MiB", "path": tmp_path, "unlink": True}
        given["cache"] = {**ring, **(given["cache"] if name != "path" else {})}
        spec = "Cache|Null"
    arguments: dict[str, Any] = {"shard_size": SHARD, "namespace": NAMESPACE, **given}
    try:
        with ucmstore.open(spec, **arguments) as store:
            assert store.config.options[scope][name] is not None
    except ucmstore.UnsupportedError:
        pass  # such as direct I/O where the file system has none: understood, and refused in words


@pytest.mark.parametrize("size", [SHARD, "4KiB", "4 KiB", "4096B"])
def test_sizes_in_every_spelling(size: int | str) -> None:
    with open_store(shard_size=size) as store:
        assert store.shard_size == SHARD


def test_paths_are_texts_in_the_config(tmp_path: Path) -> None:
    with open_store("Posix", posix={"roots": [tmp_path]}) as store:
        assert store.config.options["posix"] == {"roots": [str(tmp_path)]}
    with open_store("Posix", posix={"roots": str(tmp_path)}) as store:
        assert store.config.options["posix"] == {"roots": str(tmp_path)}


def test_options_given_are_not_changed_by_their_owner_later(tmp_path: Path) -> None:
    roots = [tmp_path]
    posix: dict[str, Any] = {"roots": roots}
    with open_store("Posix", posix=posix) as store:
        roots.append(tmp_path / "other")
        posix["mode"] = "world"
        assert store.config.options["posix"] == {"roots": [str(tmp_path)]}


def test_a_type_checker_finds_a_misspelt_option(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(
        "import ucmstore\n"
        'namespace = ucmstore.Namespace(model="m")\n'
        'ucmstore.open("Dram", shard_size=1, namespace=namespace, dram={"capacity": "1GiB"})\n'
        'ucmstore.open("Dram", shard_size=1, namespace=namespace, dram={"capacty": "1GiB"})\n'
        'ucmstore.open("Dram", shard_size=1, namespace=namespace, workres=4)\n'
        'ucmstore.open("X", shard_size=1, namespace=namespace, stages={"x": {"y": 1}})\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental",
         "--cache-dir", str(tmp_path / "cache"), str(program)],
        capture_output=True, text=True, check=False, timeout=110, cwd=tmp_path,
    )  # fmt: skip
    lines = {line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line}
    assert lines == {"4", "5"}, done.stdout + done.stderr
