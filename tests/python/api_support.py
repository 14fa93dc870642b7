# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python API share: stores, content, and the reins of the Fault stage."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import ucmstore

REPOSITORY = Path(__file__).parents[2]
NAMESPACE = ucmstore.Namespace(model="test/model", dtype="bfloat16", tp=1)
SHARD = 4096
SHARDS = 2
BLOCK = SHARD * SHARDS
LONG_S = 30.0  # what a test waits for that comes at once, unless something is broken

Bytes = npt.NDArray[np.uint8]


def open_store(spec: str = "Dram", **options: Any) -> ucmstore.Store:
    """A store of two shards a block, unless told otherwise."""
    options = {
        "shard_size": SHARD,
        "shards_per_block": SHARDS,
        "namespace": NAMESPACE,
        "workers": 4,
        "log_level": "error",  # warnings are for those who read them
        **options,
    }
    return ucmstore.open(spec, **options)


def make_ids(count: int, seed: int = 0) -> list[bytes]:
    """Ids that are all different, and the same for the same seed."""
    random = np.random.default_rng((seed, 1))
    return [random.bytes(16) for _ in range(count)]


def make_rows(count: int, size: int = BLOCK, seed: int = 0) -> Bytes:
    """Random bytes, one row for each block."""
    return np.random.default_rng((seed, 2)).integers(0, 256, (count, size), np.uint8)


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that other threads bring about and that announces itself to nobody."""
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(0.001)  # style: nothing is won by it; the condition is asked again


def run_python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a new interpreter, in another folder than this one."""
    environment = {**os.environ, "PYTHONWARNINGS": "error", **environment}
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH")))
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
        cwd="/",
        env=environment,
    )


# ---- the Fault stage -----------------------------------------------------------------------------


class _Status(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_int32),
        ("errno", ctypes.c_int32),
        ("message", ctypes.c_char * 248),
    )


class _Plugin(ctypes.Structure):
    _fields_ = (
        ("abi", ctypes.c_uint32),
        ("struct_size", ctypes.c_uint32),
        ("texts", ctypes.c_void_p * 3),
        ("counts", ctypes.c_uint32 * 2),
        ("overhead", ctypes.c_uint64),
        ("content", ctypes.c_void_p),
        ("create", ctypes.c_void_p),
        ("destroy", ctypes.c_void_p),
        ("query", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)),
    )


_U32, _U64, _STORE = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p


class _Table(ctypes.Structure):
    """FaultTableV1, in src/cpp/store/fault/fault_v1.h."""

    _fields_ = (
        ("struct_size", _U32),
        ("reserved", _U32),
        ("find", ctypes.CFUNCTYPE(_STORE, ctypes.c_char_p)),
        (
            "arm",
            ctypes.CFUNCTYPE(_Status, _STORE, ctypes.c_char_p, ctypes.POINTER(_U64)),
        ),
        ("disarm", ctypes.CFUNCTYPE(None, _STORE, _U64)),
        ("wait_held", ctypes.CFUNCTYPE(ctypes.c_bool, _STORE, _U64, _U32, _U32)),
        ("release", ctypes.CFUNCTYPE(_U32, _STORE, _U64, _U32)),
        ("hits", ctypes.CFUNCTYPE(_U64, _STORE, _U64)),
    )


@functools.cache
def fault_folder() -> Path:
    """Where the Fault stage, which is not installed, was built."""
    folders = [
        Path(os.environ.get("UCMSTORE_TEST_STAGES", REPOSITORY / "build/release/ucmstore_stages")),
        Path(ucmstore._core.core_path()).parent / "ucmstore_stages",
    ]
    for folder in folders:
        if (folder / "libucmstore_fault.so").exists():
            return folder
    raise FileNotFoundError(f"libucmstore_fault.so is in none of {folders}; build the tests")


class Fault:
    """Steers one open Fault stage: holds its shards and lets them go, so that no test sleeps."""

    def __init__(self, name: str) -> None:
        library = ctypes.CDLL(str(fault_folder() / "libucmstore_fault.so"))
        library.ucmstore_plugin_v1.restype = ctypes.POINTER(_Plugin)
        table = library.ucmstore_plugin_v1().contents.query(None, b"fault/1")
        self._table = _Table.from_address(table)
        self._store = self._table.find(name.encode())
        assert self._store, f"no Fault stage is open under the name {name!r}"

    def arm(self, rule: str) -> int:
        """Add a rule (src/cpp/store/fault/rules.h) and return its number."""
        number = _U64()
        status = self._table.arm(self._store, rule.encode(), ctypes.byref(number))
        assert status.code == 0, status.message
        return number.value

    def disarm(self, rule: int = 0) -> None:
        """End a rule; 0: all."""
        self._table.disarm(self._store, rule)

    def wait_held(self, rule: int, count: int = 1) -> None:
        """Wait until the rule holds so many shards or lookups."""
        held = self._table.wait_held(self._store, rule, count, int(LONG_S * 1000))
        assert held, f"rule {rule} never held {count}"

    def release(self, rule: int = 0, count: int = 0) -> None:
        """Let the oldest `count` go, 0: all."""
        self._table.release(self._store, rule, count)

    def hits(self, rule: int) -> int:
        """How often the rule acted."""
        return int(self._table.hits(self._store, rule))


_names = iter(range(1 << 30))


@contextlib.contextmanager
def faulty(spec: str = "Fault|Dram", **options: Any) -> Iterator[tuple[ucmstore.Store, Fault]]:
    """A store behind a Fault stage, and the stage's reins. What is held is let go at the end."""
    name = f"python-{os.getpid()}-{next(_names)}"
    store = open_store(spec, fault={"name": name}, plugin_path=[fault_folder()], **options)
    fault = Fault(name)
    process = os.getpid()
    try:
        yield store, fault
    finally:
        # A forked child has the stage's memory, but not the threads that it would wake.
        if os.getpid() == process and not store.closed:
            fault.disarm()
            fault.release()
            store.close()


@contextlib.contextmanager
def running(target: Callable[[], object]) -> Iterator[threading.Thread]:
    """`target` in a thread, joined at the end; what it raised is raised here."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            target()
        except BaseException as error:  # noqa: BLE001  (raised again by whoever waits)
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(LONG_S)
        assert not thread.is_alive(), "a thread of the test did not end"
    if failures:
        raise failures[0]
