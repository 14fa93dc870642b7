# SPDX-License-Identifier: Apache-2.0
#
# The Python examples, run as their readers run them: each in a process of its own, from a folder
# that is not the source tree. The C++ examples: tests/cpp/install.
"""Tests of examples/python."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples" / "python").glob("*.py"))


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example: Path, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", str(example), str(tmp_path / "kv")],
        cwd=tmp_path,
        timeout=100,
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout
