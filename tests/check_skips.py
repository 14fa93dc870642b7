# SPDX-License-Identifier: Apache-2.0
#
# A skipped test is a promise nobody checks. So each one must be listed in expected_skips.txt with
# its reason; this script reads the reports of ctest, pytest and googletest (JUnit XML) and fails on
# any other.
# It also fails on a report without tests: a suite that runs nothing passes nothing.
"""Compare the skipped tests in JUnit reports with tests/expected_skips.txt."""

import fnmatch
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

EXPECTED = Path(__file__).parent / "expected_skips.txt"


def read_expected(path: Path) -> dict[str, str]:
    """Map each listed pattern to its reason; a line is `pattern  # reason`."""
    expected = {}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, _, reason = line.partition("#")
        if not reason.strip():
            sys.exit(f"{path}:{number}: a skipped test needs a reason: {line!r}")
        expected[pattern.strip()] = reason.strip()
    return expected


def read_report(path: Path) -> tuple[int, dict[str, str]]:
    """Return the number of tests in a report, and the skipped ones with their messages."""
    count = 0
    skipped = {}
    for case in ET.parse(path).iter("testcase"):  # noqa: S314 - our own tools wrote it
        count += 1
        mark = case.find("skipped")
        if mark is None:
            continue
        name = case.get("name", "")
        module = case.get("classname", "")
        # ctest repeats the name as the class; googletest gives the suite, pytest the module.
        if module in ("", name):
            full = name
        else:
            full = f"{module}.{name}" if case.get("result") else f"{module}::{name}"
        skipped[full] = mark.get("message", "")
    return count, skipped


def main(reports: list[str]) -> int:
    expected = read_expected(EXPECTED)
    total = 0
    bad = 0
    listed = 0
    for report in reports:
        count, skipped = read_report(Path(report))
        if count == 0:
            print(f"{report}: no test was run")
            bad += 1
        total += count
        for name, message in skipped.items():
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in expected):
                listed += 1
                continue
            print(f"skipped, and not listed in {EXPECTED.name}: {name} ({message})")
            bad += 1
    print(f"{total} tests, {listed} skipped as listed, {bad} problems")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
