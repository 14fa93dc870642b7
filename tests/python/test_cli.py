# SPDX-License-Identifier: Apache-2.0
"""The command line as a whole: demo, options, help, usage; and the papers that show it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ucmstore
from cli_support import cli
from ucmstore.cli.app import app
from ucmstore.cli.output import human_bytes, human_duration

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("demo", "replay", "ls", "inspect", "verify", "purge", "options", "doctor", "vllm-args")


def test_demo_shows_the_second_process_finding_what_the_first_stored() -> None:
    done = cli("demo", "--json")
    assert done.code == 0, done.err
    first, second = done.document["first"], done.document["second"]
    assert done.document["ok"] is True
    assert first["blocks_stored"] > 100
    assert 0 < first["prefix_hits"] < first["references"]
    assert second["prefix_hits"] == second["references"] == first["references"]
    assert second["blocks_stored"] == 0
    assert second["blocks_loaded"] == second["references"]
    assert first["mismatches"] == second["mismatches"] == 0


def test_demo_in_words() -> None:
    done = cli("demo")
    assert done.code == 0, done.err
    assert "every byte was right" in done.out
    assert "100.0 %" in done.out


def test_help_names_every_command() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    for command in COMMANDS:
        assert command in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_json_and_help(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0
    assert "--json" in result.output


def test_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).output.strip() == ucmstore.__version__


@pytest.mark.parametrize("arguments", [["nonsense"], ["replay"], ["verify", "--nonsense", "x"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


# ---- options -------------------------------------------------------------------------------------


def test_options_of_all_stages() -> None:
    done = cli("options", "--json")
    assert done.code == 0, done.err
    scopes = {scope["scope"]: scope for scope in done.document["scopes"]}
    assert {"store", "posix", "dram", "null"} <= set(scopes)
    assert "roots" in {option["name"] for option in scopes["posix"]["options"]}
    for scope in scopes.values():
        for option in scope["options"]:
            assert option["help"], f"{scope['scope']}.{option['name']}"
    assert "roots" in cli("options").out


def test_options_of_one_stage() -> None:
    done = cli("options", "Posix", "--json")
    assert [scope["stage"] for scope in done.document["scopes"]] == ["Posix"]
    assert done.document["scopes"][0]["terminal"] is True


def test_options_of_an_unknown_stage() -> None:
    done = cli("options", "pozix")
    assert done.code == 2
    assert "posix" in done.err


def test_options_of_a_missing_folder_of_stages(tmp_path: Path) -> None:
    for rest in ([], ["posix"]):
        done = cli("options", *rest, "--plugin-path", tmp_path / "none")
        assert done.code == 2
        assert "none: no such folder" in done.err


def test_options_page_is_current() -> None:
    """Run `ucmstore options --markdown > docs/options.md` if this fails."""
    done = cli("options", "--markdown")
    assert done.code == 0, done.err
    assert (ROOT / "docs" / "options.md").read_text(encoding="utf-8") == done.out


def test_m03_every_option_is_documented() -> None:
    page = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `([a-z0-9_]+)` \|", page, re.MULTILINE))
    known = {
        option["name"]
        for scope in cli("options", "--json").document["scopes"]
        for option in scope["options"]
    }
    assert documented == known


# ---- papers --------------------------------------------------------------------------------------


def python_snippets(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def test_the_snippet_of_the_readme_runs(tmp_path: Path) -> None:
    (snippet,) = python_snippets(ROOT / "README.md")
    done = subprocess.run(
        [sys.executable, "-c", snippet],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert len(snippet.strip().splitlines()) <= 20


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").glob("*.md")))
def test_links_of_the_papers_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_papers_name_commands_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        text = page.read_text(encoding="utf-8")
        assert set(re.findall(r"`make ([a-z]+)", text)) <= targets
        for command in re.findall(r"`ucmstore ([a-z]+)", text):
            assert command in COMMANDS


# ---- words ---------------------------------------------------------------------------------------


def test_sizes_and_times_in_words() -> None:
    assert [human_bytes(n) for n in (0, 1023, 1536, 5 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
    ]
    assert [human_duration(s) for s in (12e-6, 0.25, 3)] == ["12.0 µs", "250.00 ms", "3.00 s"]
