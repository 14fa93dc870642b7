# SPDX-License-Identifier: Apache-2.0
"""Cache from Python: one ring for all processes, warm after all of them, and words for mistakes."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ucmstore
from api_support import make_ids, make_rows, open_store, run_python, until

WRITER = """
import sys, time
from api_support import make_ids, make_rows, open_store
store = open_store("Cache|Posix", posix={"roots": [sys.argv[1] + "/root"]},
                   cache={"path": sys.argv[1], "capacity": "4MiB"})
store.dump(make_ids(20), make_rows(20)).wait()
print("confirmed", flush=True)
"""


def options(folder: Path, **cache: Any) -> dict[str, Any]:
    return {
        "posix": {"roots": [folder / "root"]},
        "cache": {"path": folder, "capacity": "4MiB", **cache},
    }


def block_files(folder: Path) -> list[Path]:
    return [path for path in (folder / "root").rglob("*") if len(path.name) == 32]


def test_another_process_finds_it_in_memory(tmp_path: Path) -> None:
    done = run_python(WRITER, str(tmp_path))
    assert "confirmed" in done.stdout, done.stderr
    for path in block_files(tmp_path):
        path.unlink()
    ids, rows = make_ids(20), make_rows(20)
    with open_store("Cache|Posix", **options(tmp_path)) as store:
        assert (store.lookup(ids) == 1).all()
        into = np.zeros_like(rows)
        store.load(ids, into).wait()
        assert (into == rows).all()


def test_g06_what_a_killed_process_had_confirmed_is_found(tmp_path: Path) -> None:
    code = WRITER + "time.sleep(60)"  # style: nothing waits for it; it is killed
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"confirmed\n"
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.communicate(timeout=30)
    ids, rows = make_ids(20), make_rows(20)
    with open_store("Cache|Posix", **options(tmp_path)) as store:
        into = np.zeros_like(rows)
        store.load(ids, into).wait()
        assert (into == rows).all()
        until(lambda: len(block_files(tmp_path)) == 20, "every block is below")


def test_lookup_tells_memory_from_below(tmp_path: Path) -> None:
    ids = make_ids(3)
    with open_store("Posix", posix=options(tmp_path)["posix"]) as store:
        store.dump(ids[:2], make_rows(2)).wait()
    with open_store("Cache|Posix", **options(tmp_path)) as store:
        store.load(ids[:1], np.zeros((1, 8192), np.uint8)).wait()
        assert store.lookup(ids).tolist() == [1, 2, 0]
        assert store.lookup_prefix(ids) == 2


def test_a_config_opens_the_same_ring_elsewhere(tmp_path: Path) -> None:
    ids, rows = make_ids(2), make_rows(2)
    with open_store("Cache|Posix", **options(tmp_path)) as store:
        store.dump(ids, rows).wait()
        config = pickle.loads(pickle.dumps(store.config))  # style: of our own making
        with ucmstore.open(config=config) as other:
            assert (other.lookup(ids) == 1).all()


@pytest.mark.parametrize(
    ("cache", "words"),
    [
        ({"capacity": "alot"}, "capacity"),
        ({"capacity": "4096B"}, "needed"),
        ({"write": "behind"}, "back|through"),
        ({"name": "a/b"}, "name"),
        ({"path": "/nonexistent-folder"}, "/nonexistent-folder"),
        ({"capacty": "1GiB"}, "capacity"),
    ],
)
def test_m01_a_bad_option_is_refused_in_words(
    tmp_path: Path, cache: dict[str, Any], words: str
) -> None:
    with pytest.raises(ucmstore.Error) as error:
        open_store("Cache|Posix", **options(tmp_path, **cache))
    assert words in str(error.value)
    assert "cache: " in str(error.value).lower()
