# SPDX-License-Identifier: Apache-2.0
"""The project's figures: `python -m bench`. docs/benchmarks.md says what each one is."""
