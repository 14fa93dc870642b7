# SPDX-License-Identifier: Apache-2.0
"""`python -m ucmstore.cli`: the command line of the interpreter at hand."""

from ucmstore.cli import main

if __name__ == "__main__":
    main()
