# SPDX-License-Identifier: Apache-2.0
"""Identity: what makes two engines' KV bytes mean the same, as the fields of a namespace.

The model's *content* is told by its commit where it comes from a hub, else by the name, size, time
and first bytes of each of its files; never by the name it is served under. What would mix bytes of
different meaning is refused in words.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from ucmstore.block_id import Layout
from ucmstore.errors import OptionError
from ucmstore.integrations.vllm.geometry import Geometry

_HEAD_BYTES = 64 << 10
_COMMIT = re.compile(r"[0-9a-f]{40}")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".json", ".model", ".tensors")
_RANDOM_HASHES = ("xxhash", "xxhash_cbor")


def check_hashes(algorithm: str) -> None:
    """Refuse block hashes that another process would not compute again."""
    if algorithm in _RANDOM_HASHES and "PYTHONHASHSEED" not in os.environ:
        raise OptionError(
            f"--prefix-caching-hash-algo {algorithm} gives other hashes in each process, so "
            "nothing that is stored would be found again; use sha256, or set PYTHONHASHSEED to "
            "the same number everywhere"
        )


def model_fields(config: Any) -> dict[str, str]:
    """The fields that scheduler and workers both can tell, from a VllmConfig."""
    model, cache = config.model_config, config.cache_config
    if getattr(cache, "calculate_kv_scales", False):
        raise OptionError(
            "--calculate-kv-scales computes the scales from the first request, so that the bytes "
            "of two engines differ; use a checkpoint with scales"
        )
    speculative = config.speculative_config
    if speculative is not None and speculative.method not in ("ngram", "suffix"):
        raise OptionError(
            f"speculative decoding by {speculative.method!r} keeps KV of its own, which is not "
            "stored yet; use ngram or suffix, or no KV connector"
        )
    parallel = config.parallel_config
    import vllm

    fields = {
        "model": Path(str(model.model)).name,
        "content": content(str(model.model), model.hf_config),
        "config": _digest_config(model.hf_config),
        "load_format": str(
            getattr(config.load_config.load_format, "value", config.load_config.load_format)
        ),
        "quantization": str(model.quantization),
        "dtype": str(model.dtype),
        "kv_dtype": str(cache.cache_dtype),
        "hashes": str(cache.prefix_caching_hash_algo),
        "engine": "vllm " + ".".join(vllm.__version__.split(".")[:2]),
        "connector": "1",
        **Layout(tp=parallel.tensor_parallel_size).fields(),
    }
    if "longrope" in _config_text(model.hf_config):
        fields["max_model_len"] = str(model.max_model_len)  # chooses among its factors
    if fields["load_format"] == "dummy":
        fields["seed"] = str(model.seed)
    return fields


def content(path: str, hf_config: Any) -> str:
    """The model's content in a few words, equal only if the weights are."""
    folder = Path(path)
    commit = getattr(hf_config, "_commit_hash", None)
    if folder.exists():
        resolved = folder.resolve()
        if resolved.parent.name == "snapshots" and _COMMIT.fullmatch(resolved.name):
            return f"commit {resolved.name}"
        return f"files {_digest_files(resolved)}"
    if commit:
        return f"commit {commit}"
    raise OptionError(
        f"model {path!r} is no folder and has no known commit, so its content cannot be told; give "
        "a local folder, or a hub model with its revision"
    )


def _digest_files(path: Path) -> str:
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    digest = hashlib.sha256()
    for file in files:
        if not file.is_file() or file.suffix not in _WEIGHTS:
            continue
        status = file.stat()
        with file.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
        name = "" if file == path else str(file.relative_to(path))
        line = (name, status.st_size, status.st_mtime_ns, hashlib.sha256(head).hexdigest())
        digest.update(json.dumps(line).encode())
    return digest.hexdigest()[:32]


def _plain(hf_config: Any) -> dict[str, Any]:
    plain: dict[str, Any] = hf_config.to_dict()
    return {
        key: value for key, value in plain.items() if key not in ("_name_or_path", "_commit_hash")
    }


def _config_text(hf_config: Any) -> str:
    """The configuration in its one spelling."""

    def spell(value: object) -> object:
        return sorted(map(str, value)) if isinstance(value, (set, frozenset)) else str(value)

    return json.dumps(_plain(hf_config), sort_keys=True, default=spell)


def _digest_config(hf_config: Any) -> str:
    return hashlib.sha256(_config_text(hf_config).encode()).hexdigest()[:32]


def geometry_fields(geometry: Geometry) -> dict[str, str]:
    """The fields that the geometry of a rank adds."""
    return {
        "layers": str(geometry.layers),
        "page_bytes": str(geometry.page_bytes),
        "page_tokens": str(geometry.page_tokens),
        "block_tokens": str(geometry.block_tokens),
    }
