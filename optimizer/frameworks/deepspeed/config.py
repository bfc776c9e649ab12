"""DeepSpeed's JSON with Hugging Face TrainingArguments and Accelerate's YAML.

Source of the keys and defaults: deepspeedai/DeepSpeed, deepspeed/runtime/zero/config.py;
huggingface/transformers, training_args.py; huggingface/accelerate, utils/dataclasses.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Any

from optimizer.frameworks.config.launch import Values, key_tables, rest, take, whole
from optimizer.frameworks.config.method import (
    KEYS,
    OBJECTIVE,
    RLHF,
    TRAINER,
    note_loss,
    note_method,
    note_objective,
    note_optimizer,
)
from optimizer.frameworks.launch import LARGEST_COUNT, Launch
from optimizer.frameworks.llm_foundry.config import SHARDING
from optimizer.frameworks.shape import named
from optimizer.frameworks.unpriced import trains
from optimizer.job.job import Job
from optimizer.job.method import ADAPTERS
from optimizer.job.plan import Plan

PATHS: Mapping[str, tuple[str, ...]] = {name: tuple(paths) for name, paths in key_tables("deepspeed")["paths"].items()}
COUNTED = ("gpus", "nodes", "micro_batch", "num_microbatches", "global_batch", "tp", "cp", "seq_len")
MICRO, STEPS, STAGE, DEVICE = (PATHS[name] for name in ("micro_batch", "num_microbatches", "zero_stage", "offload"))
STRATEGY, RESHARD, CHECKPOINT = (PATHS[name] for name in ("strategy", "reshard", "recompute"))  # RESHARD: of FSDP 2
WEIGHTS, OFFLOADING = PATHS["hosted_weights"], "offload"  # the second is a word of the Trainer's
HOSTED = PATHS["activation_offload"]  # inputs of checkpointed layers
# Axolotl's word for them; with adapters, true puts all activations there and recomputes none, which has no price.
# Source: axolotl-ai-cloud/axolotl v0.21.0, src/axolotl/loaders/model.py.
INPUTS, ON_DISK = "hidden_states", "offload_disk"
HOSTING: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(HOSTED, (True, "legacy", INPUTS)),
    "use_gradient_checkpointing": ("unsloth",),
    "gradient_checkpointing": ("offload",),
}
RUN_STEPS, EPOCHS, SAMPLES = (PATHS[name] for name in ("run_steps", "epochs", "samples"))
NAMES, LENGTHS, PRECISION = (PATHS[name] for name in ("model", "seq_len", "dtype"))
BATCH, OVERLAP, BUCKET = "train_batch_size", "zero_optimization.overlap_comm", "zero_optimization.reduce_bucket_size"
TRAINER_FSDP = "fsdp"  # the Trainer's words for a strategy
SWITCHED_OFF = ("", "false", "none", "null", "0")
FOLLOWED = ("deepspeed", "deepspeed_config.deepspeed_config_file")
# Accelerate's meshes; the keys of its files repeat the name of their section.
MESH = "parallelism_config."
DEGREES: Mapping[str, str] = {"tp": "tp_size", "cp": "cp_size"}
REPLICATE, SHARD = "dp_replicate_size", "dp_shard_size"
UNPRICED = ("sp_size", "expert_parallel_size")  # which take GPUs of their own
AXOLOTL_DEGREES: Mapping[str, str] = {"tp_size": "tensor_parallel_size", "cp_size": "context_parallel_size"}
RATIO, WIRE = "zero_optimization.offload_optimizer.ratio", "communication_data_type"
SUMS = "data_types.grad_accum_dtype"
AXOLOTL = ("base_model", "micro_batch_size")  # the second is a key of other programs too
# LLaMA-Factory recomputes unless it is told not to: its src/llamafactory/hparams/model_args.py.
# ms-swift too, and trains adapters: its swift/trainers/arguments.py and swift/arguments/base_args. Its words for ZeRO.
SWIFT, TUNED, ZERO = "swift", ("tuner_type", "train_type", "sft_type"), re.compile(r"zero([0-3])(_offload)?$")
LLAMA_FACTORY, UNCHECKED = ("stage", "finetuning_type"), "disable_gradient_checkpointing"
CUTOFF = 2048  # cutoff_len of its src/llamafactory/hparams/data_args.py
CORPUS = ("pretraining_dataset",)  # of Axolotl, which packs it
PREFERENCES = ("beta", "loss_type", "max_prompt_length")  # what a loss of preferences takes, at no cost
UNSLOTH = "unsloth"  # what starts its own program
UNSLOTH_DEFAULTS: Mapping[str, Any] = key_tables("deepspeed")["unsloth"]
ALIGNING = "swift rlhf"  # of which DPO is the usual one: swift/arguments/rlhf_args.py
ADAPTING = ("swift sft", ALIGNING)
# The optimizer of such programs where none is named. Source: huggingface/transformers v5.17.0, training_args.py
# (default_optim); axolotl-ai-cloud/axolotl, src/axolotl/utils/schemas/training.py.
USUAL_OPTIMIZER = "adamw_torch_fused"
# Programs that fine-tune on a Trainer, by keys that no other has, and what switches on Liger's kernels in them.
TUNERS: Mapping[str, tuple[str, ...]] = {
    "axolotl": AXOLOTL[:1],
    "llama-factory": LLAMA_FACTORY[1:],
    "ms-swift": (SWIFT, *TUNED),
    "unsloth": (UNSLOTH,),
    TRAINER: ("use_peft", "max_length", *OBJECTIVE),
}
LIGER = ("use_liger_kernel", "use_liger", "enable_liger_kernel", "liger_fused_linear_cross_entropy")
LIGER_KEYS: Mapping[str, str] = {
    TRAINER: LIGER[0],
    "ms-swift": LIGER[0],
    "llama-factory": LIGER[2],
}  # what switches it on
# What is held of a weight that is trained: a master copy and moments in fp32, by LLaMA-Factory its gradient too.
# Source: deepspeedai/DeepSpeed, deepspeed/runtime/zero/stage3.py; hiyouga/LLaMA-Factory v0.9.5,
# src/llamafactory/model/adapter.py, init_adapter (cast_trainable_params_to_fp32); huggingface/accelerate v1.15.0,
# src/accelerate/utils/fsdp_utils.py, fsdp2_prepare_model, and accelerator.py for FSDP1.
IN_DEEPSPEED: Mapping[str, float] = {"optimizer_bytes": 12, "master_bytes": 4, "update_bytes": 0, "update_group": 1e9}
UPCAST: Mapping[str, int] = {"optimizer_bytes": 12, "master_bytes": 4, "grad_bytes": 4, "update_bytes": 4}
IN_FSDP: Mapping[str, int] = {**UPCAST, "param_bytes": 0}  # of Accelerate where formats are mixed: nothing beside them
PURE = "pure_bf16"
MIXED = (True, "bf16", "fp16", "auto")  # what mixes formats where it is the value of a path of number formats
UNMIXED = "full"  # Axolotl's word for bf16 without
OWN = ("zero_optimization", "train_micro_batch", "train_batch_size")  # how keys of DeepSpeed's JSON begin
WORDS, CHAT = ("torch_dtype", "dtype"), "data_split"
TORCH: Mapping[str, str] = {"bfloat16": "bf16", "float16": "fp16", "bf16": "bf16", "fp16": "fp16"}
MOST_BUCKET = 5e8  # elements, DeepSpeed's default
STRATEGIES = {"1": "FULL_SHARD", "2": "SHARD_GRAD_OP", "3": "NO_SHARD", "4": "HYBRID_SHARD"}


def recognised(values: Values) -> bool:
    """Whether files are DeepSpeed's, Accelerate's or a Trainer's."""
    marks = (
        *MICRO,
        *STAGE,
        *DEVICE,
        "num_processes",
        "distributed_type",
        "zero_optimization",
        BATCH,
        UNSLOTH,
    )
    own = (path for path in marks if path not in AXOLOTL[1:])
    return any(path in values for path in own) or values.get(AXOLOTL[0]) is not None


def mesh(values: Values, key: str) -> str:
    """The path of a size of Accelerate's mesh, in the spelling that the file has."""
    paths = (f"{MESH}parallelism_config_{key}", f"{MESH}{key}", AXOLOTL_DEGREES.get(key, key))
    return next((path for path in paths if path in values), "")


def first(values: Values, paths: tuple[str, ...]) -> str:
    """The first of these paths that says something; "auto" leaves it to another file."""
    return next((path for path in paths if values.get(path) not in (None, "auto")), "")


def read(launch: Launch, values: Values) -> None:
    """Note what the files say together."""
    if values.get(SWIFT) in ADAPTING and not any(path in values for path in TUNED):
        values = {**values, TUNED[0]: "lora"}
    if values.get(SWIFT) == ALIGNING:
        values = {RLHF: "dpo", **values}
    if UNSLOTH in values:
        values = {**UNSLOTH_DEFAULTS, **values}
    settings = launch.settings
    counts = {name: first(values, PATHS[name]) for name in COUNTED if not (name == "gpus" and name in settings)}
    take(launch, values, {name: path for name, path in counts.items() if path})
    stated = {path: values[path] for path in MICRO if isinstance(values.get(path), int)}
    if len(set(stated.values())) > 1:
        launch.unpriced.append(" against ".join(f"{path} {size}" for path, size in stated.items()))
    if "global_batch" not in settings and "micro_batch" in settings:
        settings.setdefault("num_microbatches", 1)
        launch.written.setdefault("num_microbatches", STEPS[0])
    _sharding(launch, values)
    # Whatever checkpoints layers: the Trainer, or FSDP where the Trainer is told not to.
    if path := next((path for path in CHECKPOINT if values.get(path) is True), first(values, CHECKPOINT)):
        launch.say("recompute", "full" if values[path] else "none", path)
    elif all(path in values for path in LLAMA_FACTORY):
        launch.say("recompute", "none" if values.get(UNCHECKED) is True else "full", UNCHECKED)
    elif SWIFT in values or UNSLOTH in values or any(path in values for path in TUNED):
        launch.say("recompute", "full", CHECKPOINT[0])
    launch.unpriced += [f"{path} {ON_DISK}" for path in CHECKPOINT if values.get(path) == ON_DISK]
    hosting = tuple(path for path in HOSTING if values.get(path) in _hosting_words(values, path))
    if hosting:
        launch.say("activation_offload", 100, hosting[0])
    elif not any(path in values for path in HOSTED):  # each program has a key of its own
        launch.fixed += ("activation_offload",)
    if path := first(values, NAMES):
        model = named(str(values[path]))
        if model:
            launch.say("model", model, path)
        else:
            launch.unknown_model(path, values[path])
    _numbers(launch, values)
    _length(launch, values)
    hosted = HOSTED if HOSTED[0] in hosting or values.get(HOSTED[0]) in (None, False) else HOSTED[1:]
    marks = (
        *MICRO,
        *STEPS,
        *RUN_STEPS,
        *EPOCHS,
        *SAMPLES,
        *STAGE,
        *DEVICE,
        *STRATEGY,
        *CHECKPOINT,
        *hosted,
        *WEIGHTS,
        *NAMES,
        *LENGTHS,
        *PRECISION,
    )
    sizes = tuple(mesh(values, key) for key in (*DEGREES.values(), REPLICATE, SHARD))
    more = (
        *RESHARD,
        *sizes,
        *FOLLOWED,
        TRAINER_FSDP,
        RATIO,
        WIRE,
        SUMS,
        BATCH,
        OVERLAP,
        SWIFT,
        UNSLOTH,
        *WORDS,
        UNCHECKED,
    )
    method = (*note_method(launch, values), *note_loss(launch, values), *LIGER)
    if UNSLOTH in values:
        launch.fixed += ("recompute", "activation_offload", "zero_stage")
        method += ("quantization",)  # of the file that it saves
    if software := next((name for name, marks in TUNERS.items() if any(mark in values for mark in marks)), ""):
        launch.settings["software"] = software
        if software == "llama-factory" and "seq_len" not in settings:
            settings["seq_len"] = CUTOFF
            launch.assumed.append(f"sequences of {CUTOFF:,} tokens, LLaMA-Factory's default (--seq-len)")
        _usual_optimizer(launch, values)
        _states(launch, values, software)
        if not any(path in values for path in CORPUS):  # each packs where it is told to, LLaMA-Factory texts too
            launch.settings.setdefault("packing", values.get(LLAMA_FACTORY[0]) == "pt")
    elif CHAT not in values and "train" not in launch.settings:
        trained = ", ".join(trains(launch.program, values))
        none = "these files name no adapters, and are of no program known here"
        why = f"whatever {trained} may say, which no program known here has" if trained else none
        launch.assumed.append(f"all weights are trained: {why}")
    if software == TRAINER and "loss" not in launch.settings:
        method += note_objective(launch, values)
    if "loss" in launch.settings:
        method += PREFERENCES
    elif CHAT in values:
        launch.assumed.append("objective not given: DeepSpeed-Chat has one in each folder; taken as sft")
    if path := next((path for path in LIGER if values.get(path) is True), ""):
        launch.say("liger", "on", path)
    elif software in LIGER_KEYS:
        launch.settings["liger"] = "off"
    rest(launch, values, (*method, *marks, *more, BUCKET, "num_processes", "num_machines", "distributed_type"))


def _hosting_words(values: Values, path: str) -> tuple[Any, ...]:
    """What says that inputs of checkpointed layers go to the host."""
    adapts = AXOLOTL[0] in values and values.get("adapter") is not None
    return tuple(word for word in HOSTING[path] if not (adapts and word is True))


def _words(values: Values) -> list[str]:
    """The Trainer's words for a strategy; on a command the first alone is its value."""
    value = values.get(TRAINER_FSDP)
    return list(map(str, value)) if isinstance(value, list) else str(value or "").split()


def _usual_optimizer(launch: Launch, values: Values) -> None:
    """Note the Trainer's own optimizer where none of its files names another."""
    if not first(values, KEYS["optimizer"]) and not any(path.startswith("optimizer.") for path in values):
        note_optimizer(launch, USUAL_OPTIMIZER, "")
        launch.assumed.append(f"optim {USUAL_OPTIMIZER}: Transformers 5 has it with PyTorch 2.8 or newer")


def _states(launch: Launch, values: Values, software: str) -> None:
    """Note weights in fp32 of whole training: DeepSpeed has them, Accelerate's FSDP where formats are mixed, and
    LLaMA-Factory unless told not to.
    """
    settings = launch.settings
    if str(settings.get("train", "")).startswith(ADAPTERS):
        return
    if settings["fsdp"]:
        if mixing := next((path for path in PRECISION if values.get(path) in MIXED), ""):
            settings |= IN_FSDP
            launch.assumed.append(f"{mixing} {values[mixing]}: Accelerate's FSDP then holds what it trains in fp32")
    elif settings["zero_stage"] or any(path.startswith(OWN) for path in values):
        settings |= IN_DEEPSPEED
    elif software == "llama-factory" and values.get(PURE) is not True:
        settings |= UPCAST
        launch.assumed.append(
            f"LLaMA-Factory holds what it trains, and its gradients, in fp32: {PURE} has them in bf16"
        )


def _sharding(launch: Launch, values: Values) -> None:
    strategy = first(values, STRATEGY)
    words = " ".join(_words(values))
    replicas, shards = (mesh(values, key) for key in (REPLICATE, SHARD))
    word = ZERO.match(str(values.get(FOLLOWED[0])))
    if word:
        launch.say("zero_stage", int(word[1]), FOLLOWED[0])
        if word[2]:
            launch.say("offload", 1.0, FOLLOWED[0])
    elif path := first(values, STAGE):
        launch.say("zero_stage", whole(launch, values, path, 0) or 0, path)
    elif strategy:
        name = STRATEGIES.get(str(values[strategy]), str(values[strategy])).upper()
        launch.say("zero_stage", SHARDING.get(name, 3), strategy)
    elif path := first(values, RESHARD):
        keeps = values[path] is False or str(values[path]).upper() in ("FALSE", "SHARD_GRAD_OP")
        launch.say("zero_stage", 2 if keeps else 3, path)
        strategy = path
    elif words.lower() not in SWITCHED_OFF:  # without a strategy among its words Accelerate's usual one
        stage = 0 if "no_shard" in words else 2 if "grad_op" in words else 3
        launch.say("zero_stage", stage, TRAINER_FSDP)
        strategy = TRAINER_FSDP
    else:
        launch.say("zero_stage", 0)
        launch.assumed.append("no sharding: neither these files nor the config of a launcher among them names any")
    if not shards:
        launch.fixed += ("shard",)
    places = (shards, replicas, *(mesh(values, key) for key in UNPRICED))
    size, copies, *sharing = (int((whole(launch, values, at) if at else None) or 1) for at in places)
    group = size * int(launch.settings.get("cp", 1))
    if shards and group == 1:
        launch.say("zero_stage", 0, shards)
    elif copies > 1:
        launch.say("shard", group, replicas)
    total = copies * group * prod(sharing) * int(launch.settings.get("tp", 1))
    if shards and launch.settings.setdefault("gpus", total) != total:
        launch.problems.append(f"{shards} and the sizes beside it are of {total} GPUs (--gpus {total})")
    stage = launch.settings["zero_stage"]
    launch.settings["fsdp"] = bool(strategy)
    if not strategy:
        launch.following = lambda plan: _overlap(values, plan.zero_stage)
        if word or not any(path.startswith(OWN) for path in values):  # nor have Accelerate's files
            launch.fixed += ("reduce_overlap", "gather_overlap", "bucket")
            launch.fixed += () if first(values, STAGE) else ("zero_stage",)
        if stage:
            launch.settings |= _overlap(values, stage)
            launch.written |= {"reduce_overlap": OVERLAP} if OVERLAP in values else {}
    elements = values.get(BUCKET)
    if isinstance(elements, int | float) and not isinstance(elements, bool):
        launch.say("bucket", 2.0 * elements, BUCKET)
    elif not strategy and (stage or any(path.startswith(OWN) for path in values)):
        launch.settings["bucket"] = 2.0 * MOST_BUCKET
    if (path := first(values, DEVICE)) and values[path] != "none":
        share = values.get(RATIO, 1.0)
        launch.say("offload", float(share) if isinstance(share, int | float) else 1.0, path)
    launch.drives = next((path for path in (*DEVICE, *WEIGHTS) if values.get(path) == "nvme"), "")
    _hosted(launch, values)


def hosting(values: Values) -> str:
    """The path that has weights lie on the host, "" where none does."""
    stated = next((path for path in WEIGHTS if str(values.get(path)).lower() in ("cpu", "nvme", "true")), "")
    return stated or (TRAINER_FSDP if OFFLOADING in _words(values) else "")


def _hosted(launch: Launch, values: Values) -> None:
    """Note that weights lie on the host, where their optimizer does too."""
    path, settings = hosting(values), launch.settings
    if not path:
        return
    if settings["zero_stage"] == 3 and (settings["fsdp"] or settings.get("offload") == 1.0):
        launch.say("hosted_weights", True, path)
    else:
        launch.unsearched.append(f"{path}: weights are priced on the host under ZeRO-3 with the whole optimizer there")


def _overlap(values: Values, stage: int) -> dict[str, Any]:
    """What overlaps under a ZeRO stage: 1 and 2 only where a file says so, 3 by default; 0 says nothing.

    >>> _overlap({}, 3), _overlap({}, 1), _overlap({OVERLAP: True}, 1)["gather_overlap"]
    ({'reduce_overlap': True, 'gather_overlap': True}, {'reduce_overlap': False, 'gather_overlap': False}, True)
    """
    asked = values.get(OVERLAP)
    overlaps = (stage == 3 if asked in (None, "auto") else bool(asked)) if stage else None
    return {"reduce_overlap": overlaps, "gather_overlap": overlaps}


def _numbers(launch: Launch, values: Values) -> None:
    mixed = str(values.get("mixed_precision", ""))
    path = next((path for path in PRECISION[1:] if values.get(path) in (True, UNMIXED)), "")
    if wire := next((path for path in (WIRE, SUMS) if values.get(path) in ("fp32", "bf16", "fp16")), ""):
        launch.say("grad_bytes", 4 if values[wire] == "fp32" else 2, wire)
    if mixed in ("bf16", "fp16", "fp8"):
        launch.say("dtype", mixed, "mixed_precision")
    elif path:
        name = path.partition(".")[0]
        launch.say("dtype", TORCH.get(name, name), path)
    elif word := next((word for word in WORDS if str(values.get(word)) in TORCH), ""):
        launch.say("dtype", TORCH[values[word]], word)
    elif not any(values.get(path) == "auto" for path in PRECISION):
        launch.assumed.append("bf16: these files name no number format")


def _length(launch: Launch, values: Values) -> None:
    """Note the steps of the whole run, or its samples, where they are told; steps count where both are."""
    steps, passes, most = (values.get(first(values, paths)) for paths in (RUN_STEPS, EPOCHS, SAMPLES))
    counts = [
        value for value in (steps, passes, most) if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    if any(abs(value) > LARGEST_COUNT for value in counts):
        launch.problems.append(f"{RUN_STEPS[0]}, {EPOCHS[0]} and {SAMPLES[0]} must be at most {LARGEST_COUNT:,}")
    elif steps in counts and steps > 0:
        launch.settings["steps"] = steps
    elif passes in counts and most in counts:
        launch.settings["samples"] = passes * most
        launch.assumed.append(f"{passes * most:,g} samples in the whole run, {most:,g} an epoch at most (--tokens)")
    elif passes in counts:
        launch.assumed.append(f"{first(values, EPOCHS)} {passes:g} of how many samples is not told (--tokens)")


def _mesh(values: Values, before: Plan, after: Plan) -> dict[str, Any]:
    """The sizes of Accelerate's mesh: those of a plan's groups, where the file has them."""
    sizes = ("tp", "cp", "dp", "shard", "zero_stage")
    if not mesh(values, SHARD) or all(getattr(before, name) == getattr(after, name) for name in sizes):
        return {}
    group = (after.shard or after.dp * after.cp) // after.cp if after.zero_stage else 1
    wanted = {REPLICATE: after.dp // group, SHARD: group, DEGREES["tp"]: after.tp, DEGREES["cp"]: after.cp}
    own = AXOLOTL[0] in values
    new = {key: AXOLOTL_DEGREES.get(key, key) if own else f"{MESH}{key}" for key in wanted}
    return {mesh(values, key) or new[key]: size for key, size in wanted.items()}


def write(values: Values, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys of another plan; a batch that several files state is changed in all of them."""
    values = {**UNSLOTH_DEFAULTS, **values} if UNSLOTH in values else values
    wanted: dict[str, Any] = _mesh(values, before, after)
    for paths, name in ((MICRO, "micro_batch"), (STEPS, "num_microbatches"), (STAGE, "zero_stage")):
        if getattr(before, name) != getattr(after, name):
            there = [path for path in paths if values.get(path) not in (None, "auto")]
            needed = name != "num_microbatches" or BATCH not in values
            together = job.training_loss.together if name == "micro_batch" else 1
            wanted |= dict.fromkeys(there or ([paths[0]] if needed else []), getattr(after, name) // together)
    strategy = first(values, (*STRATEGY, *RESHARD, TRAINER_FSDP))
    if strategy and not first(values, STAGE) and before.zero_stage != after.zero_stage:
        wanted.pop(STAGE[0], None)
        stages = {0: "NO_SHARD", 2: "SHARD_GRAD_OP", 3: "FULL_SHARD"}
        wanted[strategy] = stages.get(after.zero_stage, "FULL_SHARD")
        if strategy in RESHARD:
            wanted[strategy] = after.zero_stage == 3
        elif strategy == TRAINER_FSDP:
            others = [word for word in _words(values) if "shard" not in word]
            wanted[strategy] = " ".join((stages.get(after.zero_stage, "FULL_SHARD").lower(), *others))
    if before.recompute != after.recompute:
        path = first(values, CHECKPOINT)
        inverted = not path and all(path in values for path in LLAMA_FACTORY)
        wanted[UNCHECKED if inverted else path or CHECKPOINT[0]] = (after.recompute == "full") != inverted
    if before.activation_offload != after.activation_offload:
        there = [path for path in HOSTED if path in values]
        on = INPUTS if AXOLOTL[0] in values else True
        wanted |= dict.fromkeys(there[:1], on) if after.activation_offload else dict.fromkeys(there, False)
    if "reduce_overlap" in turned or "gather_overlap" in turned:
        wanted[OVERLAP] = bool(turned.get("reduce_overlap", turned.get("gather_overlap")))
    if "bucket" in turned:
        wanted[BUCKET] = round(turned["bucket"] / 2.0)
    if "offload" in turned:
        wanted[first(values, DEVICE) or DEVICE[0]] = "cpu" if turned["offload"] else "none"
    if "liger" in turned:
        own = next((name for name in LIGER_KEYS if any(mark in values for mark in TUNERS[name])), TRAINER)
        wanted[next((path for path in LIGER if path in values), LIGER_KEYS[own])] = True
    if (path := hosting(values)) and ("hosted_weights" in turned or after.zero_stage != before.zero_stage):
        words = " ".join(word for word in str(wanted.get(path, values[path])).split() if word != OFFLOADING)
        wanted[path] = words if path == TRAINER_FSDP else "none" if path.endswith("device") else False
    return wanted
