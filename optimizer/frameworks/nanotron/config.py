"""nanotron's YAML.

Source of the keys: huggingface/nanotron, src/nanotron/config/config.py and models_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.frameworks.config.launch import Values, rest, take, tied
from optimizer.frameworks.launch import Launch
from optimizer.job.job import Job
from optimizer.job.plan import Plan

CONFIG = "model.model_config."
KEYS: Mapping[str, str] = {
    "parallelism.dp": "dp",
    "parallelism.tp": "tp",
    "parallelism.pp": "pp",
    "parallelism.context_parallel_size": "cp",
    "parallelism.expert_parallel_size": "ep",
    "tokens.micro_batch_size": "micro_batch",
    "tokens.batch_accumulation_per_replica": "num_microbatches",
    "tokens.sequence_length": "seq_len",
    "optimizer.zero_stage": "zero_stage",
    CONFIG + "hidden_size": "hidden",
    CONFIG + "intermediate_size": "ffn_hidden",
    CONFIG + "num_attention_heads": "heads",
    CONFIG + "num_hidden_layers": "layers",
    CONFIG + "num_key_value_heads": "kv_heads",
    CONFIG + "vocab_size": "vocab",
    CONFIG + "max_position_embeddings": "max_seq_len",
    CONFIG + "moe_config.num_experts": "experts",
    CONFIG + "moe_config.top_k": "top_k",
    CONFIG + "moe_config.moe_intermediate_size": "expert_ffn",
}
RECOMPUTE, MODE, DTYPE = "parallelism.recompute_layer", "parallelism.tp_mode", "model.dtype"
ASYNC, ENGINE, BUCKET = "parallelism.tp_linear_async_communication", "parallelism.pp_engine", "model.ddp_bucket_cap_mb"
FP32, TIED, STEPS = "optimizer.accumulate_grad_in_fp32", CONFIG + "tie_word_embeddings", "tokens.train_steps"
DEGREES = {
    "tp": "parallelism.tp",
    "pp": "parallelism.pp",
    "dp": "parallelism.dp",
    "cp": "parallelism.context_parallel_size",
    "ep": "parallelism.expert_parallel_size",
    "micro_batch": "tokens.micro_batch_size",
    "num_microbatches": "tokens.batch_accumulation_per_replica",
    "zero_stage": "optimizer.zero_stage",
}


def recognised(values: Values) -> bool:
    """Whether a YAML is nanotron's."""
    return "parallelism.dp" in values and "tokens.sequence_length" in values


def read(launch: Launch, values: Values) -> None:
    """Note what it says."""
    take(launch, values, KEYS)
    settings = launch.settings
    launch.say(
        "sequence_parallel", str(values.get(MODE, "ALL_REDUCE")).upper() == "REDUCE_SCATTER", _there(values, MODE)
    )
    launch.say("recompute", "full" if values.get(RECOMPUTE) else "none", _there(values, RECOMPUTE))
    launch.say("dtype", {"float16": "fp16"}.get(str(values.get(DTYPE)), "bf16"), _there(values, DTYPE))
    if FP32 in values:
        launch.say("grad_bytes", 4 if values[FP32] else 2, FP32)
    if values.get(ASYNC) is False:
        launch.say("tp_overlap", False, ASYNC)
    if isinstance(values.get(BUCKET), int | float):
        launch.say("bucket", float(values[BUCKET]) * 1e6, BUCKET)
    if values.get(ENGINE, "1f1b") != "1f1b":
        launch.unsearched.append(f"{ENGINE} {values[ENGINE]} is priced as 1f1b")
    settings |= {"gated_mlp": True, "activation": "swiglu", "norm": "rms", "position": "rope"}
    if TIED in values:
        launch.say("tied_embeddings", bool(values[TIED]), TIED)
    if isinstance(values.get(STEPS), int) and {"dp", "micro_batch", "num_microbatches", "seq_len"} <= settings.keys():
        step = settings["dp"] * settings["micro_batch"] * settings["num_microbatches"] * settings["seq_len"]
        launch.say("tokens", values[STEPS] * step, STEPS)
    rest(launch, values, (ENGINE, *KEYS))


def _there(values: Values, path: str) -> str:
    return path if path in values else ""


def write(values: Values, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys of another plan."""
    wanted = tied(values, DEGREES, before, after)
    if before.sequence_parallel != after.sequence_parallel:
        wanted[MODE] = "REDUCE_SCATTER" if after.sequence_parallel else "ALL_REDUCE"
    if before.recompute != after.recompute:
        wanted[RECOMPUTE] = after.recompute == "full"
    return wanted
