# SPDX-License-Identifier: Apache-2.0
"""What the tests with a real vLLM share: a model, prompts, engines that run in their own process.

The model is a tiny random Llama, made on the spot. UCMSTORE_TEST_MODEL names a folder with another.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python"))  # api_support: the reins of the Fault stage

import api_support  # noqa: E402

ENGINE_S = 240.0  # what an engine is given for all it does
PAGE = 32  # tokens of a block of the engine

Prompts = list[list[int]]


def make_prompts(seed: int, count: int = 8, common: int = 300, vocabulary: int = 1000) -> Prompts:
    """Prompts of growing length that share their beginning."""
    source = random.Random(seed)
    shared = [source.randrange(10, vocabulary) for _ in range(common)]
    return [
        shared + [source.randrange(10, vocabulary) for _ in range(100 * i + 37)]
        for i in range(count)
    ]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a model."""
    given = os.environ.get("UCMSTORE_TEST_MODEL")
    if given:
        return given
    folder = tmp_path_factory.mktemp("model") / "tiny-llama"
    make_tiny_llama(folder)
    return str(folder)


def make_tiny_llama(folder: Path) -> None:
    """A random Llama: 8 layers of 4 KV heads, so 8 KiB of KV for each token in bfloat16."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1024,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=64,
        max_position_embeddings=4096,
        initializer_range=0.2,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


class Engines:
    """Starts engines: see engine.py."""

    def __init__(self, log: Path) -> None:
        path = [str(HERE.parent / "python"), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
        environment.pop("PYTHONHASHSEED", None)
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "engine.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
            env=environment,
        )

    def start(self, plan: Path, result: Path, log: Path) -> int:
        """The process id of a new engine."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(plan), str(result), str(log)]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    engines = Engines(tmp_path_factory.mktemp("engines") / "log.txt")
    yield engines
    engines.close()


class Running:
    """An engine that runs."""

    def __init__(self, process: int, result: Path, log: Path) -> None:
        self._process = process
        self._result = result
        self._log = log

    def finish(self) -> dict[str, Any]:
        """What it has to tell when it has ended."""
        if not self._ended(ENGINE_S):
            self.kill()
            pytest.fail(f"the engine did not end within {ENGINE_S} s: {self.log()}")
        assert self._result.exists(), f"the engine failed: {self.log()}"
        told: dict[str, Any] = json.loads(self._result.read_text())
        return told

    def failure(self) -> str:
        """The words with which it refused to start."""
        assert self._ended(ENGINE_S)
        assert not self._result.exists(), "the engine started"
        return self.log()

    def kill_when_held(self) -> None:
        """Kill it as soon as its rule holds something."""
        sign = self._result.with_suffix(".held")
        try:
            api_support.until(lambda: sign.exists() or self._ended(0), "the rule holds something")
            assert sign.exists(), self.log()
        finally:
            self.kill()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)
        assert self._ended(30)

    def log(self) -> str:
        """The end of its log."""
        return self._log.read_text()[-6000:]

    def _ended(self, seconds: float) -> bool:
        try:
            handle = os.pidfd_open(self._process)
        except ProcessLookupError:
            return True
        try:
            return bool(select.select([handle], [], [], seconds)[0])
        finally:
            os.close(handle)


class Site:
    """A root and a ring of its own, and the engines that use them."""

    def __init__(self, folder: Path, model: str, engines: Engines) -> None:
        self.model = model
        self.root = folder / "root"
        self.folder = folder
        self.ring = Path(tempfile.mkdtemp(prefix="ucmstore-vllm-", dir="/dev/shm"))
        self._engines = engines
        self._runs = 0

    def extra(self, **options: Any) -> dict[str, Any]:
        """The connector's options."""
        stages = {"cache": {"path": str(self.ring)}, **options.pop("stages", {})}
        if "Fault" in options.get("spec", ""):
            stages["store"] = {"plugin_path": [str(api_support.fault_folder())]}
            stages.setdefault("fault", {})["name"] = "engine"
        if "Cache" not in options.get("spec", "Cache|Posix"):
            del stages["cache"]
        return {
            "root": str(self.root),
            "ring": "256MiB",
            "min_hit_tokens": 1,
            "lookup_timeout": 10.0,  # a busy machine is no miss
            "stages": stages,
            **options,
        }

    def start(self, rounds: list[dict[str, Any]], **plan: Any) -> Running:
        """An engine that serves these rounds and exits."""
        self._runs += 1
        paths = [self.folder / f"{self._runs}-{n}" for n in ("plan.json", "result.json", "log.txt")]
        plan.setdefault("extra", self.extra())
        paths[0].write_text(json.dumps({"model": self.model, "rounds": rounds, **plan}))
        return Running(self._engines.start(*paths), *paths[1:])

    def run(self, rounds: list[dict[str, Any]], **plan: Any) -> dict[str, Any]:
        """What it tells."""
        return self.start(rounds, **plan).finish()

    def lose_ring(self) -> None:
        """As after a reboot."""
        for file in self.ring.iterdir():
            file.unlink()

    def blocks(self) -> list[Path]:
        """The files of all blocks."""
        return sorted(p for p in self.root.rglob("*") if p.is_file() and len(p.name) == 32)


@pytest.fixture
def site(tmp_path: Path, model: str, engines: Engines) -> Iterator[Site]:
    site = Site(tmp_path, model, engines)
    yield site
    shutil.rmtree(site.ring, ignore_errors=True)


class Truth:
    """What an engine without a connector says to a round. Asked once for each."""

    def __init__(self, folder: Path, model: str, engines: Engines) -> None:
        self._site = Site(folder, model, engines)
        self._known: dict[str, dict[str, Any]] = {}

    def of(self, rounds: list[dict[str, Any]], **plan: Any) -> list[dict[str, Any]]:
        """The rounds' results, each as if it were served alone."""
        asked = [{key: one[key] for key in one if key != "reset"} for one in rounds]
        keys = [json.dumps([each, plan], sort_keys=True) for each in asked]
        new = [i for i, key in enumerate(keys) if key not in self._known]
        if new:
            told = self._site.run([{**asked[i], "reset": True} for i in new], extra=None, **plan)[
                "rounds"
            ]
            self._known.update(zip((keys[i] for i in new), told, strict=True))
        return [self._known[key] for key in keys]

    def close(self) -> None:
        shutil.rmtree(self._site.ring, ignore_errors=True)


@pytest.fixture(scope="session")
def truth(
    tmp_path_factory: pytest.TempPathFactory, model: str, engines: Engines
) -> Iterator[Truth]:
    truth = Truth(tmp_path_factory.mktemp("truth"), model, engines)
    yield truth
    truth.close()


def assert_same(
    told: list[dict[str, Any]], true: list[dict[str, Any]], tolerance: float = 0.2
) -> None:
    """The same tokens, and the same logprobs but for the order of sums (in bfloat16)."""
    for one, other in zip(told, true, strict=True):
        assert one["tokens"] == other["tokens"]
        for row, expected in zip(one["logprobs"], other["logprobs"], strict=True):
            assert row == pytest.approx(expected, abs=tolerance)
