"""torchtitan's TOML.

Source of the keys and defaults: pytorch/torchtitan, torchtitan/config/job_config.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from optimizer.job import Job
from optimizer.plan import Plan
from optimizer.scripts.config_launch import Values, rest, take, tied, whole
from optimizer.scripts.launch import Launch
from optimizer.scripts.llm_foundry import named

PROGRAM = "torchtitan"
PARALLEL = "parallelism."
# Older configs have the degrees in [training] and [experimental].
SECTIONS = ("parallelism.", "training.", "experimental.")
DEGREES: Mapping[str, str] = {
    "tensor_parallel_degree": "tp",
    "pipeline_parallel_degree": "pp",
    "context_parallel_degree": "cp",
    "expert_parallel_degree": "ep",
    "expert_tensor_parallel_degree": "etp",
}
REPLICATE, SHARD = "data_parallel_replicate_degree", "data_parallel_shard_degree"
RESHARD, SCHEDULE, SLICE = (
    "fsdp_reshard_after_forward",
    "pipeline_parallel_schedule",
    "pipeline_parallel_microbatch_size",
)
LOCAL = ("training.local_batch_size", "training.batch_size")
GLOBAL, LENGTH, STEPS = "training.global_batch_size", "training.seq_len", "training.steps"
NAME, FLAVOR, MODE = "model.name", "model.flavor", "activation_checkpoint.mode"
ASYNC = "parallelism.enable_async_tensor_parallel"
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "llama3": ("llama3.1", "llama3", "llama3.2"),
    "deepseek_v3": ("deepseek-v3",),
}
COUNTED = re.compile(r"\b(\d+)\s+(?:([A-Z]\d+)\s+)?GPUs?\b")


def recognised(values: Values) -> bool:
    """Whether a TOML is torchtitan's."""
    return any(path in values for path in (*LOCAL, FLAVOR, LENGTH))


def find(values: Values, key: str) -> str:
    """The path of a degree: in its section, or in the one of older configs."""
    return next((section + key for section in SECTIONS if section + key in values), PARALLEL + key)


def read(launch: Launch, values: Values, text: str = "") -> None:
    """Note what it says; GPUs from the degrees, or from a comment that counts them."""
    take(launch, values, {find(values, key): name for key, name in DEGREES.items()})
    take(launch, values, {LENGTH: "seq_len"})
    said = launch.settings
    if said.get("etp", 1) == 0 or "etp" not in said:
        said["etp"] = 1
    replicas = whole(launch, values, find(values, REPLICATE)) or 1
    shards = -1 if values.get(find(values, SHARD), -1) == -1 else whole(launch, values, find(values, SHARD)) or -1
    ranks = said.get("tp", 1) * said.get("pp", 1) * said.get("cp", 1)
    if "gpus" not in said and isinstance(shards, int) and shards > 0:
        launch.say("dp", shards * replicas, find(values, SHARD))
    elif "gpus" not in said and (match := COUNTED.search("\n".join(_comments(text)))):
        said["gpus"] = int(match[1])
        launch.assumed.append(f"{match[1]} GPUs, as a comment says (--gpus)")
    gpus = said.get("gpus") or said.get("dp", 0) * ranks
    dp = max(1, gpus // ranks)
    launch.say("sequence_parallel", said.get("tp", 1) > 1)
    _sharding(launch, values, replicas, shards, dp * said.get("cp", 1))
    _batch(launch, values, dp)
    _numbers(launch, values)
    name, flavor = str(values.get(NAME, "")), str(values.get(FLAVOR, ""))
    model = next((m for family in FAMILIES.get(name, (name,)) if (m := named(f"{family}-{flavor}"))), "")
    model = model or named(f"{FAMILIES.get(name, (name,))[0]}")
    if model:
        launch.say("model", model, FLAVOR)
    else:
        launch.kept.append(f"{NAME} {name} {flavor} is no model that is known")
    mode = str(values.get(MODE, "selective"))
    launch.say("recompute", mode if mode in ("none", "selective", "full") else "selective", _there(values, MODE))
    launch.say("tp_overlap", bool(values.get(ASYNC)), _there(values, ASYNC))
    schedule = str(values.get(find(values, SCHEDULE), "1F1B")).lower()
    if said.get("pp", 1) > 1 and "interleaved" in schedule:
        launch.say("vpp", 2, find(values, SCHEDULE))
    elif said.get("pp", 1) > 1 and schedule != "1f1b":
        launch.kept.append(f"{find(values, SCHEDULE)} {schedule} is priced as 1f1b")
    if isinstance(values.get(STEPS), int) and {"global_batch", "seq_len"} <= said.keys():
        launch.say("tokens", values[STEPS] * said["global_batch"] * said["seq_len"], STEPS)
    known = [find(values, key) for key in (*DEGREES, REPLICATE, SHARD, RESHARD, SCHEDULE, SLICE)]
    rest(launch, values, (*known, *LOCAL, GLOBAL, NAME, FLAVOR, MODE, ASYNC, "model.converters"))


def _comments(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.lstrip().startswith("#")]


def _there(values: Values, path: str) -> str:
    return path if path in values else ""


def _sharding(launch: Launch, values: Values, replicas: int, shards: Any, ranks: int) -> None:
    if shards == 1:
        launch.say("zero_stage", 0, find(values, SHARD))
        return
    policy, piped = str(values.get(find(values, RESHARD), "default")), launch.settings.get("pp", 1) > 1
    # With a pipeline, weights stay gathered over the micro-batches of a step unless told otherwise, and gradients are
    # scattered after the last: what elsewhere is called ZeRO-1.
    keeps = policy == "never" or (piped and policy != "always")
    stage = 3 if not keeps else 1 if piped else 2
    launch.say("zero_stage", stage, _there(values, find(values, RESHARD if policy != "default" else SHARD)))
    if replicas > 1:
        launch.say("shard", max(1, ranks // replicas), find(values, REPLICATE))


def _batch(launch: Launch, values: Values, dp: int) -> None:
    """A rank's batch is one micro-batch, or with a pipeline as many as its slices; more are accumulated."""
    said, path = launch.settings, next((path for path in LOCAL if path in values), "")
    local = (whole(launch, values, path) if path else None) or 1
    size = (whole(launch, values, find(values, SLICE)) or 1) if said.get("pp", 1) > 1 else local
    launch.say("micro_batch", size, find(values, SLICE) if said.get("pp", 1) > 1 and local != size else path)
    batch = -1 if values.get(GLOBAL, -1) == -1 else whole(launch, values, GLOBAL) or -1
    launch.say("global_batch", batch if batch > 0 else local * dp, GLOBAL if batch > 0 else path)


def _numbers(launch: Launch, values: Values) -> None:
    converters = values.get("model.converters") or []
    float8 = any("float8" in str(name) or "mx" in str(name) for name in converters)
    launch.say("dtype", "fp8" if float8 else "bf16", "model.converters" if float8 else "")
    if values.get("training.mixed_precision_reduce") == "bfloat16":
        launch.say("grad_bytes", 2, "training.mixed_precision_reduce")


def write(values: Values, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys of another plan."""
    names = {name: find(values, key) for key, name in DEGREES.items()}
    wanted = tied(values, names, before, after)
    local = next((path for path in LOCAL if path in values), LOCAL[0])
    shards, replicas = find(values, SHARD), find(values, REPLICATE)
    group = after.shard or after.dp * after.cp
    if after.pp > 1:
        wanted[local] = after.micro_batch * after.num_microbatches
        wanted[find(values, SLICE)] = after.micro_batch
    else:
        wanted[local] = after.micro_batch
    wanted[GLOBAL] = job.global_batch
    if after.zero_stage == 0:
        wanted |= {shards: 1, replicas: after.dp * after.cp}
    elif values.get(shards, -1) > 0 or after.shard != before.shard or before.zero_stage == 0:
        wanted |= {shards: group // after.cp, replicas: after.dp * after.cp // group}
    if after.zero_stage != before.zero_stage and after.zero_stage:
        wanted[find(values, RESHARD)] = "always" if after.zero_stage == 3 else "never"
    if before.recompute != after.recompute:
        wanted[MODE] = after.recompute
    if before.vpp != after.vpp:
        wanted[find(values, SCHEDULE)] = "Interleaved1F1B" if after.vpp > 1 else "1F1B"
    defaults = {GLOBAL: before.dp * before.micro_batch * before.num_microbatches, replicas: 1}
    defaults[GLOBAL] = wanted[local] * after.dp
    return {path: value for path, value in wanted.items() if path in values or defaults.get(path) != value}
