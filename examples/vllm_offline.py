# SPDX-License-Identifier: Apache-2.0
"""vLLM whose KV cache outlives it: run this twice, and the second run finds what the first stored.

python vllm_offline.py MODEL /mnt/kv
"""

from __future__ import annotations

import sys
import time

from vllm import LLM, SamplingParams
from vllm.config import KVTransferConfig

STORY = "The lighthouse keeper counted the ships that passed, and wrote each into his book. " * 40
QUESTIONS = ("How many ships passed?", "What did the keeper write?", "Who reads the book?")


def main(model: str, root: str) -> None:
    """Ask some questions about one long text."""
    llm = LLM(
        model,
        max_model_len=2048,
        kv_transfer_config=KVTransferConfig(
            kv_connector="UcmStoreConnector",
            kv_connector_module_path="ucmstore.integrations.vllm",
            kv_role="kv_both",
            kv_connector_extra_config={"root": root},
        ),
    )
    for question in QUESTIONS:
        begun = time.monotonic()
        (output,) = llm.generate(
            [STORY + question], SamplingParams(temperature=0, max_tokens=32), use_tqdm=False
        )
        print(
            f"{output.num_cached_tokens} of {len(output.prompt_token_ids)} tokens were cached; "
            f"{time.monotonic() - begun:.2f} s: {output.outputs[0].text!r}"
        )


if __name__ == "__main__":  # vLLM starts processes that import this file
    main(*sys.argv[1:])
