# SPDX-License-Identifier: Apache-2.0
"""Hypothesis for all tests here: no clocks, and a failure prints what repeats it."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("ucmstore", deadline=None, print_blob=True)
settings.load_profile("ucmstore")
