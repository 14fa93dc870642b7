# SPDX-License-Identifier: Apache-2.0
"""The bare loops of bench/cpp/bare.cc, compiled on first use and called in this process, so that a
store and the loop it is compared with run in turns under the same conditions. Thread-safe once
loaded; the interpreter lock is released during each loop."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
_SOURCE = Path(__file__).parent / "cpp" / "bare.cc"


@functools.cache
def _library() -> ctypes.CDLL:
    compiler = os.environ.get("CXX") or shutil.which("c++") or "g++"
    with tempfile.TemporaryDirectory(prefix="ucmstore-bench-") as folder:
        target = Path(folder) / "libbare.so"
        subprocess.run(
            [compiler, "-std=c++20", "-O2", "-shared", "-fPIC", str(_SOURCE), "-o", str(target)],
            check=True,
        )
        library = ctypes.CDLL(str(target))  # stays mapped when the file is gone
    for name in ("bare_stat", "bare_write", "bare_read"):
        getattr(library, name).restype = ctypes.c_int64
    return library


def _check(nanoseconds: int, what: str) -> int:
    if nanoseconds < 0:
        raise OSError(-nanoseconds, os.strerror(-nanoseconds), what)
    return nanoseconds


def _pointer(array: npt.NDArray[np.generic]) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


class Folder:
    """A folder with the prefix folders that a store's namespace has."""

    def __init__(self, path: Path, prefix_digits: int) -> None:
        self.path = path
        self._digits = ctypes.c_uint32(prefix_digits)
        for prefix in range(16**prefix_digits):
            (path / f"{prefix:0{prefix_digits}x}").mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the descriptor; the files stay."""
        os.close(self._fd)

    def stat(self, ids: Bytes) -> tuple[int, int]:
        """fstatat for each id: nanoseconds, and how many are there."""
        found = ctypes.c_uint64()
        spent = _library().bare_stat(
            self._fd, self._digits, _pointer(ids), ctypes.c_uint64(len(ids)), ctypes.byref(found)
        )
        return _check(spent, "bare_stat"), found.value

    def write(self, ids: Bytes, data: Bytes, *, direct: bool) -> tuple[int, npt.NDArray[np.int64]]:
        """open, pwrite, rename for each row of `data`: nanoseconds, of all and of each."""
        return self._move(_library().bare_write, ids, data, direct=direct)

    def read(self, ids: Bytes, data: Bytes, *, direct: bool) -> tuple[int, npt.NDArray[np.int64]]:
        """open, pread for each row of `data`: nanoseconds, of all and of each."""
        return self._move(_library().bare_read, ids, data, direct=direct)

    def _move(
        self, loop: ctypes._NamedFuncPointer, ids: Bytes, data: Bytes, *, direct: bool
    ) -> tuple[int, npt.NDArray[np.int64]]:
        each = np.zeros(len(ids), dtype=np.int64)
        spent = loop(
            self._fd,
            self._digits,
            _pointer(ids),
            ctypes.c_uint64(len(ids)),
            _pointer(data),
            ctypes.c_uint64(data.shape[1]),
            ctypes.c_int(direct),
            _pointer(each),
        )
        return _check(spent, loop.__name__), each
