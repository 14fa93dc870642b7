# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to what was stored, the texts are right, now and two restarts later."""

from __future__ import annotations

import time
from typing import Any

import pytest

from conftest import Site, Truth, assert_same, make_prompts

ROUNDS: list[dict[str, Any]] = [{"prompts": make_prompts(1)}]
FAULTY = "Cache|Fault|Posix"


def assert_right_after_restarts(site: Site, true: list[dict[str, Any]], restarts: int = 2) -> None:
    """What the faulty engine may have stored is right, as often as it is read from the disk."""
    for _ in range(restarts):
        site.lose_ring()
        told = site.run(ROUNDS, extra=site.extra(spec=FAULTY))
        assert_same(told["rounds"], true)
    assert told["figures"]["ucmstore_loaded_blocks"] > 0
    assert told["figures"]["ucmstore_failed_blocks_corrupt"] == 0


def test_s01_damaged_files_are_computed_again(site: Site, truth: Truth) -> None:
    true = truth.of(ROUNDS)
    site.run(ROUNDS, extra=site.extra(spec=FAULTY))
    site.lose_ring()
    blocks = site.blocks()
    assert len(blocks) > 6
    for path in blocks[0:2]:
        whole = bytearray(path.read_bytes())
        whole[5000] ^= 0xFF
        path.write_bytes(whole)
    blocks[2].write_bytes(blocks[2].read_bytes()[:100_000])
    blocks[3].unlink()
    told = site.run(ROUNDS, extra=site.extra(spec=FAULTY))
    assert_same(told["rounds"], true)
    assert told["figures"]["ucmstore_failed_blocks_corrupt"] > 0
    assert_right_after_restarts(site, true)


def test_a05_d02_loads_that_fail_after_their_lookup(site: Site, truth: Truth) -> None:
    true = truth.of(ROUNDS)
    site.run(ROUNDS, extra=site.extra(spec=FAULTY))
    for code, figure in (
        ("not_found", "ucmstore_failed_blocks_absent"),
        ("corruption", "ucmstore_failed_blocks_corrupt"),
        ("io_error", "ucmstore_failed_blocks_error"),
    ):
        site.lose_ring()
        # The second block of a prompt, whose first is good, and whatever else comes third.
        rules = [f"load fail={code} nth={n}" for n in (2, 3, 9)]
        extra = site.extra(spec=FAULTY, stages={"fault": {"rules": rules}})
        told = site.run(ROUNDS, extra=extra)
        assert_same(told["rounds"], true)
        assert told["figures"][figure] > 0
        assert told["figures"]["ucmstore_loaded_blocks"] > 0
    assert_right_after_restarts(site, true)


@pytest.mark.parametrize(
    ("rule", "figure"),
    [("load hold", "failed_blocks_late"), ("lookup hold", "lookup_timeouts")],
)
def test_s04_a_disk_that_hangs_delays_nothing_for_long(
    site: Site, truth: Truth, rule: str, figure: str
) -> None:
    true = truth.of(ROUNDS)
    site.run(ROUNDS, extra=site.extra(spec=FAULTY))
    site.lose_ring()
    extra = site.extra(spec=FAULTY, load_timeout=1.0, save_timeout=1.0, lookup_timeout=0.02)
    begun = time.monotonic()
    told = site.run(ROUNDS, extra=extra, hold=rule)  # until the engine has ended
    assert time.monotonic() - begun < 120
    assert_same(told["rounds"], true)
    assert told["figures"][f"ucmstore_{figure}"] > 0
    assert_right_after_restarts(site, true, restarts=1)


@pytest.mark.parametrize("spec", ["Fault|Posix", "Cache|Fault|Posix"])
def test_d08_saves_that_fail_are_no_harm(site: Site, truth: Truth, spec: str) -> None:
    true = truth.of(ROUNDS)
    extra = site.extra(spec=spec, stages={"fault": {"rules": ["dump fail=no_space count=20"]}})
    told = site.run(ROUNDS, extra=extra)
    assert_same(told["rounds"], true)
    told = site.run(ROUNDS, extra=site.extra(spec=spec))
    assert_same(told["rounds"], true)


def test_l06_a_dead_root_is_served_uncached_and_said_aloud(site: Site, truth: Truth) -> None:
    true = truth.of(ROUNDS)
    extra = {**site.extra(), "root": "/sys/ucmstore"}
    running = site.start(ROUNDS, extra=extra)
    told = running.finish()
    assert_same(told["rounds"], true)
    assert told["figures"]["ucmstore_uncached"] == 1
    assert "NOTHING IS CACHED" in running.log()


@pytest.mark.parametrize(
    ("options", "words"),
    [({"rot": "/x"}, "did you mean 'root'"), ({"stages": {"posix": {"mod": "group"}}}, "mode")],
)
def test_a_bad_option_refuses_to_start(site: Site, options: dict[str, Any], words: str) -> None:
    running = site.start(ROUNDS, extra={**site.extra(), **options})
    assert words in running.failure()
