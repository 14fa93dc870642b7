# SPDX-License-Identifier: Apache-2.0
"""The table of commands."""

from __future__ import annotations

from typing import Annotated

import typer

import ucmstore
from ucmstore.cli import demo, doctor, ls, options, purge, replay, shm, verify, vllm_args

app = typer.Typer(
    name="ucmstore",
    help="A store for the KV cache of LLM serving engines.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.command)
app.command("replay")(replay.command)
app.command("ls")(ls.command)
app.command("inspect")(ls.inspect_command)
app.command("verify")(verify.command)
app.command("purge")(purge.command)
app.command("options")(options.command)
app.command("doctor")(doctor.command)
app.command("vllm-args")(vllm_args.command)
app.add_typer(shm.app, name="shm")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(ucmstore.__version__)
        raise typer.Exit


@app.callback()
def root(
    _asked: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A store for the KV cache of LLM serving engines."""
