"""litgpt's configs in YAML: FSDP of Lightning Fabric, sharded in each node when it pretrains and everywhere else.

Source of the keys and defaults: Lightning-AI/litgpt, litgpt/pretrain.py, litgpt/finetune/full.py and lora.py
(strategies, precisions), litgpt/args.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.frameworks.config.launch import Values, key_tables, note_dtype, rest, take, tied
from optimizer.frameworks.config.method import note_optimizer
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.shape import named
from optimizer.job.job import Job
from optimizer.job.method import LORA, QLORA, RANK
from optimizer.job.plan import Plan

COUNTS: Mapping[str, str] = key_tables("litgpt")["counts"]
ADAPTERS: Mapping[str, str] = key_tables("litgpt")["adapters"]
NAMES, OPTIMIZERS = ("model_name", "checkpoint_dir", "model_config.name"), ("optimizer.class_path", "optimizer")
PRECISION, QUANTISED, LORA_RANK, TOKENS = "precision", "quantize", "lora_r", "train.max_tokens"
BASES: Mapping[str, str] = {"bnb.nf4": "nf4", "bnb.nf4-dq": "nf4", "bnb.int8": "int8"}
UNSET = ("shard", "zero_stage", "recompute", "reduce_overlap", "gather_overlap", "bucket")  # what no key says


def recognised(values: Values) -> bool:
    """Whether a YAML is litgpt's."""
    return "train.micro_batch_size" in values and "train.max_seq_length" in values


def read(launch: Launch, values: Values) -> None:
    """Note what it says."""
    settings = launch.settings
    take(
        launch,
        values,
        {name: key for name, key in COUNTS.items() if not (name in ("nodes", "gpus_per_node") and "gpus" in settings)},
    )
    if "gpus_per_node" not in settings:
        settings.pop("nodes", None)
    gpus = settings.get("gpus") or settings.get("nodes", 1) * settings.get("gpus_per_node", 1)
    tunes = "checkpoint_dir" in values
    settings |= {"recompute": "full" if tunes and gpus > 1 else "none", "fsdp": True}
    settings["zero_stage"] = 3 if gpus > 1 else 0
    if not tunes and settings.get("nodes", 1) > 1:
        settings["shard"] = settings["gpus_per_node"]
    launch.fixed += UNSET
    if tunes:  # on one document a sequence
        settings["packing"] = False
    note_dtype(launch, values, PRECISION)
    if str(values.get(PRECISION)).endswith("16-true"):
        settings |= {"grad_bytes": 2, "optimizer_bytes": 4}
    if isinstance(values.get(TOKENS), int):
        launch.say("tokens", values[TOKENS], TOKENS)
    known = [PRECISION, TOKENS, *COUNTS.values(), *_method(launch, values)]
    path = next((path for path in NAMES if isinstance(values.get(path), str)), "")
    if model := named(str(values.get(path, ""))):
        launch.say("model", model, path)
    elif path:
        launch.unknown_model(path, values[path])
    for path in OPTIMIZERS:
        if note_optimizer(launch, str(values.get(path, "")).rpartition(".")[2], path):
            known.append(path)
    rest(launch, values, (*known, *NAMES))


def _method(launch: Launch, values: Values) -> tuple[str, ...]:
    """Note the adapters; the keys that say them."""
    if LORA_RANK not in values:
        return ()
    targets = "+".join(words for key, words in ADAPTERS.items() if values.get(key))
    base = BASES.get(str(values.get(QUANTISED)), "")
    method = QLORA if base else LORA
    launch.say("train", f"{method}:{values[LORA_RANK] or RANK}:{targets or 'q+v'}", LORA_RANK)
    if base:
        launch.say("base", base, QUANTISED)
    return (LORA_RANK, *ADAPTERS, *((QUANTISED,) if base else ()))


def write(values: Values, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys of another plan: the batch of a step stays."""
    return tied({"micro_batch": COUNTS["micro_batch"]}, before, after)
