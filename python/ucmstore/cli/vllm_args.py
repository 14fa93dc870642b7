# SPDX-License-Identifier: Apache-2.0
"""`ucmstore vllm-args ROOT`: what to give to vLLM so that it keeps its KV cache below a root.

vllm serve MODEL $(ucmstore vllm-args /mnt/kv)
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ucmstore.cli.output import JsonFlag, fail, in_words, print_json


@in_words
def command(
    root: Annotated[Path, typer.Argument(help="The folder that is to keep the blocks.")],
    as_json: JsonFlag = False,
) -> None:
    """Print the argument that lets vLLM keep its KV cache below ROOT."""
    folder = root.absolute()
    if folder.exists() and not folder.is_dir():
        raise fail(f"{folder} is no folder", as_json=as_json)
    if not folder.parent.is_dir():
        raise fail(f"{folder}: the folder above it does not exist", as_json=as_json)
    if not as_json and any(char.isspace() or char in "*?[" for char in str(folder)):
        raise fail(f"{folder}: a shell would take that apart; see --json", as_json=as_json)
    config = {
        "kv_connector": "UcmStoreConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"root": str(folder)},
    }
    if as_json:
        print_json(config)
    else:
        typer.echo(f"--kv-transfer-config={json.dumps(config, separators=(',', ':'))}")
