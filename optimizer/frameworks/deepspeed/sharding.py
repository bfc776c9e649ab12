"""How DeepSpeed, Accelerate and a Trainer shard states, by their keys: stages, strategies, meshes, offload.

Source: deepspeedai/DeepSpeed, deepspeed/runtime/zero/config.py; huggingface/transformers, training_args.py;
huggingface/accelerate, utils/dataclasses.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from optimizer.frameworks.config.launch import Values, whole
from optimizer.frameworks.deepspeed.defaults import AXOLOTL, BUCKET, CHAT, OVERLAP, PATHS, ZERO, first
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.llm_foundry.config import SHARDING
from optimizer.job.plan import Plan

STAGE, DEVICE = PATHS["zero_stage"], PATHS["offload"]
STRATEGY, RESHARD = PATHS["strategy"], PATHS["reshard"]  # the second of FSDP 2
WEIGHTS, OFFLOADING = PATHS["hosted_weights"], "offload"  # the second is a word of the Trainer's
TRAINER_FSDP = "fsdp"  # the Trainer's words for a strategy
SWITCHED_OFF = ("", "false", "none", "null", "0")
# Accelerate's meshes; the keys of its files repeat the name of their section.
DISTRIBUTED = "distributed_type"
MESH = "parallelism_config."
DEGREES: Mapping[str, str] = {"tp": "tp_size", "cp": "cp_size"}
REPLICATE, SHARD = "dp_replicate_size", "dp_shard_size"
UNPRICED = ("sp_size", "expert_parallel_size")  # which take GPUs of their own
AXOLOTL_DEGREES: Mapping[str, str] = {"tp_size": "tensor_parallel_size", "cp_size": "context_parallel_size"}
MOST_BUCKET = 5e8  # elements, DeepSpeed's default
STRATEGIES = {
    **{"1": "FULL_SHARD", "2": "SHARD_GRAD_OP", "3": "NO_SHARD"},
    **{"4": "HYBRID_SHARD", "5": "HYBRID_SHARD_ZERO2"},
}
HYBRID = "hybrid"  # how strategies begin whose replicas share states in each node alone
# What a launcher shards by where no key says how. Source: huggingface/accelerate v1.15.0,
# src/accelerate/utils/dataclasses.py, DeepSpeedPlugin and FullyShardedDataParallelPlugin.
LAUNCHED: Mapping[str, tuple[str, int]] = {"FSDP": ("use_fsdp", 3), "DEEPSPEED": ("use_deepspeed", 2)}
NAMED = re.compile(r"(?:zero|(?<![a-z])z|stage)[-_]?([0-3])(?!\d)[^/]*$")  # in the name of a config of DeepSpeed
OFFLOADED = re.compile(r"(?<!no)(?<!(?:no|wo)[-_])(?<!without[-_])offload")  # there too
FOLLOWED = ("deepspeed", "deepspeed_config.deepspeed_config_file", "deepspeed_config_file")
RATIO = "zero_optimization.offload_optimizer.ratio"
OWN = ("zero_optimization", "train_micro_batch", "train_batch_size")  # how keys of DeepSpeed's JSON begin


def mesh(values: Values, key: str) -> str:
    """The path of a size of Accelerate's mesh, in the spelling that the file has."""
    named = f"parallelism_config_{key}"
    paths = (f"{MESH}{named}", named, f"{MESH}{key}", AXOLOTL_DEGREES.get(key, key))
    return next((path for path in paths if path in values), "")


def strategy_words(values: Values) -> list[str]:
    """The Trainer's words for a strategy; on a command the first alone is its value."""
    value = values.get(TRAINER_FSDP)
    return list(map(str, value)) if isinstance(value, list) else str(value or "").split()


def _engine(values: Values) -> tuple[str, str]:
    """The engine that Accelerate is told to use without how it shards, and the key that says so; "" for none.

    >>> _engine({"distributed_type": "FSDP"}), _engine({"use_deepspeed": True}), _engine({"distributed_type": "NO"})
    (('FSDP', 'distributed_type'), ('DEEPSPEED', 'use_deepspeed'), ('', ''))
    """
    flags = ((name, flag) for name, (flag, _) in LAUNCHED.items() if values.get(flag) is True)
    named = next(flags, (str(values.get(DISTRIBUTED)), DISTRIBUTED))
    return ("", "") if named[0] not in LAUNCHED or first(values, FOLLOWED) else named


def note_sharding(launch: Launch, values: Values) -> None:
    """Note the ZeRO stage, the groups that share states, the gradient bucket, and what lies on the host."""
    settings, strategy = launch.settings, first(values, STRATEGY)
    words = " ".join(strategy_words(values))
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
        launch.unpriced += [] if name in SHARDING else [f"{strategy} {values[strategy]}: priced as ZeRO-3"]
        settings["hybrid"] = name.lower().startswith(HYBRID)
    elif path := first(values, RESHARD):
        keeps = values[path] is False or str(values[path]).upper() in ("FALSE", "SHARD_GRAD_OP")
        launch.say("zero_stage", 2 if keeps else 3, path)
        strategy = path
    elif words.lower() not in SWITCHED_OFF:  # without a strategy among its words Accelerate's usual one
        stage = 0 if "no_shard" in words else 2 if re.search("grad_op|zero2", words) else 3
        launch.say("zero_stage", stage, TRAINER_FSDP)
        strategy = TRAINER_FSDP
        settings["hybrid"] = HYBRID in words
    elif engine := _engine(values)[0]:
        launch.say("zero_stage", LAUNCHED[engine][1])
        launch.fixed += ("zero_stage",)
        key = _engine(values)[1]
        launch.assumed.append(
            f"ZeRO-{LAUNCHED[engine][1]}: Accelerate's own where {key} has {engine} and no key says how"
        )
        strategy = key if engine == "FSDP" else ""
    elif word := NAMED.search(path := str(first(values, FOLLOWED) and values[first(values, FOLLOWED)]).lower()):
        launch.say("zero_stage", int(word[1]))
        offloads = bool(OFFLOADED.search(path))
        if offloads:
            launch.say("offload", 1.0)
        launch.assumed.append(f"ZeRO-{word[1]}{' with offload' * offloads}: by the name of {path} alone")
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
    total = copies * group * math.prod(sharing) * int(launch.settings.get("tp", 1))
    if shards and launch.settings.setdefault("gpus", total) != total:
        launch.problems.append(f"{shards} and the sizes beside it are of {total} GPUs (--gpus {total})")
    stage = launch.settings["zero_stage"]
    launch.settings["fsdp"] = bool(strategy)
    if not strategy:
        launch.following = lambda plan: overlap(values, plan.zero_stage)
        if word or CHAT in values or not any(path.startswith(OWN) for path in values):  # nor have Accelerate's files
            launch.fixed += ("reduce_overlap", "gather_overlap", "bucket")
            launch.fixed += () if first(values, STAGE) else ("zero_stage",)
        if stage:
            launch.settings |= overlap(values, stage)
            launch.written |= {"reduce_overlap": OVERLAP} if OVERLAP in values else {}
    elements = values.get(BUCKET)
    if isinstance(elements, int | float) and not isinstance(elements, bool):
        launch.say("bucket", 2.0 * elements, BUCKET)
    elif not strategy and (stage or first(values, STAGE) or any(path.startswith(OWN) for path in values)):
        launch.settings["bucket"] = 2.0 * MOST_BUCKET
    if (path := first(values, DEVICE)) and values[path] != "none":
        share = values.get(RATIO, 1.0)
        launch.say("offload", float(share) if isinstance(share, int | float) else 1.0, path)
    launch.drives = next((path for path in (*DEVICE, *WEIGHTS) if values.get(path) == "nvme"), "")
    _hosted(launch, values)


def hosting(values: Values) -> str:
    """The path that has weights lie on the host, "" where none does."""
    stated = next((path for path in WEIGHTS if str(values.get(path)).lower() in ("cpu", "nvme", "true")), "")
    return stated or (TRAINER_FSDP if OFFLOADING in strategy_words(values) else "")


def _hosted(launch: Launch, values: Values) -> None:
    """Note that weights lie on the host, where their optimizer does too."""
    path, settings = hosting(values), launch.settings
    if not path:
        return
    if settings["zero_stage"] == 3 and (settings["fsdp"] or settings.get("offload") == 1.0):
        launch.say("hosted_weights", True, path)
    else:
        launch.unsearched.append(f"{path}: weights are priced on the host under ZeRO-3 with the whole optimizer there")


def overlap(values: Values, stage: int) -> dict[str, Any]:
    """What overlaps under a ZeRO stage: 1 and 2 only where a file says so, 3 by default; 0 says nothing.

    >>> overlap({}, 3), overlap({}, 1), overlap({OVERLAP: True}, 1)["gather_overlap"]
    ({'reduce_overlap': True, 'gather_overlap': True}, {'reduce_overlap': False, 'gather_overlap': False}, True)
    """
    asked = values.get(OVERLAP)
    overlaps = (stage == 3 if asked in (None, "auto") else bool(asked)) if stage else None
    return {"reduce_overlap": overlaps, "gather_overlap": overlaps}


def mesh_written(values: Values, before: Plan, after: Plan) -> dict[str, Any]:
    """The sizes of Accelerate's mesh: those of a plan's groups, where the file has them."""
    sizes = ("tp", "cp", "dp", "shard", "zero_stage")
    if not mesh(values, SHARD) or all(getattr(before, name) == getattr(after, name) for name in sizes):
        return {}
    group = (after.shard or after.dp * after.cp) // after.cp if after.zero_stage else 1
    wanted = {REPLICATE: after.dp // group, SHARD: group, DEGREES["tp"]: after.tp, DEGREES["cp"]: after.cp}
    own = AXOLOTL[0] in values
    new = {key: AXOLOTL_DEGREES.get(key, key) if own else f"{MESH}{key}" for key in wanted}
    return {mesh(values, key) or new[key]: size for key, size in wanted.items()}
