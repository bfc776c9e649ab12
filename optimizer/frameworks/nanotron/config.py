"""nanotron's YAML.

Source of the keys: huggingface/nanotron, src/nanotron/config/config.py and models_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.frameworks.config.launch import ConfigKey, Values, note_keys, rest, take, tied
from optimizer.frameworks.launch import Launch
from optimizer.job.job import Job
from optimizer.job.plan import Plan

CONFIG = "model.model_config."
DEGREES: Mapping[str, str] = {
    "tp": "parallelism.tp",
    "pp": "parallelism.pp",
    "dp": "parallelism.dp",
    "cp": "parallelism.context_parallel_size",
    "ep": "parallelism.expert_parallel_size",
    "micro_batch": "tokens.micro_batch_size",
    "num_microbatches": "tokens.batch_accumulation_per_replica",
    "zero_stage": "optimizer.zero_stage",
}
COUNTS: Mapping[str, str] = {
    **{path: name for name, path in DEGREES.items()},
    "tokens.sequence_length": "seq_len",
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
RECOMPUTE, MODE, ENGINE = "parallelism.recompute_layer", "parallelism.tp_mode", "parallelism.pp_engine"
STEPS = "tokens.train_steps"
KEYS = (
    ConfigKey("sequence_parallel", (MODE,), lambda mode: str(mode).upper() == "REDUCE_SCATTER", "ALL_REDUCE"),
    ConfigKey("recompute", (RECOMPUTE,), lambda on: "full" if on else "none", False),
    ConfigKey("dtype", ("model.dtype",), lambda name: "fp16" if name == "float16" else "bf16", "bfloat16"),
    ConfigKey("grad_bytes", ("optimizer.accumulate_grad_in_fp32",), lambda wide: 4 if wide else 2),
    ConfigKey("tp_overlap", ("parallelism.tp_linear_async_communication",), lambda on: False if on is False else None),
    ConfigKey(
        "bucket", ("model.ddp_bucket_cap_mb",), lambda size: size * 1e6 if isinstance(size, int | float) else None
    ),
    ConfigKey("tied_embeddings", (CONFIG + "tie_word_embeddings",), bool),
)


def recognised(values: Values) -> bool:
    """Whether a YAML is nanotron's."""
    return "parallelism.dp" in values and "tokens.sequence_length" in values


def read(launch: Launch, values: Values) -> None:
    """Note what it says."""
    take(launch, values, COUNTS)
    note_keys(launch, values, KEYS)
    settings = launch.settings
    if values.get(ENGINE, "1f1b") != "1f1b":
        launch.unsearched.append(f"{ENGINE} {values[ENGINE]} is priced as 1f1b")
    settings |= {"gated_mlp": True, "activation": "swiglu", "norm": "rms", "position": "rope"}
    if isinstance(values.get(STEPS), int) and {"dp", "micro_batch", "num_microbatches", "seq_len"} <= settings.keys():
        step = settings["dp"] * settings["micro_batch"] * settings["num_microbatches"] * settings["seq_len"]
        launch.say("tokens", values[STEPS] * step, STEPS)
    rest(launch, values, (ENGINE, *COUNTS))


def write(values: Values, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys of another plan."""
    wanted = tied(values, DEGREES, before, after)
    if before.sequence_parallel != after.sequence_parallel:
        wanted[MODE] = "REDUCE_SCATTER" if after.sequence_parallel else "ALL_REDUCE"
    if before.recompute != after.recompute:
        wanted[RECOMPUTE] = after.recompute == "full"
    return wanted
