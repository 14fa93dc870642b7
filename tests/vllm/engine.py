# SPDX-License-Identifier: Apache-2.0
"""vLLM engines as processes: imports vLLM once, then forks an engine for each plan it reads.

Each line of stdin names three files: a plan, where the result goes, and a log. The answer is the
engine's process id; it has ended when that process has, and well if the result is there. The plan
says which model, which connector, and rounds of prompts; the result holds for each round the
tokens, their logprobs and how many tokens of each prompt were found cached, and the figures of the
connector. With "hold" the store's Fault stage holds what the rule matches, and a file beside the
result, ending in .held, says that it does: then is the moment to kill that process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

SETTINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one process, starts in seconds
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "0",  # one thread: the same order of sums every time
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


def connector(plan: dict[str, Any]) -> dict[str, Any]:
    """The engine's arguments for the connector of the plan."""
    from vllm.config import KVTransferConfig

    ours = {
        "kv_connector": "UcmStoreConnector",
        "kv_connector_module_path": "ucmstore.integrations.vllm",
        "kv_role": plan.get("role", "kv_both"),
        "kv_connector_extra_config": plan["extra"],
    }
    if plan.get("beside"):  # as one child of several
        children = [plan["beside"], ours]
        ours = {
            "kv_connector": "MultiConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"connectors": children},
            "kv_load_failure_policy": "recompute",
        }
    return {"kv_transfer_config": KVTransferConfig(**ours)}


def serve(llm: Any, one: dict[str, Any]) -> dict[str, Any]:
    """One round."""
    from vllm import SamplingParams

    if one.get("reset"):
        assert llm.reset_prefix_cache(reset_connector=one["reset"] == "connector")
    sampling = SamplingParams(
        **{
            "temperature": 0,
            "max_tokens": 24,
            "logprobs": 0,
            "detokenize": False,
            "ignore_eos": True,
            **one.get("sampling", {}),
        }
    )
    salts = one.get("salts") or [None] * len(one["prompts"])
    prompts = [
        {"prompt_token_ids": prompt, **({"cache_salt": salt} if salt else {})}
        for prompt, salt in zip(one["prompts"], salts, strict=True)
    ]
    outputs = llm.generate(prompts, sampling, use_tqdm=False)
    texts = [completion for output in outputs for completion in output.outputs]
    return {
        "tokens": [list(text.token_ids) for text in texts],
        "logprobs": [
            [next(iter(step.values())).logprob for step in text.logprobs] for text in texts
        ],
        "cached": [output.num_cached_tokens for output in outputs],
        "prompt_logprobs": [
            [None if step is None else next(iter(step.values())).logprob for step in steps]
            for output in outputs
            if (steps := output.prompt_logprobs) is not None
        ],
    }


def figures(llm: Any) -> dict[str, float]:
    """The connector's, and the engine's of external hits."""
    return {
        metric.name.removeprefix("vllm:"): metric.value
        for metric in llm.get_metrics()
        if hasattr(metric, "value")
        and any(word in metric.name for word in ("ucmstore", "external", "preempt"))
    }


def hold(rule: str, sign: Path) -> None:
    """Arm a rule of the Fault stage, and say when it holds something."""
    from api_support import Fault

    fault = Fault("engine")
    number = fault.arm(rule)

    def wait() -> None:
        fault.wait_held(number)
        sign.touch()

    threading.Thread(target=wait, daemon=True).start()


def run(plan_path: Path, result_path: Path) -> None:
    """An engine, from its start to its end."""
    plan = json.loads(plan_path.read_text())
    os.environ.update(plan.get("environment", {}))
    from vllm import LLM

    arguments = {
        "model": plan["model"],
        "dtype": plan.get("dtype", "bfloat16"),
        "block_size": 32,
        "max_model_len": 2048,
        "max_num_batched_tokens": 512,
        "enforce_eager": True,
        "skip_tokenizer_init": True,
        "disable_log_stats": False,
        **plan.get("engine", {}),
    }
    if plan.get("extra") is not None:
        arguments.update(connector(plan))
    llm = LLM(**arguments)
    if plan.get("hold"):
        hold(plan["hold"], result_path.with_suffix(".held"))
    result: dict[str, Any] = {"rounds": [serve(llm, one) for one in plan["rounds"]]}
    result["figures"] = figures(llm)
    llm.llm_engine.engine_core.shutdown()
    result_path.write_text(json.dumps(result))


def fork(plan: str, result: str, log: str) -> int:
    """An engine in a process of its own."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.close(0)
        run(Path(plan), Path(result))
        status = 0
    except BaseException:  # noqa: BLE001  (of this process, which ends here)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    os.environ.update(SETTINGS)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them by number
    import vllm.v1.engine.core
    import vllm.v1.worker.cpu_worker  # noqa: F401

    for line in sys.stdin:
        print(fork(*json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
