# SPDX-License-Identifier: Apache-2.0
"""What a user may say in `kv_connector_extra_config`, checked by name, type and range.

All of it but `root` has a default that was chosen for him. What the stages take is given under
`stages` as `ucmstore.open` takes it, and is checked by the stages when the store is opened.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from ucmstore.errors import OptionError

_WHERE = "kv_connector_extra_config"
_CHOICES = {"on_load_failure": ("recompute", "fail"), "load": ("async",)}


@dataclass(frozen=True)
class Options:
    """The options of the connector. Immutable."""

    # The folder that keeps the blocks, or several of them.
    root: tuple[str, ...] = ()
    # The pipeline of the store, topmost stage first.
    spec: str = "Cache|Posix"
    # Memory of the ring that all engines of this host share: "auto", or a size.
    ring: str | int = "auto"
    # Hits below so many tokens are computed instead of loaded.
    min_hit_tokens: int = 256
    # Seconds after which a load has failed, and what it should bring is computed.
    load_timeout: float = 5.0
    # Seconds after which a lookup counts as a miss.
    lookup_timeout: float = 0.02
    # Seconds after which a save that has not begun is dropped.
    save_timeout: float = 30.0
    # Pages of the engine that saves may hold at once, as a share of all.
    held_pages: float = 0.125
    # How loads go: "async", between the steps.
    load: Literal["async"] = "async"
    # What the engine does about a failed load: "recompute", or "fail" the request.
    on_load_failure: Literal["recompute", "fail"] = "recompute"
    # More fields of the namespace, to keep apart what the connector cannot tell apart.
    namespace: dict[str, str] = field(default_factory=dict)
    # The options of each stage, as `ucmstore.open` takes them.
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def has_ring(self) -> bool:
        """Whether the pipeline begins with Cache, whose memory can be leased."""
        return self.spec.split("|")[0].strip() == "Cache"

    @property
    def is_private(self) -> bool:
        """Whether what is stored can be seen by the process alone that has stored it."""
        return self.spec.split("|")[-1].strip() in ("Dram", "Null")

    def without_ring(self) -> Options:
        """The same but for the ring: what lies below it."""
        below = "|".join(self.spec.split("|")[1:]) if self.has_ring else self.spec
        stages = {name: given for name, given in self.stages.items() if name != "cache"}
        return replace(self, spec=below, stages=stages)

    def open_stages(self) -> dict[str, dict[str, Any]]:
        """The stages' options with those that have a name of their own here filled in."""
        stages = {name: dict(given) for name, given in self.stages.items()}
        for stage, option, value in (
            ("posix", "roots", list(self.root)),
            ("cache", "capacity", self.ring),
        ):
            if stage in (part.strip().lower() for part in self.spec.split("|")):
                stages.setdefault(stage, {}).setdefault(option, value)
        return stages


def parse(given: Mapping[str, Any]) -> Options:
    """The options in what the user gave, or an `OptionError` that says what is wrong with it."""
    known = {each.name for each in fields(Options)}
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise OptionError(f"{_WHERE}: unknown option {name!r}{hint} There are: {_list(known)}")
    values = {name: _checked(name, value) for name, value in given.items()}
    options = Options(**values)
    stages = [part.strip() for part in options.spec.split("|")]
    if "Posix" in stages and not options.root and not options.stages.get("posix", {}).get("roots"):
        raise OptionError(
            f"{_WHERE}: 'root' is missing: the folder that is to keep the blocks, such as /mnt/kv"
        )
    return options


def _list(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _checked(name: str, value: Any) -> Any:
    if name == "root":
        roots = [value] if isinstance(value, str) else value
        if not isinstance(roots, (list, tuple)) or not all(isinstance(r, str) and r for r in roots):
            raise _wrong(name, value, "a folder, or a list of folders")
        return tuple(roots)
    if name in ("stages", "namespace"):
        if not isinstance(value, Mapping):
            raise _wrong(name, value, "a mapping")
        inner = Mapping if name == "stages" else str
        for key, each in value.items():
            if not isinstance(key, str) or not isinstance(each, inner):
                kind = "a mapping of its options" if name == "stages" else "a text"
                raise _wrong(f"{name}.{key}", each, kind)
        return {key: dict(each) if name == "stages" else each for key, each in value.items()}
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise _wrong(name, value, " or ".join(map(repr, _CHOICES[name])))
        return value
    if name == "spec":
        if not isinstance(value, str) or not value.strip():
            raise _wrong(name, value, "a pipeline such as 'Cache|Posix'")
        return value
    if name == "ring":
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise _wrong(name, value, "'auto', or a size such as '16GiB'")
        return value
    least, most = {
        "min_hit_tokens": (0, 1 << 31),
        "held_pages": (0.001, 0.5),
        "lookup_timeout": (0.001, 60.0),
    }.get(name, (0.01, 3600.0))
    numbers = (int,) if name == "min_hit_tokens" else (int, float)
    if isinstance(value, bool) or not isinstance(value, numbers) or not least <= value <= most:
        raise _wrong(name, value, f"a number from {least} to {most}")
    return value


def _wrong(name: str, value: object, wanted: str) -> OptionError:
    return OptionError(f"{_WHERE}: {name} = {value!r}; give {wanted}")
