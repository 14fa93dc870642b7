# SPDX-License-Identifier: Apache-2.0
"""A medium at rest, looked at without opening a store: what `ls`, `inspect`, `verify` and `purge`
are made of. Entries come from the stage's table "admin/1", which never touches what a live writer
owns, so all of this works while engines use the medium. Nothing here is kept for each entry.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path

from ucmstore import _core


class Kind(IntEnum):
    """AdminKind of admin_v1.h."""

    NAMESPACE = 0
    BLOCK = 1
    ACTIVATED = 2
    SET_ASIDE = 3
    WRITER = 4
    FOREIGN = 5
    SEGMENT = 6


class Verdict(IntEnum):
    """AdminVerdict of admin_v1.h."""

    GOOD = 0
    TORN = 1
    CORRUPT = 2
    IN_USE = 3
    LEFTOVER = 4
    UNREADABLE = 5
    UNKNOWN = 6


class Action(IntEnum):
    """AdminAction of admin_v1.h."""

    NONE = 0
    SET_ASIDE = 1
    REMOVED = 2
    FAILED = 3


class Walk(IntFlag):
    """The flags of a walk."""

    LOOK = 0
    READ = 1
    REPAIR = 2
    PURGE = 4


BAD = (Verdict.TORN, Verdict.CORRUPT, Verdict.UNREADABLE)


@dataclass(frozen=True)
class Entry:
    """One thing found below a root."""

    kind: Kind
    verdict: Verdict
    action: Action
    path: str
    namespace: str
    text: str
    size_bytes: int
    disk_bytes: int
    mtime_ns: int

    @property
    def bad(self) -> bool:
        """A block that is not there as promised, or what hides blocks: a namespace, a folder."""
        if self.verdict == Verdict.UNREADABLE:
            return True
        return self.kind in (Kind.BLOCK, Kind.NAMESPACE) and self.verdict in BAD

    @property
    def bad_namespace(self) -> bool:
        """A whole namespace that cannot be opened."""
        return self.bad and self.kind == Kind.NAMESPACE


def require_folder(root: Path) -> None:
    """Raise OSError in words if `root` is not a folder."""
    if not root.exists():
        raise FileNotFoundError(f"{root}: no such folder")
    if not root.is_dir():
        raise NotADirectoryError(f"{root}: not a folder; give the root of a store")
    if (root / "UCMSTORE").is_file():  # docs/format.md; a walk would find nothing, and be content
        raise ValueError(
            f"{root}: the folder of a namespace; give the root above it, {root.absolute().parent}"
        )


def walk(
    root: Path,
    flags: Walk,
    see: Callable[[Entry], None],
    *,
    namespace: str | None = None,
    stage: str = "Posix",
    total: Callable[[int], None] | None = None,
) -> None:
    """Visit everything below `root`, or below one namespace of it."""
    require_folder(root)

    def entry(raw: _core.AdminEntry) -> bool:
        see(
            Entry(
                Kind(raw.kind),
                Verdict(raw.verdict),
                Action(raw.action),
                raw.path,
                raw.namespace_label,
                raw.text,
                raw.size_bytes,
                raw.disk_bytes,
                raw.mtime_ns,
            )
        )
        return True

    label = None if namespace is None else os.fsencode(namespace)
    _core.admin_walk(stage, os.fsencode(root), label, int(flags), total, entry)


def inspect(path: Path, stage: str = "Posix") -> list[tuple[str, str]]:
    """Every fact about a block file, a namespace or a root: name and value."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    return list(_core.admin_inspect(stage, os.fsencode(path)))


@dataclass
class Tally:
    """What a walk saw of one namespace, or of all."""

    blocks: int = 0
    block_bytes: int = 0
    disk_bytes: int = 0
    oldest_ns: int = 0
    newest_ns: int = 0
    activated: int = 0
    leftovers: int = 0
    set_aside: int = 0
    foreign: int = 0
    removed_blocks: int = 0
    removed_others: int = 0
    removed_bytes: int = 0
    failed: int = 0
    damaged: bool = False  # no store opens it

    def add(self, entry: Entry) -> None:
        """Count one entry."""
        if entry.kind == Kind.BLOCK:
            self.blocks += 1
            self.block_bytes += entry.size_bytes
            self.oldest_ns = min(self.oldest_ns or entry.mtime_ns, entry.mtime_ns)
            self.newest_ns = max(self.newest_ns, entry.mtime_ns)
        elif entry.verdict == Verdict.LEFTOVER:
            self.leftovers += 1
        elif entry.kind == Kind.ACTIVATED:
            self.activated += 1
        elif entry.kind == Kind.SET_ASIDE:
            self.set_aside += 1
        elif entry.kind == Kind.FOREIGN:
            self.foreign += 1
        self.damaged |= entry.bad_namespace
        self.disk_bytes += entry.disk_bytes
        if entry.action == Action.REMOVED:
            self.removed_bytes += entry.disk_bytes
            if entry.kind == Kind.BLOCK:
                self.removed_blocks += 1
            else:
                self.removed_others += 1
        elif entry.action == Action.FAILED:
            self.failed += 1


def tally(
    root: Path,
    flags: Walk = Walk.LOOK,
    namespace: str | None = None,
    total: Callable[[int], None] | None = None,
    seen: Callable[[int], None] | None = None,
) -> dict[str, Tally]:
    """Walk and count, by namespace label ("" for what belongs to none)."""
    tallies: dict[str, Tally] = {}
    count = 0

    def see(entry: Entry) -> None:
        nonlocal count
        count += 1
        if seen and count % 256 == 0:
            seen(count)
        tallies.setdefault(entry.namespace, Tally()).add(entry)

    walk(root, flags, see, namespace=namespace, total=total)
    return tallies
