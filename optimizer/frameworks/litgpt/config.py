"""litgpt's configs in YAML and its commands: FSDP of Lightning Fabric, in each node when it pretrains, else everywhere.

Source of the keys and defaults: Lightning-AI/litgpt, litgpt/__main__.py, litgpt/pretrain.py, litgpt/finetune/full.py
and lora.py (strategies, precisions), litgpt/args.py; Lightning-AI/pytorch-lightning,
src/lightning/fabric/plugins/precision/fsdp.py (mixed_precision_config).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.frameworks.config.launch import Values, key_tables, note_dtype, rest, take, tied
from optimizer.frameworks.config.method import note_dropout, note_optimizer
from optimizer.frameworks.deepspeed.config import IN_FSDP, UPCAST
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.shape import named
from optimizer.frameworks.unpriced import costs
from optimizer.job.job import Job
from optimizer.job.method import LORA, QLORA
from optimizer.job.plan import Plan

COUNTS: Mapping[str, str] = key_tables("litgpt")["counts"]
ADAPTERS: Mapping[str, str] = key_tables("litgpt")["adapters"]
NAMES, OPTIMIZERS = ("model_name", "checkpoint_dir", "model_config.name"), ("optimizer.class_path", "optimizer")
MIXED = "bf16-mixed"  # litgpt/utils.py, get_default_supported_precision
PRECISION, QUANTISED, LORA_RANK, TOKENS = "precision", "quantize", "lora_r", "train.max_tokens"
BASES: Mapping[str, str] = {
    **dict.fromkeys(("bnb.nf4-dq", "bnb.fp4-dq"), "nf4"),
    **dict.fromkeys(("bnb.nf4", "bnb.fp4"), "nf4-single"),
    **dict.fromkeys(("bnb.int8", "bnb.int8-training"), "int8"),
}
COMMAND = "litgpt"  # names the one that runs
ADAPTED, COMMANDS = ("finetune", "finetune_lora"), ("pretrain", "finetune", "finetune_lora", "finetune_full")
ADAPTED_UNASKED, RANK_UNASKED, DROPPED_UNASKED = ("lora_query", "lora_value"), 8, 0.05
# What commands take where nothing says it: of pretraining, and of fine-tuning.
USUAL: Mapping[bool, Mapping[str, int]] = {
    False: {"micro_batch": 4, "global_batch": 512},
    True: {"micro_batch": 1, "global_batch": 16, "nodes": 1, "gpus_per_node": 1},
}
ONE_NODE: Mapping[str, int] = {"nodes": 1}  # of a config that says GPUs
UNSET = ("shard", "zero_stage", "recompute", "reduce_overlap", "gather_overlap", "bucket")  # what no key says


def recognised(values: Values) -> bool:
    """Whether a YAML or a command is litgpt's."""
    return COMMAND in values or {"train.micro_batch_size", "train.max_seq_length"} <= values.keys()


def read(launch: Launch, values: Values) -> None:
    """Note what it says."""
    settings, command = launch.settings, str(values.get(COMMAND, ""))
    if command and command not in COMMANDS:
        launch.problems.append(f"litgpt {command}: of its commands only {', '.join(COMMANDS)} are priced")
        return
    take(launch, values, COUNTS)
    tunes = "checkpoint_dir" in values or command.startswith("finetune")
    usual = USUAL[tunes] if command else ONE_NODE if "gpus_per_node" in settings else {}
    missing = {name: value for name, value in usual.items() if COUNTS[name] not in values}
    settings |= missing
    stated = settings.get("nodes", 1) * settings.get("gpus_per_node", 0)
    gpus = settings.get("gpus") or stated or 1
    if missing:
        keys = ", ".join(f"{COUNTS[name]} {value}" for name, value in missing.items())
        other = f", where {gpus} GPUs are priced" if 0 < stated != gpus else ""
        launch.assumed.append(f"{keys}: litgpt's own{other}")
    if stated != gpus:  # the user, or what starts the processes, says otherwise
        for name in ("nodes", "gpus_per_node"):
            settings.pop(name, None)
            launch.written.pop(name, None)
    settings |= {"recompute": "full" if tunes and gpus > 1 else "none", "fsdp": True}
    settings["zero_stage"] = 3 if gpus > 1 else 0
    if not tunes and settings.get("nodes", 1) > 1:
        settings["shard"] = settings["gpus_per_node"]
    launch.fixed += UNSET
    if tunes:  # on one document a sequence
        settings["packing"] = False
    note_dtype(launch, values, PRECISION)
    if isinstance(values.get(TOKENS), int):
        launch.say("tokens", values[TOKENS], TOKENS)
    known = [COMMAND, PRECISION, TOKENS, *COUNTS.values(), *_method(launch, values)]
    _states(launch, values, sharded=gpus > 1)
    if not tunes:
        launch.unpriced.append("torch.compile of the whole model, litgpt's own where it pretrains")
    path = next((path for path in NAMES if isinstance(values.get(path), str)), "")
    if model := named(str(values.get(path, ""))):
        launch.say("model", model, path)
    elif path:
        launch.unknown_model(path, values[path])
    for path in OPTIMIZERS:
        if note_optimizer(launch, str(values.get(path, "")).rpartition(".")[2], path):
            known.append(path)
        elif path in values and not costs(launch.program, path, str(values[path])):  # which names the others
            launch.unpriced.append(f"{path} {values[path]}")
    rest(launch, values, (*known, *NAMES))


def _states(launch: Launch, values: Values, *, sharded: bool) -> None:
    """Note the bytes of weights, gradients and moments, by the precision."""
    precision = str(values.get(PRECISION) or MIXED)
    if not values.get(PRECISION):
        launch.assumed.append(f"{PRECISION} {MIXED}: litgpt's own where nothing says otherwise")
    if precision.endswith("16-true"):
        launch.settings |= {"grad_bytes": 2, "optimizer_bytes": 4}
    elif precision.endswith("-mixed") and "train" in launch.settings:
        launch.unpriced.append(f"{PRECISION} {precision}: what is frozen has 32 bits")
    elif precision.endswith("-mixed"):
        launch.settings |= IN_FSDP if sharded else UPCAST


def _method(launch: Launch, values: Values) -> tuple[str, ...]:
    """Note the adapters; the keys that say them."""
    if values[COMMAND] not in ADAPTED if COMMAND in values else LORA_RANK not in values:
        return ()
    targets = "+".join(words for key, words in ADAPTERS.items() if values.get(key, key in ADAPTED_UNASKED))
    base = BASES.get(str(values.get(QUANTISED)), "")
    method = QLORA if base else LORA
    launch.say("train", f"{method}:{values.get(LORA_RANK) or RANK_UNASKED}:{targets or 'q+v'}", LORA_RANK)
    if base:
        launch.say("base", base, QUANTISED)
    return (LORA_RANK, *ADAPTERS, *((QUANTISED,) if base else ()), *note_dropout(launch, values, DROPPED_UNASKED))


def write(values: Values, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys of another plan: the batch of a step stays."""
    return tied({"micro_batch": COUNTS["micro_batch"]}, before, after)
