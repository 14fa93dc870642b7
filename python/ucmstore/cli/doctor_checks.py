# SPDX-License-Identifier: Apache-2.0
"""What `ucmstore doctor` looks at: one function for each line, each giving ok, warn or fail and,
unless ok, what to do. Nothing here changes the system; a probe file is removed at once.

Every check takes what it reads as an argument with the real thing as its default, so that tests
can show it another machine. Single-threaded.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import resource
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

import ucmstore
from ucmstore.cli.output import human_bytes

Verdict = Literal["ok", "warn", "fail"]

_SYS_IO_URING_SETUP = 425  # the same number on every architecture
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "9p"})


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report."""

    check: str
    verdict: Verdict
    found: str
    advice: str = ""


def check_versions() -> Finding:
    """The package, the interpreter and what the package stands on."""
    found = (
        f"ucmstore {ucmstore.__version__}, Python {platform.python_version()}, "
        f"numpy {np.__version__}"
    )
    return Finding("versions", "ok", found)


def check_kernel(release: str | None = None) -> Finding:
    """5.1 brought io_uring; older kernels work with the thread pool."""
    release = platform.release() if release is None else release
    head = release.split("-")[0].split(".")
    try:
        version = (int(head[0]), int(head[1]))
    except (IndexError, ValueError):
        return Finding("kernel", "warn", release, "Not a version I can read; I/O will use psync.")
    if version < (4, 11):
        return Finding("kernel", "warn", release, "Old and untested; use 4.11 or newer.")
    return Finding("kernel", "ok", f"{platform.system()} {release}, {platform.machine()}")


def check_cpu(cpuinfo: Path = Path("/proc/cpuinfo")) -> Finding:
    """Checksums are CRC-32C, for which processors have an instruction."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return Finding(
            "cpu",
            "warn",
            f"cannot read {cpuinfo}: {error.strerror}",
            "Mount /proc if checksums must be fast; they work without.",
        )
    flags: set[str] = set()
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip().lower() in ("flags", "features"):
            flags.update(value.split())
    wanted = [f for f in ("sse4_2", "pclmulqdq", "avx2", "avx512f", "crc32") if f in flags]
    count = len(os.sched_getaffinity(0))
    found = f"{count} usable, {' '.join(wanted) or 'no known features'}"
    if "sse4_2" in flags or "crc32" in flags:
        return Finding("cpu", "ok", found)
    return Finding(
        "cpu", "warn", found, "No CRC-32C instruction: checksums are computed in software, slower."
    )


def try_io_uring() -> int:
    """0 if io_uring_setup works here, else its errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    params = (ctypes.c_ubyte * 120)()
    fd = int(libc.syscall(_SYS_IO_URING_SETUP, 4, ctypes.byref(params)))
    if fd < 0:
        return ctypes.get_errno()
    os.close(fd)
    return 0


def check_io_uring(probe: Callable[[], int] = try_io_uring) -> Finding:
    """Whether the system call is there and allowed."""
    error = probe()
    if error == 0:
        return Finding("io_uring", "ok", "available; this release does not use it yet")
    found = f"io_uring_setup: {os.strerror(error)} ({errno.errorcode.get(error, error)})"
    advice = {
        errno.ENOSYS: "The kernel is older than 5.1 or built without it. psync is used instead.",
        errno.EPERM: "Blocked by seccomp (containers' default profile) or by sysctl "
        "kernel.io_uring_disabled. Allow io_uring_setup, io_uring_enter and "
        "io_uring_register in the profile; until then psync is used.",
        errno.ENOMEM: "Too little lockable memory: raise `ulimit -l`. Until then psync is used.",
    }.get(error, "psync is used instead.")
    return Finding("io_uring", "warn", found, advice)


def check_folder(path: Path) -> Finding:
    """Whether the path is a folder at all; the checks that follow look at the nearest above it."""
    name = f"folder {path}"
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        near = _nearest_folder(path)
        advice = f"Make it, or mount it; the lines below are of {near}, the nearest that is there."
        if near == path.absolute().parent:
            advice += " A store makes its root when it opens, unless create_root is off."
        return Finding(name, "fail", "not there", advice)
    except OSError as error:
        return Finding(name, "fail", f"{error.strerror}", "Mount or repair it.")
    if not stat.S_ISDIR(mode):
        return Finding(name, "fail", "not a folder", "Give a folder: a root is one.")
    return Finding(name, "ok", f"{path.absolute()}")


def _nearest_folder(path: Path) -> Path:
    folder = path.absolute()
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder


def _unescape(field: str) -> str:
    return field.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")


def file_system_of(path: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> tuple[str, str]:
    """The type of the file system that holds `path`, and where it is mounted."""
    real = os.path.realpath(path)
    best = ("unknown", "?")
    longest = -1
    for line in mountinfo.read_text(encoding="utf-8", errors="replace").splitlines():
        left, _, right = line.partition(" - ")
        if not right:
            continue
        mount = _unescape(left.split()[4])
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= longest:  # of two mounts on one point the later one counts
            longest = len(mount)
            best = (right.split()[0], mount)
    return best


def check_file_system(path: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> Finding:
    """Type, mount and room of the file system."""
    name = f"file system of {path}"
    folder = _nearest_folder(path)
    try:
        kind, mount = file_system_of(folder, mountinfo)
        usage = os.statvfs(folder)
    except OSError as error:
        return Finding(name, "fail", f"{folder}: {error.strerror}", "Mount or repair it.")
    free = usage.f_bavail * usage.f_frsize
    found = f"{kind} at {mount}, {human_bytes(free)} free, {usage.f_favail:,} free inodes"
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding(
            name,
            "fail",
            f"{found}; not writable for uid {os.geteuid()}",
            f"Give this user write permission on {folder}, or choose another root.",
        )
    if free < 1 << 30:
        return Finding(name, "warn", found, "Less than 1 GiB free: dumps will end with no space.")
    if usage.f_files > 0 and usage.f_favail < 100_000:
        return Finding(name, "warn", found, "Few inodes left: each block is a file.")
    if kind in _NETWORK or kind.startswith("fuse"):
        return Finding(
            name,
            "warn",
            found,
            "A network or user-space file system: lookups cost a round trip each, and "
            "blocks of other hosts may show late. See docs/operations.md.",
        )
    if kind in ("tmpfs", "ramfs"):
        return Finding(name, "warn", found, "This is memory: blocks do not survive a reboot.")
    return Finding(name, "ok", found)


def probe_direct_io(folder: Path) -> int:
    """0 if a 4 KiB page can be written and read with O_DIRECT in `folder`, else the errno."""
    fd, name = tempfile.mkstemp(prefix=".ucmstore-doctor-", dir=folder)
    os.close(fd)
    page = mmap.mmap(-1, 4096)  # page-aligned, as direct I/O wants it
    try:
        fd = os.open(name, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
        try:
            os.pwritev(fd, [page], 0)
            os.preadv(fd, [page], 0)
        finally:
            os.close(fd)
    except OSError as error:
        return error.errno or errno.EIO
    finally:
        Path(name).unlink()
        page.close()
    return 0


def check_direct_io(path: Path) -> Finding:
    """Whether reads and writes can go past the page cache."""
    name = f"direct I/O in {path}"
    folder = _nearest_folder(path)
    try:
        error = probe_direct_io(folder)
    except OSError as failure:
        return Finding(
            name,
            "fail",
            f"{folder}: cannot make a file: {failure.strerror}",
            f"Give this user write permission on {folder}, or choose another root.",
        )
    if error == 0:
        return Finding(name, "ok", f"works in {folder}")
    return Finding(
        name,
        "warn",
        f"{os.strerror(error)} ({errno.errorcode.get(error, error)})",
        "The file system refuses it; buffered I/O is used, and the page cache grows.",
    )


def check_shared_memory(path: Path = Path("/dev/shm")) -> Finding:
    """Room for a shared cache."""
    try:
        usage = os.statvfs(path)
    except OSError as error:
        return Finding(
            f"{path}",
            "warn",
            f"{error.strerror}",
            f"Mount a tmpfs at {path}; a shared cache lives there.",
        )
    free, total = usage.f_bavail * usage.f_frsize, usage.f_blocks * usage.f_frsize
    found = f"{human_bytes(free)} free of {human_bytes(total)}"
    if free < 1 << 30:
        return Finding(
            f"{path}",
            "warn",
            found,
            "Small: a shared cache will not fit. In a container use --shm-size or --ipc=host.",
        )
    return Finding(f"{path}", "ok", found)


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else f"{value:,}"


def check_memlock(limit: tuple[int, int] | None = None) -> Finding:
    """Pinned and registered memory counts against this limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK) if limit is None else limit
    found = f"{_limit(soft)} bytes (hard {_limit(hard)})"
    if soft != resource.RLIM_INFINITY and soft < 64 << 20:
        return Finding(
            "memlock",
            "warn",
            found,
            "Low: memory cannot be pinned or registered. Raise it with `ulimit -l "
            "unlimited`, or --ulimit memlock=-1 for a container.",
        )
    return Finding("memlock", "ok", found)


def check_nofile(limit: tuple[int, int] | None = None) -> Finding:
    """Open files: one for each block in flight, and the store's own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE) if limit is None else limit
    found = f"{_limit(soft)} (hard {_limit(hard)})"
    if soft == resource.RLIM_INFINITY or soft >= 1024:
        return Finding("nofile", "ok", found)
    verdict: Verdict = "fail" if soft < 64 else "warn"
    return Finding("nofile", verdict, found, "Low: raise it with `ulimit -n 4096`.")


def check_stages(list_stages: Callable[[], list[str]]) -> Finding:
    """Whether the core loads and finds its plugins."""
    try:
        stages = list_stages()
    except Exception as error:  # noqa: BLE001  (whatever it is, it belongs in the report)
        return Finding("stages", "fail", str(error), "Reinstall the package; see the message.")
    if not stages:
        return Finding(
            "stages",
            "fail",
            "none found",
            "Reinstall the package, or set "
            "UCMSTORE_PLUGIN_PATH to the folder that holds libucmstore_*.so.",
        )
    return Finding("stages", "ok", ", ".join(stages))


def all_findings(path: Path, list_stages: Callable[[], list[str]]) -> list[Finding]:
    """Every check, in the order in which to read them."""
    return [
        check_versions(),
        check_stages(list_stages),
        check_kernel(),
        check_cpu(),
        check_io_uring(),
        check_folder(path),
        check_file_system(path),
        check_direct_io(path),
        check_shared_memory(),
        check_memlock(),
        check_nofile(),
    ]
