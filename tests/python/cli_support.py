# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command line share: running it as a user does, and stores to look at."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import ucmstore

SHARD_BYTES = 4096
SHARDS = 2
BLOCK_BYTES = SHARD_BYTES * SHARDS
TIMEOUT_S = 60


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document on stdout."""
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document


def command_line(*arguments: str | Path) -> list[str]:
    """The command line that runs `ucmstore ARGUMENTS` in this interpreter's environment."""
    return [sys.executable, "-m", "ucmstore.cli", *map(str, arguments)]


def cli(*arguments: str | Path) -> Outcome:
    """Run `ucmstore ARGUMENTS` to its end."""
    done = subprocess.run(
        command_line(*arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env={**os.environ, "COLUMNS": "200"},
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def name_space(model: str = "cli-test") -> ucmstore.Namespace:
    """The namespace of a model."""
    return ucmstore.Namespace(model=model, dtype="uint8")


def open_store(root: Path, model: str = "cli-test") -> ucmstore.Store:
    """A Posix store of blocks of two shards."""
    return ucmstore.open(
        "Posix",
        shard_size=SHARD_BYTES,
        shards_per_block=SHARDS,
        namespace=name_space(model),
        posix={"roots": [str(root)]},
    )


def ids_and_content(count: int, seed: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Ids and the content of their blocks."""
    random = np.random.default_rng(seed)
    ids = random.integers(0, 256, (count, 16), dtype=np.uint8)
    return ids, random.integers(0, 256, (count, BLOCK_BYTES), dtype=np.uint8)


def fill(root: Path, count: int, model: str = "cli-test", seed: int = 1) -> npt.NDArray[np.uint8]:
    """Dump `count` blocks; give their ids."""
    ids, content = ids_and_content(count, seed)
    with open_store(root, model) as store:
        store.dump(ids, source=content).wait()
    return ids


def block_file(root: Path, block: npt.NDArray[np.uint8], model: str = "cli-test") -> Path:
    """Where a block lies (docs/format.md)."""
    digits = block.tobytes().hex()
    (path,) = (root / name_space(model).label).glob(f"*/{digits}")
    return path


def flip_byte(path: Path, offset: int) -> None:
    """Damage a file in place."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0x40]))


_WRITER = """
import sys
import numpy as np
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import cli_support
store = cli_support.open_store(Path(sys.argv[2]))
ids, content = cli_support.ids_and_content(3, seed=99)
store.dump(ids, source=content[:, :cli_support.SHARD_BYTES].copy(), shard=0).wait()
print("half", flush=True)
sys.stdin.read()
"""


@contextmanager
def half_written(root: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has written one of two shards of three blocks, and lives."""
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(Path(__file__).parent), str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "half\n"
            yield writer
        finally:
            writer.send_signal(signal.SIGKILL)


def leave_leftovers(root: Path) -> None:
    """Let a writer be killed in the middle of three blocks."""
    with half_written(root):
        pass
