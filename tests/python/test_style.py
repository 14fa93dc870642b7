# SPDX-License-Identifier: Apache-2.0
#
# The house rules that a compiler does not know, as tests over the text of the tree: who may include
# whom, how long a file is, what its head says, which calls and names are banned. A line that breaks
# a rule with a reason ends in a comment `style: the reason`. Each rule is tried on text that breaks
# it, too: a rule that cannot fail guards nothing.
"""Tests of the tree's style."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CPP = ROOT / "src" / "cpp"
MAX_LINES = 400
MAX_COLUMNS = 100

SKIPPED_FOLDERS = {"build", "dist", "results", "__pycache__", "node_modules"}
CODE_FOLDERS = ("bench", "cmake", "examples", "python", "src", "tests", "third_party")
CPP_SUFFIXES = {".h", ".cc"}
HASH_SUFFIXES = {".py", ".pyi", ".sh", ".cmake", ".toml", ".in"}

# "May include" points one way only: a folder, and the folders its files may include from.
MAY_INCLUDE = {
    "include": {"ucmstore"},
    "base": {"ucmstore", "base"},
    "io": {"ucmstore", "base", "io"},
    "shm": {"ucmstore", "base", "io", "shm"},
    "task": {"ucmstore", "base", "io", "task"},
    "options": {"ucmstore", "base", "options"},
    "block_id": {"ucmstore", "base", "block_id"},
    "pipeline": {"ucmstore", "base", "task", "options", "block_id", "pipeline"},
    "python": {"ucmstore", "base", "task", "options", "block_id", "pipeline", "python"},
    # Stages never see the pipeline, Python or each other: see test_include_direction.
    "store": {"ucmstore", "base", "io", "shm", "task"},
}


def files(*suffixes: str) -> list[Path]:
    """All files of the tree that we wrote, with one of the suffixes."""
    found = []
    for folder in CODE_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            relative = path.relative_to(ROOT)
            if (
                path.suffix in suffixes
                and path.is_file()
                and not SKIPPED_FOLDERS & {*relative.parts}
            ):
                found.append(path)
    return found


def is_excused(line: str) -> bool:
    return re.search(r"(//|#) style: \w", line) is not None


def without_comment(line: str) -> str:
    return re.sub(r"(^|\s)//.*", "", line)


def broken_lines(
    paths: Iterable[Path], breaks: Callable[[str], object], *, code_only: bool = True
) -> list[str]:
    """Lines for which `breaks` is true, as "path:number: text", unless they are excused."""
    found = []
    for path in paths:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            text = without_comment(line) if code_only and path.suffix in CPP_SUFFIXES else line
            if breaks(text) and not is_excused(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    return found


def assert_none(faults: Iterable[str], reason: str = "") -> None:
    """Fail with every fault on a line of its own."""
    found = list(faults)
    assert not found, "\n".join([reason, *found])


def searcher(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).search


# ---- every file ----------------------------------------------------------------------------------


def head_fault(text: str, mark: str) -> str | None:
    """Say what is wrong with the head of a file whose comments begin with `mark`."""
    lines = text.splitlines()
    if lines and lines[0].startswith("#!"):
        lines = lines[1:]
    if not lines or lines[0] != f"{mark} SPDX-License-Identifier: Apache-2.0":
        return "does not begin with the SPDX line"
    for line in lines[1:4]:
        if line.startswith(('"""', f"{mark} ")) and len(line) > 12:
            return None
    return "does not say what it is in its first comment"


def all_sources() -> Iterator[tuple[Path, str]]:
    for path in files(*CPP_SUFFIXES):
        yield path, "//"
    for path in files(*HASH_SUFFIXES):
        yield path, "#"
    for path in files(".txt"):
        if path.name == "CMakeLists.txt":
            yield path, "#"
    for name in ("Makefile", "pyproject.toml", ".clang-format", ".clang-tidy", ".ci/run"):
        yield ROOT / name, "#"


def test_every_file_says_its_licence_and_what_it_is() -> None:
    faults = []
    for path, mark in all_sources():
        fault = head_fault(path.read_text(), mark)
        # A list of sources, or a package's empty __init__, has nothing to explain.
        is_list = path.name == "CMakeLists.txt" or not path.read_text().strip()
        if fault and not (is_list and "SPDX" not in fault):
            faults.append(f"{path.relative_to(ROOT)} {fault}")
    assert_none(faults)


def test_files_are_short() -> None:
    assert_none(
        f"{path.relative_to(ROOT)}: {count} lines"
        for path, _ in all_sources()
        if (count := len(path.read_text().splitlines())) > MAX_LINES
    )


def test_lines_are_short() -> None:
    paths = [path for path, _ in all_sources()]
    assert_none(broken_lines(paths, lambda line: len(line) > MAX_COLUMNS, code_only=False))


def test_lines_end_clean() -> None:
    paths = [path for path, _ in all_sources()]
    assert_none(broken_lines(paths, searcher(r"\s$|\r"), code_only=False))
    assert_none(str(path) for path in paths if not path.read_text().endswith("\n"))


# ---- C++ -----------------------------------------------------------------------------------------


def include_fault(path: Path, line: str) -> str | None:
    """Say what is wrong with an include in a file below src/cpp (path relative to it)."""
    match = re.match(r'#include "([^"]+)"', line)
    if not match:
        if re.match(
            r"#include <(ucmstore|base|io|shm|task|pipeline|options|block_id|store)/", line
        ):
            return "ours are included in quotes"
        return None
    target = match.group(1)
    folder = path.parts[0]
    above = target.split("/")[0]
    if folder == "store" and target.startswith(f"store/{path.parts[1]}/"):
        return None
    if above not in MAY_INCLUDE[folder]:
        return f"{folder}/ may not include {target}"
    return None


def test_include_direction() -> None:
    faults = []
    for folder in sorted(path.name for path in CPP.iterdir() if path.is_dir()):
        assert folder in MAY_INCLUDE, f"say in MAY_INCLUDE what src/cpp/{folder} may include"
        for path in files(*CPP_SUFFIXES):
            if CPP / folder not in path.parents:
                continue
            faults += [
                f"{path.relative_to(ROOT)}: {fault}"
                for line in path.read_text().splitlines()
                if (fault := include_fault(path.relative_to(CPP), line))
            ]
    assert_none(faults)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("base/hex.h", '#include "task/runtime.h"'),
        ("io/psync.cc", '#include "pipeline/pipeline.h"'),
        ("include/ucmstore/types.h", '#include "base/result.h"'),
        ("store/posix/stage.cc", '#include "store/dram/stage.h"'),
        ("store/posix/stage.cc", '#include "pipeline/spec.h"'),
        ("block_id/namespace.h", '#include "io/file_system.h"'),
        ("base/hex.cc", "#include <base/hex.h>"),
    ],
)
def test_a_wrong_include_is_found(path: str, line: str) -> None:
    assert include_fault(Path(path), line) is not None


def test_frozen_headers_use_the_standard_library_only() -> None:
    paths = [path for path in files(".h") if CPP / "include" in path.parents]
    assert len(paths) >= 4
    assert_none(broken_lines(paths, searcher(r"#include <[^>]*(\.h|/)[^>]*>")))


def test_headers_are_included_once_and_leave_no_trace() -> None:
    headers = files(".h")
    missing = [str(path) for path in headers if "\n#pragma once\n" not in path.read_text()]
    assert_none(missing)
    assert_none(broken_lines(headers, searcher(r"^\s*using namespace ")))
    # fmt and spdlog stay out of headers: the installed ones must stand without them.
    assert_none(broken_lines(headers, searcher(r"#include <(spdlog|fmt)/")))


def catch_all_fault(line: str) -> bool:
    """Swallowing anything is for an edge (the ABI's, a worker's) or for want of memory: it says."""
    return "catch (...)" in line and not re.search(r"catch \(\.\.\.\) \{ +// .*(edge|memory)", line)


def test_catch_all_only_at_an_edge() -> None:
    assert catch_all_fault("} catch (...) {")
    assert not catch_all_fault("} catch (...) {  // the ABI's edge")
    paths = [path for path in files(*CPP_SUFFIXES) if CPP in path.parents]
    assert_none(broken_lines(paths, catch_all_fault, code_only=False))


def test_the_environment_is_read_by_the_pipeline_only() -> None:
    paths = [
        path
        for path in files(*CPP_SUFFIXES)
        if CPP in path.parents and path.relative_to(CPP).parts[0] not in {"pipeline", "python"}
    ]
    assert_none(broken_lines(paths, searcher(r"\bgetenv\b")))


BANNED_CALLS = [
    (r"\bstrerror\s*\(", "not thread-safe: base/result.h has ErrnoText"),
    (r"\b(sprintf|strcpy|strcat|gets)\s*\(", "no bound"),
    (r"\b(srand|rand|drand48)\s*\(", "not reproducible: seed a std::mt19937_64 and print the seed"),
    (r"\b(localtime|gmtime|ctime)\s*\(", "not thread-safe"),
    (r"\b(system|popen)\s*\(", "a shell parses it"),
    (r"\b(sleep_for|sleep_until|usleep|nanosleep|sleep)\s*\(", "a sleep loses races: wait for it"),
    (r"\b(const_cast|goto)\b", "ask whether it must be"),
    (r"\bfor \([^;]* : .*\)->", "what the call gives ends before the loop begins: name it first"),
]


@pytest.mark.parametrize(("pattern", "reason"), BANNED_CALLS)
def test_banned_calls(pattern: str, reason: str) -> None:
    paths = [path for path in files(*CPP_SUFFIXES) if ROOT / "examples" not in path.parents]
    assert_none(broken_lines(paths, searcher(pattern)), reason)


def test_a_library_does_not_print() -> None:
    paths = [path for path in files(*CPP_SUFFIXES) if CPP in path.parents]
    assert_none(broken_lines(paths, searcher(r"\bstd::(cout|cerr|printf|puts)\b")))


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (BANNED_CALLS[0][0], "return strerror(error);"),
        (BANNED_CALLS[5][0], "std::this_thread::sleep_for(1ms);"),
        (BANNED_CALLS[2][0], "int x = rand();"),
    ],
)
def test_a_banned_call_is_found(pattern: str, line: str) -> None:
    assert re.search(pattern, line)
    assert not is_excused(line)
    assert is_excused(line + "  // style: the reason")


BAD_NAME = r"\b(?:class|struct|enum|concept|using)\s+\w*(?:Manager|Helper|Util|Utils|Impl)\b"


def test_names_say_something() -> None:
    assert re.search(BAD_NAME, "class Block" + "Manager {")
    assert not re.search(BAD_NAME, "class Utilisation {")
    assert_none(broken_lines(files(*CPP_SUFFIXES), searcher(BAD_NAME)))
    assert_none(broken_lines(files(".py", ".pyi"), searcher(BAD_NAME)))
    named = [
        str(path) for path in files(*CPP_SUFFIXES, ".py") if re.search(r"util|helper", path.name)
    ]
    assert_none(named)


def test_every_source_is_built() -> None:
    lost = []
    for path in files(".cc"):
        lists = [
            parent / "CMakeLists.txt"
            for parent in path.parents
            if parent != ROOT and ROOT in parent.parents and (parent / "CMakeLists.txt").exists()
        ]
        names = "\n".join(item.read_text() for item in lists)
        if not re.search(rf"(^|[\s(/]){re.escape(path.name)}($|[\s)])", names):
            lost.append(str(path.relative_to(ROOT)))
    assert_none(lost)


# ---- Python --------------------------------------------------------------------------------------


def test_the_package_never_imports_a_framework() -> None:
    adapters = ROOT / "python/ucmstore/integrations"  # which only their framework imports
    paths = [
        path
        for path in files(".py", ".pyi")
        if ROOT / "python" in path.parents and adapters not in path.parents
    ]
    pattern = r"^\s*(import|from)\s+(torch|vllm|sglang|cupy|tensorflow|jax)\b"
    assert_none(broken_lines(paths, searcher(pattern)))


def test_only_adapters_import_adapters() -> None:
    adapters = ROOT / "python/ucmstore/integrations"
    paths = [
        path
        for path in files(".py", ".pyi")
        if ROOT / "python" in path.parents and adapters not in path.parents
    ]
    assert_none(broken_lines(paths, searcher(r"^\s*(import|from)\s+ucmstore\.integrations\b")))


def test_python_tests_do_not_sleep_to_win() -> None:
    paths = [path for path in files(".py") if ROOT / "tests" in path.parents]
    assert_none(broken_lines(paths, searcher(r"\btime\.sleep\(")))
