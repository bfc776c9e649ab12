"""What programs on a Trainer take where their files say nothing, by keys that tell them apart."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from optimizer.frameworks.config.launch import Values, key_tables
from optimizer.frameworks.config.method import KEYS, OBJECTIVES, RLHF, TRAINER
from optimizer.frameworks.launch import Launch

PATHS: Mapping[str, tuple[str, ...]] = {name: tuple(paths) for name, paths in key_tables("deepspeed")["paths"].items()}
MICRO, STEPS = (PATHS[name] for name in ("micro_batch", "num_microbatches"))
WORDS = ("torch_dtype", "dtype", "model_init_kwargs.torch_dtype", "model_init_kwargs.dtype")
AXOLOTL = ("base_model", "micro_batch_size")  # the second is a key of other programs too
# Kernels of adapters that Axolotl has where none of their keys is there, and what it has none beside. Source:
# axolotl-ai-cloud/axolotl v0.21.0, src/axolotl/utils/schemas/validation.py, lora_kernels_auto_enable.
KERNELS = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel")
WITHOUT_KERNELS = ("rl", "load_in_8bit", "trust_remote_code", "nvfp4_merge_aware", "data_path")
STORAGE = "bnb_4bit_quant_storage"  # the type in which bitsandbytes packs weights of 4 bits
# ms-swift trains adapters: its swift/arguments/base_args.
SWIFT, TUNED = "swift", ("tuner_type", "train_type", "sft_type")
CHAT = "data_split"  # of DeepSpeed-Chat, whose config of the engine is in its Python
ADAFACTOR = "adafactor"  # also a switch of Transformers before 5
DEFAULTS: Mapping[str, Mapping[str, Any]] = key_tables("deepspeed")["programs"]
TITLES: Mapping[str, str] = {name: program.get("title", name) for name, program in DEFAULTS.items()}
ALPACA, ALL_GPUS = "alpaca-lora", "batch_size"  # of one of DEFAULTS, and its batch of all GPUs
# A key of forks of Alpaca, which the parsers of LLaMA-Factory and ms-swift refuse, and theirs that forks have too.
# Source: hiyouga/LLaMA-Factory v0.9.5, src/llamafactory/hparams/parser.py; modelscope/ms-swift v4.6.0, swift/arguments.
FOREIGN, SHARED = "data_path", ("finetuning_type", *TUNED)
OPEN_INSTRUCT, OWN_BITS = "open-instruct", "use_qlora"  # of DEFAULTS, and its switch of weights of 4 bits
# DeepSpeed-Chat's own adapters, on linear layers whose names hold a word: one of OPT's unless a key says another.
# Source: deepspeedai/DeepSpeedExamples, applications/DeepSpeed-Chat/dschat/utils/module/lora.py.
CHAT_RANK, CHAT_SCOPE, CHAT_ONLY = "lora_dim", "lora_module_name", "only_optimize_lora"
CHAT_ADAPTERS = (CHAT_RANK, CHAT_SCOPE, CHAT_ONLY)
SCOPES: Mapping[str, str] = {"opt": "model.decoder.layers.0.", "llama": "model.layers.0.", "bloom": "transformer.h.0."}
ALIGNING = "swift rlhf"  # of which DPO is the usual one: swift/arguments/rlhf_args.py
ADAPTING = ("swift sft", "swift pt", ALIGNING)
ZERO = re.compile(r"zero([0-3])(_offload)?$")  # its words for engines
# What its files for these say of them. Source: modelscope/ms-swift v4.6.0, swift/config.
OVERLAP, BUCKET = "zero_optimization.overlap_comm", "zero_optimization.reduce_bucket_size"
ENGINES: Mapping[str, Mapping[str, Any]] = {
    **{stage: {OVERLAP: False, BUCKET: 2e8} for stage in "12"},
    "3": {OVERLAP: False},
}


def completed(values: Values) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """Values with those that programs take where nothing says otherwise, and of which a report tells, by program.

    >>> completed({"base_model": "Qwen/Qwen3-4B", "adapter": "lora", "sequence_len": 4096, "bf16": True})
    ({'base_model': 'Qwen/Qwen3-4B', 'adapter': 'lora', 'sequence_len': 4096, 'bf16': True, 'micro_batch_size': 1}, {})
    >>> completed({"trl": "sft", "max_length": None, "dtype": "bfloat16"})[1]
    {'trl': ('per_device_train_batch_size', 'gradient_checkpointing')}
    """
    known, reported = dict(values), {}
    if FOREIGN in known:
        known = {key: value for key, value in known.items() if key not in SHARED}
    if CHAT in values and (rank := chat_rank(values)):
        known |= {"adapter": "lora", "lora_rank": rank}
    if values.get(SWIFT) in ADAPTING and not any(path in values for path in TUNED):
        known[TUNED[0]] = "lora"
    if values.get(SWIFT) == ALIGNING:
        known.setdefault(RLHF, "dpo")
    if values.get(ADAFACTOR) is True:
        known[KEYS["optimizer"][0]] = ADAFACTOR
    if SWIFT in values and (word := ZERO.match(str(values.get("deepspeed")))):
        known |= ENGINES.get(word[1], {})
    for name, program in DEFAULTS.items():
        is_one = all(known.get(key) not in (None, False) for key in program["when"])
        is_one &= not known.keys() & set(program.get("unless", ()))
        is_one &= any(key.startswith(program.get("section", "")) for key in known)
        is_one &= name != TRAINER or known.get(TRAINER) in OBJECTIVES
        if not is_one or ("any" in program and not known.keys() & set(program["any"])):
            continue
        own = {key: value for key, value in program["values"].items() if not _stated(known, key)}
        known |= {**own, **({name: True} if name in (ALPACA, OPEN_INSTRUCT) else {})}
        if keys := tuple(key for key in program.get("reported", ()) if key in own):
            reported[name] = keys
    return known, reported


def chat_rank(values: Values) -> int:
    """The rank of DeepSpeed-Chat's adapters where these alone are trained, on all layers; 0 for what has no price.

    >>> chat = {"lora_dim": 128, "only_optimize_lora": True, "model_name_or_path": "facebook/opt-1.3b"}
    >>> chat_rank(chat), chat_rank({**chat, "model_name_or_path": "meta-llama/Llama-2-7b-hf"})
    (128, 0)
    >>> chat_rank({**chat, "only_optimize_lora": False}), chat_rank({**chat, "lora_module_name": "q_proj"})
    (0, 0)
    """
    rank, name = values.get(CHAT_RANK), str(values.get("model_name_or_path")).rpartition("/")[2].lower()
    scope = str(values.get(CHAT_SCOPE, "decoder.layers."))
    whole = any(name.startswith(model) and layer.endswith(f"{scope}0.") for model, layer in SCOPES.items())
    return rank if isinstance(rank, int) and whole and values.get(CHAT_ONLY) is True else 0


def switched_on(values: Values) -> tuple[str, ...]:
    """Keys of kernels of adapters that are on, by themselves where none of them is there.

    >>> switched_on({"base_model": "Qwen/Qwen3-4B", "adapter": "qlora"})[:2]
    ('lora_mlp_kernel', 'lora_qkv_kernel')
    >>> switched_on({"base_model": "Qwen/Qwen3-4B", "adapter": "lora", "load_in_8bit": True})
    ()
    """
    if any(values.get(key) is not None for key in KERNELS):
        return tuple(key for key in KERNELS if values.get(key) is True)
    adapts = AXOLOTL[0] in values and values.get("adapter") in ("lora", "qlora")
    return KERNELS if adapts and not any(values.get(key) for key in WITHOUT_KERNELS) else ()


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
