"""What programs on a Trainer take where their files say nothing, by keys that tell them apart."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from optimizer.frameworks.config.launch import Values, key_tables
from optimizer.frameworks.config.method import KEYS, OBJECTIVES, RLHF, TRAINER
from optimizer.frameworks.launch import Launch

PATHS: Mapping[str, tuple[str, ...]] = {name: tuple(paths) for name, paths in key_tables("deepspeed")["paths"].items()}
MICRO, STEPS = (PATHS[name] for name in ("micro_batch", "num_microbatches"))
WORDS = ("torch_dtype", "dtype", "model_init_kwargs.torch_dtype", "model_init_kwargs.dtype")
AXOLOTL = ("base_model", "micro_batch_size")  # the second is a key of other programs too
# ms-swift trains adapters: its swift/arguments/base_args.
SWIFT, TUNED = "swift", ("tuner_type", "train_type", "sft_type")
ADAFACTOR = "adafactor"  # also a switch of Transformers before 5
DEFAULTS: Mapping[str, Mapping[str, Any]] = key_tables("deepspeed")["programs"]
TITLES: Mapping[str, str] = {name: program.get("title", name) for name, program in DEFAULTS.items()}
ALPACA, ALL_GPUS = "alpaca-lora", "batch_size"  # of one of DEFAULTS, and its batch of all GPUs
ALIGNING = "swift rlhf"  # of which DPO is the usual one: swift/arguments/rlhf_args.py
ADAPTING = ("swift sft", ALIGNING)


def completed(values: Values) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """Values with those that programs take where nothing says otherwise, and of which a report tells, by program.

    >>> completed({"base_model": "Qwen/Qwen3-4B", "adapter": "lora", "sequence_len": 4096})
    ({'base_model': 'Qwen/Qwen3-4B', 'adapter': 'lora', 'sequence_len': 4096, 'micro_batch_size': 1}, {})
    >>> completed({"trl": "sft", "max_length": None, "dtype": "bfloat16"})[1]
    {'trl': ('per_device_train_batch_size', 'gradient_checkpointing')}
    """
    known, reported = dict(values), {}
    if values.get(SWIFT) in ADAPTING and not any(path in values for path in TUNED):
        known[TUNED[0]] = "lora"
    if values.get(SWIFT) == ALIGNING:
        known.setdefault(RLHF, "dpo")
    if values.get(ADAFACTOR) is True:
        known[KEYS["optimizer"][0]] = ADAFACTOR
    for name, program in DEFAULTS.items():
        is_one = all(known.get(key) is not None for key in program["when"])
        is_one &= not known.keys() & set(program.get("unless", ()))
        is_one &= name != TRAINER or known.get(TRAINER) in OBJECTIVES
        if not is_one or ("any" in program and not known.keys() & set(program["any"])):
            continue
        own = {key: value for key, value in program["values"].items() if not _stated(known, key)}
        known |= {**own, **({name: True} if name == ALPACA else {})}
        if keys := tuple(key for key in program.get("reported", ()) if key in own):
            reported[name] = keys
    return known, reported


def _stated(values: Values, key: str) -> bool:
    """Whether a key, or another one of the same setting, has a value that no other file is to fill in."""
    same = next((paths for paths in (*PATHS.values(), *KEYS.values(), WORDS) if key in paths), (key,))
    return any(values.get(path, "auto") != "auto" for path in same)


def accumulated(launch: Launch, values: Values) -> int:
    """Micro-batches of a step where nothing says: 1, of ms-swift as many as make 16 sequences on all GPUs.

    Source: modelscope/ms-swift v4.6.0, swift/trainers/arguments.py.
    """
    gpus = launch.settings.get("gpus")
    if SWIFT not in values or not gpus:
        return 1
    count = max(1, math.ceil(16 / int(launch.settings["micro_batch"]) / int(gpus)))
    launch.assumed.append(f"{STEPS[0]} {count}: ms-swift's own for {gpus} GPUs")
    return count


def first(values: Values, paths: tuple[str, ...]) -> str:
    """The first of these paths that says something; "auto" leaves it to another file."""
    return next((path for path in paths if values.get(path) not in (None, "auto")), "")
