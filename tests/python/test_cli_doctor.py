# SPDX-License-Identifier: Apache-2.0
"""`ucmstore doctor`: what it says of this machine, and of machines that are shown to it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cli_support import cli
from ucmstore.cli import doctor_checks as checks


def test_doctor_looks_at_this_machine(tmp_path: Path) -> None:
    done = cli("doctor", tmp_path, "--json")
    assert done.code in (0, 1), done.err
    lines = {line["check"]: line for line in done.document["checks"]}
    for check in (
        "versions",
        "stages",
        "kernel",
        "cpu",
        "io_uring",
        "/dev/shm",
        "memlock",
        "nofile",
        f"folder {tmp_path}",
        f"file system of {tmp_path}",
        f"direct I/O in {tmp_path}",
    ):
        assert lines[check]["verdict"] in ("ok", "warn", "fail")
        assert lines[check]["found"]
        assert lines[check]["verdict"] == "ok" or lines[check]["advice"], lines[check]
    assert "Posix" in lines["stages"]["found"]
    assert not list(tmp_path.iterdir()), "the probe file is gone"
    assert done.document["ok"] is (done.code == 0)


def test_doctor_in_words(tmp_path: Path) -> None:
    done = cli("doctor", tmp_path)
    assert "io_uring" in done.out
    assert "nofile" in done.out


def test_doctor_of_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path, words in (
        (tmp_path / "new", "not there"),
        (tmp_path / "a" / "b", "not there"),
        (tmp_path / "file", "not a folder"),
        (tmp_path / "file" / "x", "Not a directory"),
    ):
        done = cli("doctor", path, "--json")
        assert done.code == 1, path
        (line,) = [line for line in done.document["checks"] if line["check"] == f"folder {path}"]
        assert line["verdict"] == "fail"
        assert line["found"] == words
        assert line["advice"]
    assert cli("doctor", tmp_path / "new").code == 1


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errno.EPERM, "seccomp"),
        (errno.ENOSYS, "5.1"),
        (errno.ENOMEM, "ulimit -l"),
        (errno.EINVAL, "psync"),
    ],
)
def test_j02_io_uring_that_is_refused_has_a_remedy(error: int, words: str) -> None:
    finding = checks.check_io_uring(lambda: error)
    assert finding.verdict == "warn"
    assert errno.errorcode[error] in finding.found
    assert words in finding.advice


def test_j06_a_low_memlock_is_named() -> None:
    assert checks.check_memlock((64 << 10, 64 << 10)).verdict == "warn"
    assert "ulimit -l" in checks.check_memlock((64 << 10, 64 << 10)).advice
    assert checks.check_memlock((-1, -1)).verdict == "ok"


@pytest.mark.parametrize(("soft", "verdict"), [(32, "fail"), (256, "warn"), (1024, "ok")])
def test_j05_a_low_nofile_is_named(soft: int, verdict: str) -> None:
    assert checks.check_nofile((soft, 4096)).verdict == verdict


@pytest.mark.parametrize(
    ("release", "verdict"),
    [("6.1.0-13-amd64", "ok"), ("5.15.0", "ok"), ("3.10.0-1160.el7", "warn"), ("odd", "warn")],
)
def test_kernels(release: str, verdict: str) -> None:
    assert checks.check_kernel(release).verdict == verdict


def test_file_systems(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        f"21 20 0:40 / {tmp_path} rw - nfs4 server:/export rw\n"
        "22 20 0:41 / /mnt/with\\040space rw - xfs /dev/sdb rw\n"
    )
    assert checks.file_system_of(tmp_path, mounts) == ("nfs4", str(tmp_path))
    assert checks.file_system_of(Path("/mnt/with space/x"), mounts)[0] == "xfs"
    assert checks.file_system_of(Path("/mnt"), mounts)[0] == "ext4"
    finding = checks.check_file_system(tmp_path, mounts)
    assert finding.verdict == "warn"
    assert "operations.md" in finding.advice


def test_a_core_that_does_not_load_is_a_failure() -> None:
    def broken() -> list[str]:
        raise ImportError("libodd.so: undefined symbol")

    finding = checks.check_stages(broken)
    assert finding.verdict == "fail"
    assert "undefined symbol" in finding.found
    assert checks.check_stages(list).verdict == "fail"


def test_a_processor_without_crc32c(tmp_path: Path) -> None:
    old = tmp_path / "cpuinfo"
    old.write_text("model name : Old\nflags : fpu sse2\n")
    assert checks.check_cpu(old).verdict == "warn"
    old.write_text("flags : fpu sse4_2 avx2\n")
    assert checks.check_cpu(old).verdict == "ok"
    old.write_text("Features : fp asimd crc32\n")
    assert checks.check_cpu(old).verdict == "ok"
