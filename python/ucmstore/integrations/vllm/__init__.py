# SPDX-License-Identifier: Apache-2.0
"""The KV connector for vLLM: `UcmStoreConnector`.

It is found by its plain name, since the package announces itself to vLLM as a general plugin, or by
`kv_connector_module_path="ucmstore.integrations.vllm"`. Importing this package imports nothing of
vLLM: plugins are loaded before vLLM is ready to be imported.
"""

from __future__ import annotations

CONNECTOR = "UcmStoreConnector"
_MODULE = "ucmstore.integrations.vllm.connector"


def register() -> None:
    """Make the connector known to vLLM by its name. Called by vLLM in each of its processes."""
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    if CONNECTOR not in KVConnectorFactory._registry:
        KVConnectorFactory.register_connector(CONNECTOR, _MODULE, CONNECTOR)


def __getattr__(name: str) -> object:
    if name == CONNECTOR:
        from ucmstore.integrations.vllm import connector

        return connector.UcmStoreConnector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
