"""llm-foundry's (Composer's) YAML.

Source of the keys: mosaicml/llm-foundry, scripts/train/yamls/pretrain and llmfoundry/models/mpt/configuration_mpt.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.base.units import is_count
from optimizer.frameworks.config.launch import Values, key_tables, named_values, note_dtype, rest, take
from optimizer.frameworks.config.method import note_optimizer
from optimizer.frameworks.launch import LARGEST_COUNT, Launch
from optimizer.frameworks.shape import named
from optimizer.job.job import Job
from optimizer.job.plan import Plan

COUNTS: Mapping[str, str] = key_tables("llm_foundry")["counts"]
# Among the GPUs of a node, as Composer and Accelerate call it.
HYBRID: Mapping[str, int] = {"HYBRID_SHARD": 3, "_HYBRID_SHARD_ZERO2": 2, "HYBRID_SHARD_ZERO2": 2}
SHARDING: Mapping[str, int] = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, **HYBRID}
SHARED: Mapping[int, str] = {3: "HYBRID_SHARD", 2: "_HYBRID_SHARD_ZERO2"}  # as Composer calls it
NAMES = {stage: name for name, stage in SHARDING.items() if name not in HYBRID}
MICRO, STRATEGY, RECOMPUTE = "device_train_microbatch_size", "fsdp_config.sharding_strategy", "activation_checkpointing"
LOADER, PACKING = "train_loader.name", "train_loader.dataset.packing_ratio"
PRETRAINED, PRECISION, DURATION = "model.pretrained_model_name_or_path", "precision", "max_duration"
OPTIMIZER = "optimizer.name"
# Source: mosaicml/composer, composer/utils/parallelism.py, FSDPConfig (FULL_SHARD, and DEFAULT, which has wider weights
# or gradients on the wire); mosaicml/llm-foundry, llmfoundry/models/hf/hf_base.py ("eager").
FSDP, MIXED = "fsdp_config.", "fsdp_config.mixed_precision"
RMS = ("rmsnorm", "low_precision_rmsnorm", "triton_rmsnorm")
FLASH_2, ATTENTION = "model.use_flash_attention_2", "model.attn_implementation"
NORMED = ("model.attn_config.qk_ln", "model.attn_config.qk_gn")
# Values that are priced, of keys that are read or say what kernels there are; others are named.
# Source: llmfoundry/models/layers (attention.py, norm.py, ffn.py).
KNOWN: Mapping[str, tuple[str, ...]] = {
    "model.attn_config.attn_impl": ("torch", "flash", "triton", "flex"),
    "model.attn_config.attn_type": ("multihead_attention", "multiquery_attention", "grouped_query_attention"),
    "model.ffn_config.ffn_type": ("mptmlp", "mptglu", "mptgeglu", "te_ln_mlp"),
}
NORM, NORMS = "model.norm_type", ("layernorm", "low_precision_layernorm", *RMS)
LEARNED = "model.learned_pos_emb"
FORMATTED = ("param_dtype", "reduce_dtype")
KINDS = ("mpt_causal_lm", "hf_causal_lm")  # of model.name: its own model, and those of Transformers


def recognised(values: Values) -> bool:
    """Whether a YAML is llm-foundry's."""
    return "global_train_batch_size" in values or "device_train_microbatch_size" in values


def read(launch: Launch, values: Values) -> None:
    """Note what it says; the number of GPUs is not in it."""
    take(launch, values, COUNTS)
    settings = launch.settings
    strategy = str(values.get(STRATEGY, "")).upper()
    shards = any(path.startswith(FSDP) for path in values)
    launch.say("zero_stage", SHARDING.get(strategy or "FULL_SHARD" * shards, 0), STRATEGY if strategy else "")
    if strategy and strategy not in SHARDING:
        launch.unpriced.append(f"{STRATEGY} {strategy}")
    if MIXED in values and values[MIXED] is None:
        launch.unpriced.append(f"{MIXED} null")
    elif parts := [path for path in values if path.startswith(f"{MIXED}.")]:  # what is not named is in 32 bits
        narrow = {path for path in parts if str(values[path]).removeprefix("torch.") in ("bf16", "bfloat16")}
        wide = [f"{path} {values[path]}" for path in parts if path not in narrow and path.endswith(FORMATTED)]
        wide += [f"{MIXED} without {name}" for name in FORMATTED if f"{MIXED}.{name}" not in parts]
        launch.unpriced += wide
    elif shards and MIXED not in values:
        launch.unpriced.append(f"{MIXED} DEFAULT, where no key says it: priced as PURE")
    launch.say("recompute", "full" if values.get(f"fsdp_config.{RECOMPUTE}") else "none", f"fsdp_config.{RECOMPUTE}")
    if values.get("fsdp_config.activation_cpu_offload"):
        launch.say("activation_offload", 100, "fsdp_config.activation_cpu_offload")
    note_dtype(launch, values, PRECISION)
    note_optimizer(launch, values.get(OPTIMIZER), OPTIMIZER)
    _model(launch, values)
    if values.get(LOADER) == "finetuning":
        launch.say("packing", bool(values.get(PACKING)), PACKING if values.get(PACKING) else LOADER)
    if strategy in HYBRID:
        settings["hybrid"] = True
        launch.unsearched.append(f"{STRATEGY} {strategy}: weights are shared by the GPUs of a node")
        launch.say("shard", 8, STRATEGY)
    implementation = values.get("model.attn_config.attn_impl")
    if values.get("model.name") == KINDS[1]:
        fused = values.get(FLASH_2) is True or str(values.get(ATTENTION, "eager")) != "eager"
        launch.say("attention", "flash" if fused else "unfused", FLASH_2 if FLASH_2 in values else ATTENTION)
    elif implementation is not None:
        flash = str(implementation) in ("flash", "triton", "flex")
        launch.say("attention", "flash" if flash else "unfused", "model.attn_config.attn_impl")
    if values.get(MICRO) == "auto":
        launch.assumed.append(f"{MICRO} auto: micro-batches of 1; the edits say what fits")
    most = settings.get("global_batch", 0) // settings.get("gpus", LARGEST_COUNT)
    if 0 < most < settings.get("micro_batch", 0):  # as its train.py has it, which warns
        launch.say("micro_batch", most, MICRO)
        launch.assumed.append(f"{MICRO} {values[MICRO]}: a GPU has {most} sequences a step, so micro-batches of {most}")
    duration = str(values.get(DURATION, ""))
    if duration.endswith("tok") and is_count(duration[:-3].replace("_", "")):
        launch.say("tokens", int(duration[:-3].replace("_", "")), DURATION)
    elif duration.endswith("ba") and is_count(duration[:-2]) and {"global_batch", "seq_len"} <= settings.keys():
        launch.say("tokens", int(duration[:-2]) * settings["global_batch"] * settings["seq_len"], DURATION)
    rest(
        launch,
        values,
        (*COUNTS.values(), "model.expansion_ratio", PRETRAINED, "model.name", FLASH_2, ATTENTION, *KNOWN),
    )


def _model(launch: Launch, values: Values) -> None:
    settings = launch.settings
    if (kind := values.get("model.name")) is not None and str(kind) not in KINDS:
        launch.unknown_model("model.name", kind)
        for name, path in COUNTS.items():
            if path.startswith("model."):  # of code that is not llm-foundry's: what else it is made of is not known
                settings.pop(name, None)
        return
    pretrained = values.get(PRETRAINED)
    if pretrained:
        name = named(str(pretrained))
        if name:
            launch.say("model", name, PRETRAINED)
        else:
            launch.unknown_model(PRETRAINED, pretrained)
        return
    ratio = values.get("model.expansion_ratio", 4)
    if not isinstance(ratio, int | float) or not 0 < ratio < 1000:
        launch.problems.append(f"model.expansion_ratio must be a number above 0, but got {ratio!r}")
    elif "hidden" in settings and "ffn_hidden" not in settings:
        launch.say("ffn_hidden", int(ratio * settings["hidden"]), "model.expansion_ratio")
    gated = "glu" in str(values.get("model.ffn_config.ffn_type", ""))
    alibi, rope = values.get("model.attn_config.alibi"), values.get("model.attn_config.rope")
    settings |= {
        "gated_mlp": gated,
        "activation": "swiglu" if gated else "gelu",
        "tied_embeddings": bool(values.get("model.tie_word_embeddings", True)),
    }
    named_values(launch, values, KNOWN)
    norm = str(values.get(NORM, NORMS[0])).lower()
    launch.say("norm", "rms" if norm in RMS else "layer", NORM if NORM in values else "")
    launch.unpriced += [f"{NORM} {norm}"] * (norm not in NORMS)
    if values.get("model.attn_config.attn_type") == "multiquery_attention":
        launch.say("kv_heads", 1, "model.attn_config.attn_type")
    if path := next((path for path in NORMED if values.get(path) is True), ""):
        launch.say("qk_norm", True, path)
    settings |= {
        "position": "alibi" if alibi else "rope" if rope else "none" if values.get(LEARNED) is False else "learned"
    }
    settings |= {"mlp_bias": not values.get("model.no_bias", True), "max_seq_len": settings.get("seq_len", 2048)}


def write(values: Values, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys of another plan."""
    wanted: dict[str, Any] = {}
    if before.micro_batch != after.micro_batch or (values.get(MICRO) == "auto"):
        wanted[MICRO] = after.micro_batch
    if (before.zero_stage, before.shard) != (after.zero_stage, after.shard):
        wanted[STRATEGY] = (SHARED if after.shard else NAMES).get(after.zero_stage, NAMES.get(after.zero_stage))
    if before.recompute != after.recompute:
        wanted[f"fsdp_config.{RECOMPUTE}"] = after.recompute == "full"
    if before.activation_offload != after.activation_offload:
        wanted["fsdp_config.activation_cpu_offload"] = after.activation_offload > 0
    return wanted
