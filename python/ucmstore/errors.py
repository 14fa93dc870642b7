# SPDX-License-Identifier: Apache-2.0
"""Every error of ucmstore, in words: which stage, path, value and rule, and the errno.

`Error` catches all. Below it there is one class for each reason (`NoSpaceError`, `ClosedError`, …),
and `TransferError` for a load or dump of which some part failed. A failed transfer is also of the
class of its first reason: `except CorruptionError` catches a transfer that met corrupt bytes.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any


class Code(enum.IntEnum):
    """How a call, a task or a shard ended. The numbers are those of the C++ interface."""

    OK = 0
    PENDING = 1
    NOT_FOUND = 2
    INVALID_ARGUMENT = 3
    UNSUPPORTED = 4
    BUSY = 5
    NO_SPACE = 6
    TIMEOUT = 7
    CANCELLED = 8
    ABORTED = 9
    CORRUPTION = 10
    IO_ERROR = 11
    LIMIT = 12
    CLOSED = 13
    INTERNAL = 14


class Error(Exception):
    """The base of all. `code` says what kind; `errno` is the system's, or 0."""

    code: Code = Code.INTERNAL
    errno: int = 0


class ArgumentError(Error, ValueError):
    """An argument that breaks a rule; the message names both. Nothing was done."""

    code = Code.INVALID_ARGUMENT


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of a type that cannot be used."""


class OptionError(ArgumentError):
    """A store cannot be opened like this: a spec, stage, option or value is wrong."""


class NotFoundError(Error):
    """The block, or what was asked for, is not there."""

    code = Code.NOT_FOUND


class UnsupportedError(Error):
    """This stage, or this memory, cannot do that."""

    code = Code.UNSUPPORTED


class BusyError(Error):
    """A bounded table or queue is full, or something still moves. Try again later."""

    code = Code.BUSY


class NoSpaceError(Error):
    """The medium is full, or over its capacity."""

    code = Code.NO_SPACE


class DeadlineError(Error):
    """The deadline that the task was given has passed. (A `wait` that gave up: `TimeoutError`.)"""

    code = Code.TIMEOUT


class TaskCancelledError(Error):
    """The task was cancelled before this had begun."""

    code = Code.CANCELLED


class AbortedError(Error):
    """The incomplete block that a shard belongs to was given up."""

    code = Code.ABORTED


class CorruptionError(Error):
    """Stored bytes differ from what was written."""

    code = Code.CORRUPTION


class StoreIOError(Error):
    """The medium failed; `errno` says how."""

    code = Code.IO_ERROR


class LimitError(Error):
    """A limit of the operating system was hit; the message names it."""

    code = Code.LIMIT


class ClosedError(Error):
    """The store is closed, or was opened in another process before this one was forked."""

    code = Code.CLOSED


class InternalError(Error):
    """A defect of ucmstore or of a stage."""


class TransferError(Error):
    """Some of a load or dump failed; the rest is done.

    `failed` are the positions, in the ids that were given, of the blocks that failed, and `codes`
    the first reason of each. All lengths and codes: `Task.results`.
    """

    failed: list[int]
    codes: list[Code]

    def __init__(self, *args: Any, failed: Sequence[int] = (), codes: Sequence[Code] = ()) -> None:
        super().__init__(*args)
        self.failed = list(failed)
        self.codes = list(codes)

    def __reduce__(self) -> tuple[Any, ...]:
        return transfer_error, (self.code, self.errno, str(self), self.failed, self.codes)


_CLASSES: dict[Code, type[Error]] = {
    kind.code: kind
    for kind in (
        ArgumentError,
        NotFoundError,
        UnsupportedError,
        BusyError,
        NoSpaceError,
        DeadlineError,
        TaskCancelledError,
        AbortedError,
        CorruptionError,
        StoreIOError,
        LimitError,
        ClosedError,
        InternalError,
    )
}

# Each reason as a transfer's: class NoSpaceTransferError(TransferError, NoSpaceError).
_TRANSFER_CLASSES: dict[Code, type[TransferError]] = {
    code: type(
        kind.__name__.removesuffix("Error") + "TransferError",
        (TransferError, kind),
        {"code": code, "__module__": __name__, "__doc__": kind.__doc__},
    )
    for code, kind in _CLASSES.items()
}


def code_of(number: int) -> Code:
    """The code with that number; one that a newer stage gave and we do not know is internal."""
    try:
        return Code(number)
    except ValueError:
        return Code.INTERNAL


def from_status(number: int, errno: int, text: str, opening: bool) -> Error:
    """The error of a call that failed. Called by the core."""
    code = code_of(number)
    wrong_option = opening and code in (Code.INVALID_ARGUMENT, Code.NOT_FOUND)
    error = (OptionError if wrong_option else _CLASSES.get(code, InternalError))(text)
    error.errno = errno
    return error


def transfer_error(
    code: Code, errno: int, text: str, failed: Sequence[int], codes: Sequence[Code]
) -> TransferError:
    """The error of a task that failed, of the class of its first reason."""
    error = _TRANSFER_CLASSES.get(code, _TRANSFER_CLASSES[Code.INTERNAL])(
        text, failed=failed, codes=codes
    )
    error.errno = errno
    return error
