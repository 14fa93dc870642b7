# SPDX-License-Identifier: Apache-2.0
"""`ucmstore shm`: rings are listed, described and removed, and only rings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from api_support import make_ids, make_rows, open_store
from cli_support import cli


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def opened(folder: Path) -> Any:
    return open_store(
        "Cache|Posix",
        posix={"roots": [folder / "root"]},
        cache={"path": folder, "capacity": "1MiB", "name": "mine"},
    )


def rings(folder: Path) -> list[dict[str, Any]]:
    done = cli("shm", "ls", "--path", folder, "--json")
    assert done.code == 0, done.err
    found: list[dict[str, Any]] = json.loads(done.out)["rings"]
    return found


def test_a_ring_is_listed_described_and_removed(folder: Path) -> None:
    assert rings(folder) == []
    with opened(folder) as store:
        store.dump(make_ids(3), make_rows(3)).wait()
        (ring,) = rings(folder)
        assert (ring["name"], ring["state"]) == ("mine", "in use")
        refused = cli("shm", "rm", "mine", "--path", folder)
        assert refused.code == 2
        assert "processes use it" in refused.err
    (ring,) = rings(folder)
    assert ring["state"] == "unused"
    done = cli("shm", "inspect", "mine", "--path", folder, "--json")
    fields = {field["name"]: field["value"] for field in json.loads(done.out)["fields"]}
    assert fields["slots_clean"] == "3"
    assert "namespace: " in fields["identity"]
    assert cli("shm", "rm", "mine", "--path", folder).code == 0
    assert rings(folder) == []
    assert cli("shm", "rm", "mine", "--path", folder).code == 2


def test_only_rings_are_touched(folder: Path) -> None:
    (folder / "ucmstore.other.r1").write_bytes(b"x" * 20_000)
    (folder / "ucmstore.mine").write_bytes(b"x")
    (ring,) = rings(folder)
    assert ring["state"] == "not of this release"
    assert cli("shm", "rm", "other", "--path", folder, "--force").code == 2
    assert (folder / "ucmstore.other.r1").exists()


def test_a_damaged_ring_is_said_and_can_be_removed(folder: Path) -> None:
    opened(folder).close()
    (path,) = folder.glob("ucmstore.*.r1")
    with path.open("r+b") as file:
        file.seek(40)
        file.write(b"damage")
    (ring,) = rings(folder)
    assert ring["state"] == "damaged"
    assert cli("shm", "inspect", "mine", "--path", folder).code == 1
    assert cli("shm", "rm", "mine", "--path", folder).code == 0
