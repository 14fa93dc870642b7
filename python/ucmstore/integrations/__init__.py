# SPDX-License-Identifier: Apache-2.0
"""Adapters for serving engines. Nothing here is imported by the rest of ucmstore."""
