"""DeepSpeed's JSON with Hugging Face TrainingArguments and Accelerate's YAML.

Source of the keys and defaults: deepspeedai/DeepSpeed, deepspeed/runtime/zero/config.py;
huggingface/transformers, training_args.py; huggingface/accelerate, utils/dataclasses.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.job import Job
from optimizer.plan import Plan
from optimizer.scripts.config_launch import Values, rest, whole
from optimizer.scripts.launch import Launch
from optimizer.scripts.llm_foundry import SHARDING, named

PROGRAM = "DeepSpeed"
MICRO = ("train_micro_batch_size_per_gpu", "per_device_train_batch_size")
STEPS = ("gradient_accumulation_steps", "deepspeed_config.gradient_accumulation_steps")
STAGE = ("zero_optimization.stage", "deepspeed_config.zero_stage")
DEVICE = ("zero_optimization.offload_optimizer.device", "deepspeed_config.offload_optimizer_device")
STRATEGY = ("fsdp_config.fsdp_sharding_strategy", "fsdp_sharding_strategy")
CHECKPOINT = ("gradient_checkpointing", "fsdp_config.fsdp_activation_checkpointing")
NAMES = ("model_name_or_path", "model_name", "model_id")
LENGTHS = ("max_seq_length", "cutoff_len", "max_length", "block_size", "model_max_length")
BATCH, OVERLAP, BUCKET = "train_batch_size", "zero_optimization.overlap_comm", "zero_optimization.reduce_bucket_size"
PRECISION = ("mixed_precision", "bf16.enabled", "fp16.enabled", "bf16", "fp16")
MOST_BUCKET = 5e8  # elements, DeepSpeed's default
STRATEGIES = {"1": "FULL_SHARD", "2": "SHARD_GRAD_OP", "3": "NO_SHARD", "4": "HYBRID_SHARD"}


def recognised(values: Values) -> bool:
    """Whether files are DeepSpeed's, Accelerate's or a Trainer's."""
    marks = (*MICRO, *STAGE, *DEVICE, "num_processes", "distributed_type", "zero_optimization", BATCH)
    return any(path in values for path in marks)


def first(values: Values, paths: tuple[str, ...]) -> str:
    """The first of these paths that says something; "auto" leaves it to another file."""
    return next((path for path in paths if values.get(path) not in (None, "auto")), "")


def read(launch: Launch, values: Values) -> None:
    """Note what the files say together."""
    said = launch.settings
    for path, name in (("num_processes", "gpus"), ("num_machines", "nodes")):
        if (number := whole(launch, values, path)) is not None and not (name == "gpus" and "gpus" in said):
            launch.say(name, number, path)
    for paths, name in ((MICRO, "micro_batch"), (STEPS, "num_microbatches"), ((BATCH,), "global_batch")):
        if (path := first(values, paths)) and (number := whole(launch, values, path)) is not None:
            launch.say(name, number, path)
    if "global_batch" not in said and "micro_batch" in said:
        said.setdefault("num_microbatches", 1)
        launch.written.setdefault("num_microbatches", STEPS[0])
    _sharding(launch, values)
    if path := first(values, CHECKPOINT):
        launch.say("recompute", "full" if values[path] is True else "none", path)
    if path := first(values, NAMES):
        model = named(str(values[path]))
        if model:
            launch.say("model", model, path)
        else:
            launch.kept.append(f"{path} {values[path]} is no model that is known (--model)")
    if (path := first(values, LENGTHS)) and (number := whole(launch, values, path)) is not None:
        launch.say("seq_len", number, path)
    _numbers(launch, values)
    marks = (*MICRO, *STEPS, *STAGE, *DEVICE, *STRATEGY, *CHECKPOINT, *NAMES, *LENGTHS, *PRECISION, BATCH, OVERLAP)
    rest(launch, values, (*marks, BUCKET, "num_processes", "num_machines", "distributed_type"))


def _sharding(launch: Launch, values: Values) -> None:
    strategy = first(values, STRATEGY)
    if path := first(values, STAGE):
        launch.say("zero_stage", whole(launch, values, path, 0) or 0, path)
    elif strategy:
        name = STRATEGIES.get(str(values[strategy]), str(values[strategy])).upper()
        launch.say("zero_stage", SHARDING.get(name, 3), strategy)
    else:
        launch.say("zero_stage", 0)
    stage = launch.settings["zero_stage"]
    # Stages 1 and 2 overlap only where they are told to, stage 3 unless told otherwise.
    overlaps = values.get(OVERLAP)
    overlaps = stage == 3 if overlaps in (None, "auto") else bool(overlaps)
    if not strategy and stage:
        launch.say("reduce_overlap", overlaps, OVERLAP if OVERLAP in values else "")
        launch.say("gather_overlap", overlaps)
    size = values.get(BUCKET)
    if isinstance(size, int | float) and not isinstance(size, bool):
        launch.say("bucket", 2.0 * size, BUCKET)
    elif not strategy:
        launch.settings["bucket"] = 2.0 * MOST_BUCKET
    if (path := first(values, DEVICE)) and values[path] != "none":
        launch.say("offload", 1.0, path)
    if values.get("zero_optimization.offload_param.device") not in (None, "none"):
        launch.kept.append("zero_optimization.offload_param: weights are taken to stay on the device")


def _numbers(launch: Launch, values: Values) -> None:
    mixed = str(values.get("mixed_precision", ""))
    path = next((path for path in PRECISION[1:] if values.get(path) is True), "")
    if mixed in ("bf16", "fp16", "fp8"):
        launch.say("dtype", mixed, "mixed_precision")
    elif path:
        launch.say("dtype", path.partition(".")[0], path)


def write(values: Values, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys of another plan; a batch that several files state is changed in all of them."""
    wanted: dict[str, Any] = {}
    for paths, name in ((MICRO, "micro_batch"), (STEPS, "num_microbatches"), (STAGE, "zero_stage")):
        if getattr(before, name) != getattr(after, name):
            there = [path for path in paths if values.get(path) not in (None, "auto")]
            needed = name != "num_microbatches" or BATCH not in values
            wanted |= dict.fromkeys(there or ([paths[0]] if needed else []), getattr(after, name))
    strategy = first(values, STRATEGY)
    if strategy and not first(values, STAGE) and before.zero_stage != after.zero_stage:
        wanted.pop(STAGE[0], None)
        stages = {0: "NO_SHARD", 2: "SHARD_GRAD_OP", 3: "FULL_SHARD"}
        wanted[strategy] = stages.get(after.zero_stage, "FULL_SHARD")
    if before.recompute != after.recompute:
        wanted[first(values, CHECKPOINT) or CHECKPOINT[0]] = after.recompute == "full"
    if "reduce_overlap" in turned or "gather_overlap" in turned:
        wanted[OVERLAP] = bool(turned.get("reduce_overlap", turned.get("gather_overlap")))
    if "bucket" in turned:
        wanted[BUCKET] = round(turned["bucket"] / 2.0)
    if "offload" in turned:
        wanted[first(values, DEVICE) or DEVICE[0]] = "cpu" if turned["offload"] else "none"
    return wanted
