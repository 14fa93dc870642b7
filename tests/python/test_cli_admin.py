# SPDX-License-Identifier: Apache-2.0
"""`ucmstore verify`, `ls`, `inspect` and `purge` on real roots: good, damaged, and in use."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import ucmstore
from cli_support import (
    BLOCK_BYTES,
    SHARD_BYTES,
    block_file,
    cli,
    fill,
    flip_byte,
    half_written,
    ids_and_content,
    leave_leftovers,
    name_space,
    open_store,
)
from ucmstore.cli import purge
from ucmstore.cli.admin import Walk, tally
from ucmstore.cli.app import app

MODEL = "cli-test"


def test_verify_a_good_root(tmp_path: Path) -> None:
    fill(tmp_path, 40)
    done = cli("verify", tmp_path, "--json")
    assert done.code == 0, done.err
    assert done.document["ok"] is True
    assert done.document["blocks"] == 40
    assert done.document["bad"] == 0
    assert done.document["entries"] == []
    words = cli("verify", tmp_path)
    assert words.code == 0
    assert "40" in words.out


@pytest.mark.parametrize("offset", [0, 100, SHARD_BYTES - 1, SHARD_BYTES, 2 * SHARD_BYTES - 1])
def test_verify_finds_a_flipped_byte_in_a_shard(tmp_path: Path, offset: int) -> None:
    ids = fill(tmp_path, 10)
    path = block_file(tmp_path, ids[3])
    flip_byte(path, offset)
    done = cli("verify", tmp_path, "--json")
    assert done.code == 1
    assert done.document["corrupt"] == done.document["bad"] == 1
    (entry,) = done.document["entries"]
    assert entry["path"] == str(path)
    assert entry["verdict"] == "corrupt"
    assert entry["why"]
    assert path.exists(), "without --repair nothing is touched"


def test_verify_finds_a_flipped_byte_in_the_footer(tmp_path: Path) -> None:
    ids = fill(tmp_path, 10)
    path = block_file(tmp_path, ids[0])
    flip_byte(path, path.stat().st_size - 4096 + 20)
    assert cli("verify", tmp_path, "--json").document["bad"] == 1


@pytest.mark.parametrize("size", [0, 1, 4096, BLOCK_BYTES, BLOCK_BYTES + 4095])
def test_verify_finds_a_torn_file(tmp_path: Path, size: int) -> None:
    ids = fill(tmp_path, 5)
    path = block_file(tmp_path, ids[0])
    with path.open("r+b") as file:
        file.truncate(size)
    done = cli("verify", tmp_path, "--json")
    assert done.code == 1
    assert done.document["torn"] == done.document["bad"] == 1


def test_verify_repairs(tmp_path: Path) -> None:
    ids = fill(tmp_path, 12)
    flip_byte(block_file(tmp_path, ids[0]), 5)
    with block_file(tmp_path, ids[1]).open("r+b") as file:
        file.truncate(4096)
    leave_leftovers(tmp_path)
    found = cli("verify", tmp_path, "--json")
    assert found.code == 1
    assert found.document["bad"] == 2
    assert found.document["leftovers"] >= 3

    repaired = cli("verify", tmp_path, "--repair", "--json")
    assert repaired.code == 1, "what was bad was bad, repaired or not"
    assert repaired.document["repaired"]["failed"] == 0
    assert (
        repaired.document["repaired"]["set_aside"] + repaired.document["repaired"]["removed"] >= 5
    )

    after = cli("verify", tmp_path, "--json")
    assert after.code == 0, after.out
    assert after.document["blocks"] == 10
    assert after.document["leftovers"] == 0
    with open_store(tmp_path) as store:
        assert np.count_nonzero(store.lookup(ids)) == 10
        assert not store.lookup(ids[:2]).any()


def test_verify_reports_a_leftover_and_is_not_upset(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    leave_leftovers(tmp_path)
    done = cli("verify", tmp_path, "--json")
    assert done.code == 0, done.out
    assert done.document["leftovers"] >= 3
    assert any(entry["path"].endswith(".activated") for entry in done.document["entries"])


def test_verify_leaves_a_live_writer_alone(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    with half_written(tmp_path):
        before = sorted(tmp_path.rglob("*.activated"))
        assert len(before) == 3
        done = cli("verify", tmp_path, "--repair", "--json")
        assert done.code == 0, done.out
        assert done.document["in_use"] >= 3
        assert done.document["repaired"]["removed"] == 0
        assert sorted(tmp_path.rglob("*.activated")) == before


def test_verify_counts_foreign_files(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    (tmp_path / name_space().label / "notes.txt").write_text("mine")
    done = cli("verify", tmp_path, "--repair", "--json")
    assert done.code == 0, done.out
    assert done.document["foreign"] >= 1
    assert (tmp_path / name_space().label / "notes.txt").read_text() == "mine"


DAMAGES = {"rubbish": b"rubbish\n", "empty": b"", "binary": bytes(range(256)) * 8}


@pytest.mark.parametrize("damage", DAMAGES)
def test_verify_counts_a_damaged_namespace_and_says_the_way_out(
    tmp_path: Path, damage: str
) -> None:
    ids = fill(tmp_path, 5)
    fill(tmp_path, 3, "good")
    root_file = tmp_path / name_space().label / "UCMSTORE"
    root_file.write_bytes(DAMAGES[damage])
    for rest in ([], ["--repair"]):
        done = cli("verify", tmp_path, "--json", *rest)
        assert done.code == 1, done.out
        assert done.document["ok"] is False
        assert done.document["bad"] == done.document["bad_namespaces"] == 1
        (entry,) = done.document["entries"]
        assert entry["path"] == str(root_file.parent)
        assert entry["verdict"] == "corrupt"
        assert "UCMSTORE" in entry["why"]
    words = cli("verify", tmp_path)
    assert words.code == 1
    assert "Delete that file" in words.out
    assert "damaged" in cli("ls", tmp_path).out
    assert cli("inspect", root_file.parent).code == 1
    purged = cli("purge", tmp_path, "--namespace", root_file.parent.name, "--yes")
    assert purged.code == 1
    assert "UCMSTORE is damaged" in purged.out

    root_file.unlink()  # as it says
    with open_store(tmp_path) as store:
        assert store.lookup_prefix(ids) == 5
    assert cli("verify", tmp_path, "--json").document["ok"] is True


def test_verify_does_not_call_a_newer_format_damaged(tmp_path: Path) -> None:
    fill(tmp_path, 1)
    (tmp_path / name_space().label / "UCMSTORE").write_text("ucmstore 99\n")
    done = cli("verify", tmp_path)
    assert done.code == 1
    assert "format 99" in done.out
    assert "Delete" not in done.out
    assert cli("verify", tmp_path, "--json").document["unreadable"] == 1


@pytest.mark.parametrize("command", ["verify", "ls", "inspect", "purge"])
def test_a_missing_root_is_said_in_words(tmp_path: Path, command: str) -> None:
    rest = ["--all", "--yes"] if command == "purge" else []
    done = cli(command, tmp_path / "nowhere", *rest)
    assert done.code == 2
    assert "nowhere" in done.err
    assert "Traceback" not in done.err
    in_json = cli(command, tmp_path / "nowhere", *rest, "--json")
    assert in_json.code == 2
    assert "nowhere" in in_json.document["error"]


@pytest.mark.parametrize("command", ["verify", "ls"])
def test_a_namespace_is_no_root(tmp_path: Path, command: str) -> None:
    fill(tmp_path, 1)
    done = cli(command, tmp_path / name_space().label)
    assert done.code == 2
    assert "give the root above it" in done.err


def test_verify_of_an_unknown_namespace(tmp_path: Path) -> None:
    fill(tmp_path, 1)
    done = cli("verify", tmp_path, "--namespace", "nope")
    assert done.code == 2
    assert "nope" in done.err


def test_ls_counts_each_namespace(tmp_path: Path) -> None:
    fill(tmp_path, 7, "one")
    fill(tmp_path, 5, "two")
    done = cli("ls", tmp_path, "--json")
    assert done.code == 0, done.err
    counts = {entry["label"]: entry for entry in done.document["namespaces"] if entry["label"]}
    assert set(counts) == {name_space("one").label, name_space("two").label}
    assert counts[name_space("one").label]["blocks"] == 7
    assert counts[name_space("two").label]["blocks"] == 5
    assert counts[name_space("two").label]["block_bytes"] >= 5 * BLOCK_BYTES
    assert counts[name_space("two").label]["oldest"] <= counts[name_space("two").label]["newest"]
    words = cli("ls", tmp_path)
    assert name_space("one").label in words.out


def test_ls_of_an_empty_folder(tmp_path: Path) -> None:
    done = cli("ls", tmp_path, "--json")
    assert done.code == 0
    assert done.document["namespaces"] == []
    assert "no namespace" in cli("ls", tmp_path).out


def test_inspect_says_every_field(tmp_path: Path) -> None:
    ids = fill(tmp_path, 1)
    block = cli("inspect", block_file(tmp_path, ids[0]), "--json")
    assert block.code == 0, block.err
    text = " ".join(f"{field['name']}: {field['value']}" for field in block.document["fields"])
    assert ids[0].tobytes().hex() in text
    assert "4096" in text or "4 KiB" in text or "4KiB" in text
    root = cli("inspect", tmp_path, "--json")
    assert root.code == 0, root.err
    assert root.document["fields"]
    space = cli("inspect", tmp_path / name_space().label, "--json")
    assert any(MODEL in field["value"] for field in space.document["fields"])
    assert cli("inspect", tmp_path).code == 0


@pytest.mark.parametrize("offset", [5, -4096 + 20])
def test_inspect_of_a_bad_block_exits_with_1(tmp_path: Path, offset: int) -> None:
    path = block_file(tmp_path, fill(tmp_path, 1)[0])
    flip_byte(path, offset % path.stat().st_size)
    assert cli("inspect", path).code == 1
    assert cli("inspect", path, "--json").code == 1
    with path.open("r+b") as file:
        file.truncate(100)
    torn = cli("inspect", path)
    assert torn.code == 1
    assert str(path) in torn.err


ODD_NAMES = ["m copy", "[red]x", "a\x1b[31m\x07\nb", os.fsdecode(b"\xff\xfe"), ".hidden"]


def test_g02_purge_goes_on_past_folders_with_odd_names(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    good = tmp_path / name_space().label
    for odd in ODD_NAMES:
        shutil.copytree(good, tmp_path / odd)
    for command in ("ls", "verify", "inspect"):
        done = cli(command, tmp_path)
        assert done.code == 0, done.err
        assert done.out.replace("\n", "").isprintable(), done.out
    document = cli("ls", tmp_path, "--json").document
    assert {entry["label"] for entry in document["namespaces"]} == {good.name, *ODD_NAMES}

    one = cli("purge", tmp_path, "--namespace", ODD_NAMES[0], "--yes")
    assert one.code == 0, one.err
    own = {".capacity", ".collector"}  # the root's
    names = {path.name for path in tmp_path.iterdir()}
    assert names - own == {good.name, *ODD_NAMES[1:]}
    rest = cli("purge", tmp_path, "--all", "--yes")
    assert rest.code == 0, rest.err
    assert (rest.out + rest.err).replace("\n", "").isprintable()
    assert not list(tmp_path.iterdir())


def test_g02_purge_reports_the_namespace_that_it_cannot_empty_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, 2, "one")
    fill(tmp_path, 3, "two")
    stuck = name_space("one").label

    def walk(root: Path, flags: Walk = Walk.LOOK, label: str | None = None, **rest: Any) -> Any:
        if flags == Walk.PURGE and label == stuck:
            raise ucmstore.StoreIOError(f"{root}/{stuck}: Input/output error")
        return tally(root, flags, label, **rest)

    monkeypatch.setattr(purge, "tally", walk)
    done = CliRunner().invoke(app, ["purge", str(tmp_path), "--all", "--yes", "--json"])
    assert done.exit_code == 1, done.output
    document = json.loads(done.stdout)
    assert document["removed_blocks"] == 3
    (failed,) = document["failed_namespaces"]
    assert failed["label"] == stuck
    assert "Input/output error" in failed["error"]


def test_g02_purge_removes_the_chosen_namespace_only(tmp_path: Path) -> None:
    gone = fill(tmp_path, 7, "gone", seed=1)
    kept, content = ids_and_content(5, seed=2)
    with open_store(tmp_path, "kept") as live:
        live.dump(kept, source=content).wait()
        done = cli("purge", tmp_path, "--namespace", name_space("gone").label, "--yes", "--json")
        assert done.code == 0, done.err
        assert done.document["removed_blocks"] == 7
        assert done.document["freed_bytes"] >= 7 * BLOCK_BYTES
        assert done.document["failed"] == 0
        back = np.zeros_like(content)
        live.load(kept, into=back).wait()
        assert np.array_equal(back, content)
    with open_store(tmp_path, "gone") as store:
        assert not store.lookup(gone).any()


def test_g02_purge_while_an_engine_uses_the_namespace(tmp_path: Path) -> None:
    ids, content = ids_and_content(20, seed=3)
    with open_store(tmp_path) as store:
        store.dump(ids, source=content).wait()
        assert store.lookup_prefix(ids) == 20
        done = cli("purge", tmp_path, "--all", "--yes", "--json")
        assert done.code == 0, done.err
        assert done.document["removed_blocks"] == 20
        with pytest.raises(ucmstore.TransferError):
            store.load(ids, into=np.zeros_like(content)).wait()
        assert store.lookup_prefix(ids) == 0
        store.dump(ids, source=content).wait()
        back = np.zeros_like(content)
        store.load(ids, into=back).wait()
        assert np.array_equal(back, content)


def test_purge_all_prints_the_counts(tmp_path: Path) -> None:
    fill(tmp_path, 3, "one")
    fill(tmp_path, 4, "two")
    done = cli("purge", tmp_path, "--all", "--yes")
    assert done.code == 0, done.err
    assert "3 blocks" in done.out
    assert "4 blocks" in done.out
    assert cli("verify", tmp_path, "--json").document["blocks"] == 0


def test_purge_leaves_a_live_writer_alone(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    with half_written(tmp_path):
        done = cli("purge", tmp_path, "--all", "--yes", "--json")
        assert done.code == 0, done.out
        assert done.document["removed_blocks"] == 2
        assert len(list(tmp_path.rglob("*.activated"))) == 3


@pytest.mark.parametrize("arguments", [[], ["--all", "--namespace", "x"], ["--all", "--json"]])
def test_purge_wants_to_be_told_what(tmp_path: Path, arguments: list[str]) -> None:
    ids = fill(tmp_path, 1)
    done = cli("purge", tmp_path, *arguments)
    assert done.code == 2
    assert block_file(tmp_path, ids[0]).exists()


def test_purge_asks_first(tmp_path: Path) -> None:
    ids = fill(tmp_path, 1)
    done = cli("purge", tmp_path, "--all")  # stdin is not a terminal and says nothing
    assert done.code == 1
    assert block_file(tmp_path, ids[0]).exists()


def test_purge_names_the_nearest_namespace(tmp_path: Path) -> None:
    fill(tmp_path, 1)
    label = name_space().label
    done = cli("purge", tmp_path, "--namespace", label[:-1], "--yes")
    assert done.code == 2
    assert label in done.err
