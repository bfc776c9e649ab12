"""nanotron's YAML.

Source of the keys: huggingface/nanotron, src/nanotron/config/config.py and models_config.py;
src/nanotron/models/starcoder2.py; src/nanotron/parallel/tensor_parallel/nn.py for what excludes what.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.frameworks.config.launch import (
    ConfigKey,
    Values,
    key_tables,
    named_values,
    note_dtype,
    note_keys,
    rest,
    take,
    take_steps,
    tied,
    whole,
    written_keys,
)
from optimizer.frameworks.config.method import optimizer_named
from optimizer.frameworks.launch import Launch
from optimizer.job.job import Job
from optimizer.job.plan import Plan

DEGREES: Mapping[str, str] = key_tables("nanotron")["plan"]
COUNTS: Mapping[str, str] = key_tables("nanotron")["counts"]
COUNTS_BEFORE: Mapping[str, str] = key_tables("nanotron")["counts_before"]
MODEL = "model.model_config."
KINDS: Mapping[str, str] = {name: f"{MODEL}is_{name}_config" for name in ("llama", "llamoe", "qwen2", "starcoder2")}
ACTIVATION, KV_HEADS, MULTI_QUERY, GROUPED = (
    f"{MODEL}{name}" for name in ("activation_function", "num_kv_heads", "multi_query", "grouped_query")
)
# Whether there is a shared expert, and its width.
SHARED = tuple(f"{MODEL}moe_config.{name}" for name in ("enable_shared_expert", "shared_expert_intermediate_size"))
UNGATED: Mapping[str, Any] = {"gated_mlp": False, "norm": "layer", "mlp_bias": True, "attention_bias": True}
RECOMPUTE, MODE, ENGINE = "parallelism.recompute_layer", "parallelism.tp_mode", "parallelism.pp_engine"
DTYPE, STEPS, ASYNC = "model.dtype", "tokens.train_steps", "parallelism.tp_linear_async_communication"
MODES = ("ALL_REDUCE", "REDUCE_SCATTER", "all_reduce", "reduce_scatter")
ACTS = ("silu", "gelu", "relu", "gelu_new", "gelu_pytorch_tanh")  # which cost the same, an element
# Bytes of gradients in fp32 in a bucket of "1 MB": PyTorch's DDP counts those in half precision. Its default is 25.
BUCKET_MB = 2e6
KEYS = (
    ConfigKey(
        "sequence_parallel",
        (MODE,),
        lambda mode: str(mode).upper() == "REDUCE_SCATTER",
        "ALL_REDUCE",
        lambda split: "REDUCE_SCATTER" if split else "ALL_REDUCE",
    ),
    ConfigKey("recompute", (RECOMPUTE,), lambda on: "full" if on else "none", False, lambda mode: mode == "full"),
    ConfigKey("grad_bytes", ("optimizer.accumulate_grad_in_fp32",), lambda wide: 4 if wide else 2),
    ConfigKey("keeps_gathered", ("parallelism.tp_recompute_allgather",), lambda on: not on),
    ConfigKey("tp_overlap", (ASYNC,), lambda on: False if on is False else None),
    ConfigKey(
        "bucket",
        ("model.ddp_bucket_cap_mb",),
        lambda size: size * BUCKET_MB if isinstance(size, int | float) else None,
        25,
    ),
    ConfigKey("tied_embeddings", ("model.model_config.tie_word_embeddings",), bool, False),
    ConfigKey("attention_bias", ("model.model_config.attention_bias",), lambda on: True if on is True else None),
    ConfigKey("optimizer", ("optimizer.optimizer_factory.name",), optimizer_named),
)


def recognised(values: Values) -> bool:
    """Whether a YAML is nanotron's."""
    return "parallelism.dp" in values and "tokens.sequence_length" in values


def read(launch: Launch, values: Values) -> None:
    """Note what it says."""
    before = COUNTS_BEFORE if COUNTS_BEFORE["experts"] in values else {}
    take(launch, values, {**DEGREES, **COUNTS, **before})
    note_keys(launch, values, KEYS)
    note_dtype(launch, values, DTYPE)
    settings = launch.settings
    if before and settings.get("ep", 1) > 1:
        settings["dp"] = settings.get("dp", 1) * settings["ep"]
        launch.assumed.append(f"{settings['dp']} replicas, those that share experts included, as before 2025")
    engine = values.get(ENGINE)
    if settings.get("pp", 1) > 1 and engine != "1f1b":  # afab where no key says it: parallelism_config.py
        launch.unsearched.append(f"{ENGINE} {engine or 'afab by default'} is priced as 1f1b")
    named_values(launch, values, {MODE: MODES, "model.model_config.hidden_act": ACTS})
    if values.get(SHARED[0]) is True:
        take(launch, values, {"shared_ffn": SHARED[1]})
    settings |= _kind(launch, values)
    take_steps(launch, values, STEPS)
    kinds = (*KINDS.values(), *SHARED, ACTIVATION, KV_HEADS, MULTI_QUERY, GROUPED)
    rest(launch, values, (ENGINE, DTYPE, *DEGREES.values(), *COUNTS.values(), *before.values(), *kinds))


def _kind(launch: Launch, values: Values) -> Mapping[str, Any]:
    """What a model has that its counts do not say, by its class: Llama and Qwen2, or StarCoder2; another is said."""
    if values.get(KINDS["starcoder2"]):
        heads = 1 if values.get(MULTI_QUERY) or not values.get(GROUPED) else whole(launch, values, KV_HEADS)
        return {**UNGATED, "position": "rope", "tied_embeddings": True} | ({"kv_heads": heads} if heads else {})
    if ACTIVATION in values:  # a class of some fork's
        launch.unpriced.append("model.model_config, of a class that is not nanotron's: read as a GPT")
        return {**UNGATED, "position": "learned"}
    return {"gated_mlp": True, "activation": "swiglu", "norm": "rms", "position": "rope"}


def write(values: Values, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys of another plan."""
    wanted = tied(DEGREES, before, after) | written_keys(KEYS, before, after)
    if after.tp == 1:
        wanted.pop(MODE, None)
    elif not after.sequence_parallel and values.get(ASYNC) is True:  # which it refuses then
        wanted[ASYNC] = False
    if COUNTS_BEFORE["experts"] in values and DEGREES["dp"] in values:
        wanted[DEGREES["dp"]] = after.dp // after.ep
    return wanted
