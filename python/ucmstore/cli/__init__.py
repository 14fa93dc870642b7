# SPDX-License-Identifier: Apache-2.0
"""The command line: `ucmstore`, or `python -m ucmstore.cli`.

One module for each command; each is a thin face over the public API, so that nothing can be done
here that cannot be done from Python. Single-threaded.
"""


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    from ucmstore.cli.app import app

    app()
