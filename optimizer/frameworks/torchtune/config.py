"""torchtune's recipes in YAML: FSDP 2 on all GPUs, weights and Adam's moments in the number format of the run.

Source of the keys and defaults: pytorch/torchtune, recipes/full_finetune_distributed.py,
recipes/lora_finetune_distributed.py and recipes/configs; torchtune/models/llama3 and llama4, _parallelism.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from optimizer.catalog import preset_model
from optimizer.frameworks.config.launch import (
    ConfigKey,
    Values,
    key_tables,
    note_dtype,
    note_keys,
    rest,
    take,
    tied,
    whole,
    written_keys,
)
from optimizer.frameworks.config.method import note_dropout, note_optimizer, note_packing
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.shape import named
from optimizer.job.job import Job
from optimizer.job.method import DORA, LORA, QLORA
from optimizer.job.plan import Plan

COUNTS: Mapping[str, str] = key_tables("torchtune")["counts"]
OPTIMIZERS: Mapping[str, str] = key_tables("torchtune")["optimizers"]
COMPONENT = "_component_"
MODEL, OPTIMIZER, LOSS = (f"{section}.{COMPONENT}" for section in ("model", "optimizer", "loss"))
SECTION = "optimizer"  # names a component by itself on a command
TEACHER, QUANTISER = f"teacher_model.{COMPONENT}", f"quantizer.{COMPONENT}"
# Losses of plain fine-tuning, and of how many parts of the tokens each has the logits in turn unless told.
SUPERVISED: Mapping[str, int] = {"CrossEntropyLoss": 1, "CEWithChunkedOutputLoss": 8, "LinearCrossEntropyLoss": 8}
CHUNKS, DATA = "loss.num_output_chunks", "dataset"
# How tensors are split; with the mesh of releases after 0.6.1 their sequences are too, and experts like all weights.
TENSOR_PLAN, MESH = "tensor_parallel_plan", ("data_parallel_shard_dim", "data_parallel_replicate_dim")
QUANTISED = "model.quantize_base"
HOSTED = "fsdp_cpu_offload"  # weights, gradients and states on the host
INPUTS = "enable_activation_offloading"  # of checkpointed layers, on the host; refused without checkpoints
RESHARD, DORA_KEY, DTYPE = "fsdp_reshard_after_forward", "model.use_dora", "dtype"
LORA_RANK, ADAPTED, MLP = "model.lora_rank", "model.lora_attn_modules", "model.apply_lora_to_mlp"
POINT = re.compile(r"(\d)_(\d)")  # of a number, as in llama3_1
ADAPTERS = re.compile(r"(q?lora)_")
RANK = 8  # of its builders of models, where the recipe says none: torchtune/models/llama3_1/_model_builders.py
# Where the names of matrices are others than those of --train.
MATRICES: Mapping[str, str] = {"output_proj": "o_proj"}
KEYS = (
    ConfigKey(
        "recompute",
        ("enable_activation_checkpointing",),
        lambda on: "full" if on else "none",
        False,
        lambda mode: mode == "full",
    ),
    ConfigKey("zero_stage", (RESHARD,), lambda on: 3 if on else 2, True, lambda stage: stage == 3),
)


def recognised(values: Values) -> bool:
    """Whether a YAML is a recipe of torchtune."""
    parts = (str(value) for path, value in values.items() if path.endswith(COMPONENT))
    return MODEL in values and any(part.startswith("torchtune.") for part in parts)


def read(launch: Launch, values: Values) -> None:
    """Note what it says."""
    settings, loss = launch.settings, str(values.get(LOSS, ""))
    parts = SUPERVISED.get(loss.rpartition(".")[2])
    if OPTIMIZER not in values or TEACHER in values or parts is None:
        other = f"{TEACHER} {values[TEACHER]}" if TEACHER in values else f"{LOSS} {loss or 'is not there'}"
        launch.problems.append(f"{other}: of its recipes only supervised fine-tuning is priced")
        return
    settings |= {"num_microbatches": 1, "packing": False, "loss_chunks": whole(launch, values, CHUNKS) or parts}
    take(launch, values, COUNTS)
    note_keys(launch, values, KEYS)
    settings["fsdp"] = True
    launch.fixed += (
        "shard",
        "reduce_overlap",
        "gather_overlap",
        "bucket",
        *(("zero_stage",) * (RESHARD not in values)),
    )
    # Recipes of adapters split nothing but data, and others only what their configurations name.
    launch.fixed += tuple(name for name in ("tp", "cp") if COUNTS[name] not in values)
    if not any(path.startswith(TENSOR_PLAN) for path in values):
        launch.fixed += ("tp",)
    launch.fixed += ("activation_offload",)
    if values.get(INPUTS) is True:
        launch.say("activation_offload", 100, INPUTS)
        launch.fixed += ("recompute",)
    launch.splits_sequences = any(path in values for path in MESH)
    settings["sequence_parallel"] = launch.splits_sequences and settings.get("tp", 1) > 1
    if settings.get("gpus") == 1:
        settings["zero_stage"] = 0
    if values.get(HOSTED) is True:
        if settings.get("zero_stage") == 3:
            launch.say("hosted_weights", True, HOSTED)
        else:
            launch.unsearched.append(f"{HOSTED}: weights are priced on the host where {RESHARD} is on")
    note_dtype(launch, values, DTYPE)
    if settings.get("dtype") == "bf16":
        settings |= {"grad_bytes": 2, "optimizer_bytes": 4}
    several = values.get(DATA)
    packs = values
    if isinstance(several, list):  # of data sets
        packs = {f"{DATA}.packed": any(isinstance(each, Mapping) and each.get("packed") is True for each in several)}
    known = [MODEL, DTYPE, HOSTED, INPUTS, CHUNKS, *COUNTS.values(), *_method(launch, values)]
    known += note_packing(launch, packs)
    name = ADAPTERS.sub("", str(values[MODEL]).rpartition(".")[2])
    spellings = (POINT.sub(r"\1.\2", name), name, POINT.sub(r"\1.\2", name[::-1])[::-1])
    if model := next(filter(None, map(named, spellings)), ""):
        launch.say("model", model, MODEL)
        if preset_model(model).experts:
            settings["etp"] = settings.get("tp", 1)
            launch.fixed += ("tp", "etp")
    else:
        launch.unknown_model(MODEL, name)
    chosen = next((key for key in (SECTION, OPTIMIZER) if isinstance(values.get(key), str)), OPTIMIZER)
    component = str(values.get(chosen, "")).rpartition(".")[2]
    if note_optimizer(launch, OPTIMIZERS.get(component, component), chosen):
        known += [SECTION, OPTIMIZER]
    else:
        launch.unpriced.append(f"{chosen} {values.get(chosen)}")
    free = [path for path in values if path.endswith(COMPONENT) and path not in (MODEL, OPTIMIZER, QUANTISER)]
    rest(launch, values, (*known, *free))


def _method(launch: Launch, values: Values) -> tuple[str, ...]:
    """Note the adapters; the keys that say them."""
    adapters = ADAPTERS.match(str(values[MODEL]).rpartition(".")[2])
    if adapters is None:
        return ()
    adapted = ("q_proj", "v_proj") if values.get(ADAPTED) is None else values[ADAPTED]
    names = re.findall(r"\w+", adapted) if isinstance(adapted, str) else adapted  # of a command: text in brackets
    attention = [MATRICES.get(each, each) for each in names]
    targets = [*attention, *(("gate", "up", "down") if values.get(MLP) else ())]
    narrow = adapters[1] == QLORA or values.get(QUANTISED) is True
    method = DORA if values.get(DORA_KEY) else QLORA if narrow else LORA
    launch.say("train", f"{method}:{values.get(LORA_RANK, RANK)}:{'+'.join(targets)}", MODEL)
    if narrow:
        launch.say("base", "nf4", MODEL)
    return (LORA_RANK, ADAPTED, MLP, DORA_KEY, QUANTISED, *note_dropout(launch, values, 0.0))


def write(values: Values, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys of another plan."""
    hosting = {HOSTED: False} if "hosted_weights" in turned else {}
    return tied(COUNTS_OF_PLAN, before, after) | written_keys(KEYS, before, after) | hosting


COUNTS_OF_PLAN: Mapping[str, str] = {name: key for name, key in COUNTS.items() if name != "seq_len"}
