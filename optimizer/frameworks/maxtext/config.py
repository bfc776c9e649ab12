"""MaxText's YAML, by itself or under Primus.

Axes of its mesh lie inside a slice of devices (ici) or between slices (dcn); weights are sharded over those of fsdp,
context and expert. Source of the keys and defaults: AI-Hypercomputer/maxtext @e591f30c, src/maxtext/configs/base.yml
(logical_axis_rules for what each axis shards) and types.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import gcd, prod
from typing import Any

from optimizer.catalog import preset_model
from optimizer.frameworks.config.launch import (
    ConfigKey,
    Values,
    key_tables,
    named_values,
    note_dtype,
    note_keys,
    rest,
    take,
    whole,
)
from optimizer.frameworks.launch import LARGEST_COUNT, Launch
from optimizer.frameworks.shape import named
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.job.stack import MXFP8

AXES: Mapping[str, Sequence[str]] = key_tables("maxtext")["axes"]
COUNTS: Mapping[str, str] = key_tables("maxtext")["counts"]
MODELS: Mapping[str, str] = key_tables("maxtext")["models"]
PRESETS: Mapping[str, str] = {name: preset for preset, name in MODELS.items()} | key_tables("maxtext")["others"]
BATCH, STEPS, REMAT, NAME = "per_device_batch_size", "gradient_accumulation_steps", "remat_policy", "model_name"
DTYPE = "dtype"
MAXTEXT = "MaxText"
HALVED = "tpu-v7"  # whose chips are two devices each to JAX: https://docs.cloud.google.com/tpu/docs/tpu7x
# The share of a GPU's memory that JAX takes, by its newer name and its older one, and what it takes where neither is
# set. Source: jax-ml/jax, docs/gpu_memory_allocation.rst.
MEMORY_SHARES, OWN_SHARE = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"), 0.75
PIPED, SHARDED = "num_pipeline_microbatches", "shard_optimizer_over_data"
OVERRIDING, SIZES = "override_model_config", [name for name in COUNTS if name != "seq_len"]
ACTS = ("silu", "swish", "gelu", "relu", "linear")  # which cost the same, an element
TIED, BLOCK, ACTIVATIONS = "logits_via_embedding", "decoder_block", "mlp_activations"
USUAL: Mapping[str, int] = key_tables("maxtext")["usual"]
IDLE: Mapping[str, Any] = key_tables("maxtext")["idle"]
BLOCKS: Mapping[str, Mapping[str, Any]] = key_tables("maxtext")["blocks"]
# Source: src/maxtext/layers/quantizations.py, TransformerEngineQuantization and Fp8Quantization.
SCALES: Mapping[str, str] = {
    **dict.fromkeys(("te_fp8_delayedscaling", "fp8", "nanoo_fp8"), "delayed"),
    "te_fp8_currentscaling": "tensorwise",
    "te_mxfp8": MXFP8,
}
QUANTISED, PRIMUS = "quantization", "modules.pre_trainer.model"
TRAINER = "per_device_train_batch_size"
SLICE, SLICES, FSDP = "ici", "dcn", "ici_fsdp_parallelism"
SHARING = tuple(f"{part}_{axis}_parallelism" for axis in ("fsdp", "data") for part in (SLICE, SLICES))
AXIS = re.compile(f"(?:{SLICE}|{SLICES})_\\w+_parallelism")
SAVED, SAVED_ON_HOST = "save_qkv_proj", "qkv_proj_offloaded"
MINIMAL = "minimal"  # all but what attention makes of queries, keys and values
# What each recomputes; others are not priced. Source: src/maxtext/layers/decoders.py, get_remat_policy.
POLICIES: Mapping[str, str] = {
    "full": "full",
    **dict.fromkeys(("minimal_with_context", "minimal_flash", "none"), "none"),
    **dict.fromkeys((SAVED, SAVED_ON_HOST, MINIMAL), "selective"),
    "save_dot_with_context_except_mlp": "mlp",
    "save_dot_except_mlp": "core_attn+mlp",
}


def model_named(text: Any) -> str | None:
    """The preset that a name of a model means there.

    >>> model_named("llama3-405b"), model_named("gpt3-22b"), model_named("qwen3_14B.yaml")
    ('llama3.1-405b', None, 'qwen3-14b')
    """
    name = str(text).removesuffix(".yaml")
    return (PRESETS[name] if name in PRESETS else named(name)) or None


KEYS = (
    ConfigKey("recompute", (REMAT,), lambda policy: POLICIES.get(str(policy), "selective"), "full"),
    ConfigKey("dtype", (QUANTISED,), lambda text: "fp8" if "fp8" in str(text) else None),
    ConfigKey("fp8_recipe", (QUANTISED,), lambda text: SCALES.get(str(text))),
    ConfigKey("qk_norm", ("use_qk_norm",), lambda on: True if on is True else None),
    ConfigKey("attention_bias", ("attention_bias",), lambda on: True if on is True else None),
    ConfigKey("model", (NAME, PRIMUS), model_named),
    ConfigKey("tied_embeddings", (TIED,), bool),
)


def degrees(plan: Plan) -> dict[str, int]:
    """Devices along each axis, the innermost first.

    >>> degrees(Plan(tp=2, dp=32, ep=4, zero_stage=3, shard=16))
    {'tensor': 2, 'context': 1, 'expert': 4, 'pipeline': 1, 'fsdp': 4, 'data': 2}
    >>> degrees(Plan(dp=4, ep=4, zero_stage=3))
    {'tensor': 1, 'context': 1, 'expert': 4, 'pipeline': 1, 'fsdp': 1, 'data': 1}
    """
    groups = max(1, plan.dp // plan.ep)
    shared = min(groups, plan.shard // (plan.cp * plan.ep) or groups)
    sharing = shared if plan.zero_stage == 3 else 1
    axes = {"tensor": plan.tp, "context": plan.cp, "expert": plan.ep, "pipeline": plan.pp}
    return {**axes, "fsdp": sharing, "data": groups // sharing}


def mesh(plan: Plan, inside: int) -> dict[str, int]:
    """Degrees inside of slices of so many devices, and between slices, by key: those inside are filled first.

    >>> {key: size for key, size in mesh(Plan(tp=4, dp=16, zero_stage=3), 8).items() if size > 1}
    {'ici_tensor_parallelism': 4, 'ici_fsdp_parallelism': 2, 'dcn_fsdp_parallelism': 8}
    """
    sizes: dict[str, int] = {}
    for axis, degree in degrees(plan).items():
        within = gcd(degree, inside)
        inside //= within
        sizes |= {f"{SLICE}_{axis}_parallelism": within, f"{SLICES}_{axis}_parallelism": degree // within}
    return sizes


NEAR = 1e-6  # sequences by which a share of a batch may miss a whole number
LENGTH = 2048  # max_target_length of base.yml
VOCABULARY = 32_000  # vocab_size of base.yml


def policy(recompute: str, job: Job) -> str:
    """What remat_policy is called for a mode of recomputation, where selective keeps the projections into attention."""
    features = job.stack.features
    saved = MINIMAL if features.selective == "core" else SAVED_ON_HOST if features.selective_on_host else SAVED
    return {"full": "full", "none": "minimal_with_context"}.get(recompute, saved)


def recognised(values: Values) -> bool:
    """Whether a YAML is MaxText's; a Trainer's program may have max_target_length too."""
    ends = {path.rpartition(".")[2] for path in values}
    return bool(ends & {BATCH, "max_target_length", "base_emb_dim"}) and TRAINER not in ends


def read(launch: Launch, values: Values) -> None:
    """Note what it says; paths of a config inside another are known by their last key."""
    ends = {path.rpartition(".")[2]: path for path in values}
    take(launch, values, {name: ends[key] for name, key in COUNTS.items() if values.get(ends.get(key, ""), -1) != -1})
    settings = launch.settings
    if settings.get("experts") == 1:  # as base.yml has it where there are none
        for name in ("experts", "top_k", "expert_ffn"):
            settings.pop(name, None)
            launch.written.pop(name, None)
    if "seq_len" not in settings and PRIMUS not in values:
        settings["seq_len"] = LENGTH
        launch.assumed.append(f"sequences of {LENGTH:,} tokens, as its base.yml has them (--seq-len)")
    axes = [path for key, path in ends.items() if key.endswith("_parallelism")]
    odd = [path for path in values if path.endswith("_parallelism") and not isinstance(values[path], int)]
    launch.problems += [f"{path} must be a whole number, but got {values[path]!r}" for path in odd]
    size = values.get(ends.get(BATCH, ""), 12)
    if not odd and (isinstance(size, bool) or not isinstance(size, int | float) or not 0 < size < LARGEST_COUNT):
        launch.problems.append(f"{ends[BATCH]} must be a number above 0, but got {size!r}")
    if launch.problems:
        return
    settings.setdefault("dtype", "bf16")
    note_dtype(launch, values, ends.get(DTYPE, DTYPE))
    note_keys(launch, values, KEYS, ends)
    own = "model" not in settings and PRIMUS not in values and values.get(ends.get(NAME, ""), "default") == "default"
    if own and settings.keys() & USUAL.keys() and (left := USUAL.keys() - settings.keys()):
        settings |= {name: USUAL[name] for name in left}
        sizes = ", ".join(f"{COUNTS[name]} {USUAL[name]:,}" for name in USUAL if name in left)
        launch.assumed.append(f"{sizes}, as base.yml has them")
    if "vocab" not in settings and "layers" in settings and "model" not in settings:
        settings["vocab"] = VOCABULARY
        launch.assumed.append(f"vocabulary of {VOCABULARY:,} tokens, as its base.yml has it (--model)")
    if "model" in settings:
        _counted_sizes(launch, values, ends)
    if NAME in ends and "model" not in settings and values[ends[NAME]] != "default":
        launch.unknown_model(ends[NAME], values[ends[NAME]])
    elif PRIMUS in values and "model" not in settings:
        launch.unknown_model(PRIMUS, values[PRIMUS])
    chosen = str(values.get(ends.get(REMAT, ""), "full"))
    if chosen not in POLICIES:
        launch.unpriced.append(f"{ends[REMAT]} {chosen}")
    elif settings["recompute"] not in ("none", "full"):
        settings |= {"selective_on_host": chosen == SAVED_ON_HOST}
        settings |= {} if chosen in (SAVED, SAVED_ON_HOST) else {"selective": "core"}
    ranks = _axes(launch, values, ends)
    # A device's share of the batch: with several devices to a replica each sequence is shared by them.
    passes = _passes(values, ends, settings["pp"])
    whole_size = size * ranks / passes
    if ends.get(BATCH) and abs(whole_size - round(whole_size)) > NEAR:
        shared = f" by {ranks} devices" * (ranks > 1) + f" in {passes} micro-batches" * (passes > 1)
        launch.problems.append(f"{ends[BATCH]} {size}{shared} is {whole_size:g} sequences: expected a whole number")
    launch.say("micro_batch", max(1, round(whole_size)), ends.get(BATCH, ""))
    steps = (whole(launch, values, ends[STEPS]) if STEPS in ends else None) or 1
    launch.say("num_microbatches", int(steps) * passes, ends.get(STEPS, "") or ends.get(PIPED, "") or BATCH)
    if settings["pp"] > 1:
        launch.unsearched.append("its circular pipeline is priced as 1f1b, a layer group a stage")
    if "model" not in settings and "hidden" in settings:
        _shape(launch, values, ends)
    known = [
        ends[key]
        for key in (BATCH, STEPS, REMAT, NAME, DTYPE, PIPED, SHARDED, BLOCK, ACTIVATIONS, OVERRIDING)
        if key in ends
    ]
    if not _routed(settings):
        known += [path for key, path in ends.items() if "expert" in key]
    idle = [ends[key] for key, value in IDLE.items() if key in ends and values[ends[key]] == value]
    rest(launch, values, (*known, *axes, *idle, *COUNTS.values(), PRIMUS))


def _counted_sizes(launch: Launch, values: Values, ends: Mapping[str, str]) -> None:
    """Sizes beside a model's name count where a key says so; the model's own file comes after them otherwise."""
    counts = values.get(ends.get(OVERRIDING, "")) is True
    for name in SIZES:
        if counts or name not in launch.settings:
            continue
        path = launch.written.pop(name)
        launch.assumed.append(f"{path} {launch.settings.pop(name):,} does not count: {OVERRIDING} is not true")
    launch.settings.setdefault("head_dim", preset_model(launch.settings["model"]).head_dim)


def _shape(launch: Launch, values: Values, ends: Mapping[str, str]) -> None:
    """Note what the layers of a model are that no name tells: llama2's unless its block says otherwise."""
    block = str(values.get(ends.get(BLOCK, ""), "llama2"))
    activations = values.get(ends.get(ACTIVATIONS, ""), ["silu", "linear"])
    gated = isinstance(activations, list) and len(activations) > 1
    named_values(launch, values, {ends.get(ACTIVATIONS, ACTIVATIONS): ACTS})
    if block not in BLOCKS:
        launch.unpriced.append(f"{ends[BLOCK]} {block}")
    usual = {"norm": "rms", "position": "rope", "tied_embeddings": False}
    shape = {"gated_mlp": gated, "activation": "swiglu" if gated else "gelu"}
    launch.settings |= {**usual, **shape, **BLOCKS.get(block, {}), **launch.settings}


def _passes(values: Values, ends: Mapping[str, str], pp: int) -> int:
    """Micro-batches into which a pipeline cuts the batch of a pass: as many as stages unless a key says otherwise."""
    stated = values.get(ends.get(PIPED, ""))
    if pp == 1:
        return 1
    return stated if isinstance(stated, int) and not isinstance(stated, bool) and stated > 0 else pp


def _axes(launch: Launch, values: Values, ends: Mapping[str, str]) -> int:
    """Note the degrees that the axes of the mesh stand for; the devices of a replica."""
    settings, fsdp_key = launch.settings, ends.get(FSDP, "")
    split = [f"{part}_{axis}_parallelism" for axes in AXES.values() for axis in axes for part in (SLICE, SLICES)]
    launch.unpriced += [f"{ends[key]} -1" for key in split if values.get(ends.get(key, "")) == -1]
    others = {key: path for key, path in ends.items() if AXIS.fullmatch(key) and key not in (*split, *SHARING)}
    launch.unpriced += [f"{path} {values[path]}" for path in others.values() if values[path] != 1]
    for name, axes in AXES.items():
        degree = max(_degree(values, ends, axis) for axis in axes)
        launch.say(name, degree, ends.get(f"ici_{axes[0]}_parallelism", "") if degree > 1 else "")
    settings["sequence_parallel"] = settings["tp"] > 1
    if _routed(settings):  # experts are split as all weights are, beside their own axis
        settings["etp"] = settings["tp"]
    fsdp, data = (_degree(values, ends, axis, open_ends=True) for axis in ("fsdp", "data"))
    if FSDP not in ends:  # which takes all devices that are left
        fsdp = -1
    sharing = settings["cp"] * settings["ep"]
    ranks = int(settings["tp"] * settings["pp"] * settings["cp"])
    replica = ranks * settings["ep"]
    left = -1 in (fsdp, data, *(values.get(ends.get(key, "")) for key in split)) or "dcn_data_parallelism" not in ends
    taken, given = replica * max(1, fsdp) * max(1, data), settings.get("gpus", 0)
    if given and (given % taken if left else given != taken):
        launch.problems.append(
            f"the axes of its mesh take {'a multiple of ' * left}{taken:,} GPUs, not {given:,}: give --gpus accordingly"
        )
    if fsdp < 0 < data:  # what the copies leave
        fsdp = settings.get("gpus", 0) // (data * replica) or fsdp
    shards = fsdp != 1 or sharing > 1 or FSDP not in ends
    if "gpus" not in settings and fsdp > 0 and data > 0 and fsdp * data * replica > 1:
        launch.say("gpus", fsdp * data * replica, fsdp_key)
    elif data < 0 < fsdp or (fsdp > 1 and data == 1 and "dcn_data_parallelism" not in ends):  # -1 unless it is said
        data = max(1, settings.get("gpus", 0) // (fsdp * replica))
    launch.say("zero_stage", 3 if shards else int(values.get(ends.get(SHARDED, "")) is True), fsdp_key)
    if shards and data > 1 and fsdp > 0:
        launch.say("shard", fsdp * sharing, fsdp_key)
    return ranks


def _routed(settings: Mapping[str, Any]) -> bool:
    """Whether layers have experts."""
    return "experts" in settings or ("model" in settings and preset_model(settings["model"]).experts is not None)


def _degree(values: Values, ends: Mapping[str, str], axis: str, open_ends: bool = False) -> int:
    """Devices along an axis, inside of and between slices; -1 where one of them takes all that are left."""
    parts = [values.get(ends.get(f"{part}_{axis}_parallelism", ""), 1) for part in (SLICE, SLICES)]
    if any(part == -1 for part in parts):
        return -1 if open_ends else 1
    return max(1, int(parts[0])) * max(1, int(parts[1]))


def write(values: Values, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys of another plan."""
    ends = {path.rpartition(".")[2]: path for path in values}
    base = ends.get("max_target_length", "").rpartition(".")[0]

    def path(key: str) -> str:
        return ends.get(key) or (f"{base}.{key}" if base else key)

    wanted: dict[str, Any] = {}
    if degrees(before) != degrees(after):
        wanted |= {path(key): size for key, size in _mesh_changes(values, ends, before, after).items()}
    ranks = after.tp * after.pp * after.cp
    steps = values.get(ends.get(STEPS, "")) or 1
    if after.pp > 1:
        if after.num_microbatches != before.num_microbatches and after.num_microbatches % steps == 0:
            wanted[path(PIPED)] = after.num_microbatches // steps
        return wanted | _remat(before, after, job, path(REMAT))
    if after.micro_batch != before.micro_batch or ranks != before.tp * before.pp * before.cp:
        size = after.micro_batch / ranks
        wanted[path(BATCH)] = int(size) if size == int(size) else size
    if after.num_microbatches != before.num_microbatches:
        wanted[path(STEPS)] = after.num_microbatches
    if (after.zero_stage == 1) != (before.zero_stage == 1):
        wanted[path(SHARDED)] = after.zero_stage == 1
    return wanted | _remat(before, after, job, path(REMAT))


def _remat(before: Plan, after: Plan, job: Job, path: str) -> dict[str, str]:
    return {path: policy(after.recompute, job)} if after.recompute != before.recompute else {}


def _mesh_changes(values: Values, ends: Mapping[str, str], before: Plan, after: Plan) -> dict[str, int]:
    """The sizes of axes that are otherwise in the mesh of another plan, which lies on the same slices."""
    stated = {part: _sizes(values, ends, part) for part in (SLICE, SLICES)}
    slices = 1 if -1 in stated[SLICES].values() else prod(stated[SLICES].values())
    if -1 not in stated[SLICE].values():
        slices = before.gpus // prod(stated[SLICE].values())
    inside = before.gpus // slices
    own = {
        f"{part}_{axis}_parallelism": size if size > 0 else total // -prod(stated[part].values())  # -1 times the others
        for part, total in ((SLICE, inside), (SLICES, slices))
        for axis, size in stated[part].items()
    }
    return {key: size for key, size in mesh(after, inside).items() if own[key] != size}


def _sizes(values: Values, ends: Mapping[str, str], part: str) -> dict[str, int]:
    """The stated size of every axis inside of slices or between them; -1 for what is left."""
    usual = {"fsdp": -1} if part == SLICE else {}
    keys = {axis: f"{part}_{axis}_parallelism" for axis in degrees(Plan())}
    return {axis: values.get(ends.get(key, ""), usual.get(axis, 1)) for axis, key in keys.items()}
