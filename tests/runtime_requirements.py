# SPDX-License-Identifier: Apache-2.0
#
# Prints what the package needs at run time, a line each, as pyproject.toml says: the Makefile
# installs it into .venv before the package itself, which it builds without isolation.
"""Print the run-time requirements of the package."""

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
print("\n".join(project["dependencies"]))
