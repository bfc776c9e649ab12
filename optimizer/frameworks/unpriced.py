"""Settings that no reader takes: known to cost nothing, or not priced."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from optimizer.base.content import content

TABLES: Mapping[str, Any] = content("optimizer.frameworks", "unpriced.toml")
WORDS: Sequence[str] = TABLES["words"]
NAMES: Sequence[str] = TABLES["names"]
SECTIONS: Sequence[str] = TABLES["sections"]
OFF: Sequence[str] = TABLES["off"]
NEEDED: Sequence[str] = TABLES["needed"]
USUAL: Mapping[str, Sequence[str]] = TABLES["usual"]
LIKE: Mapping[str, str] = TABLES["like"]
FREE: Mapping[str, Sequence[str]] = TABLES["free"]
MODEL = re.compile(r"(?:^|[._])model(?:_name)?(?:_or_path|_id|_path)?$")  # keys that name weights
# What is trained of a model, as keys call it and as one word of a value does.
PARTS = re.compile(
    r"lora|peft|adapter|freeze|frozen|low_rank|spectrum|tunable|trainable|(?:^|[._])tun(?:e|ing)(?:_|$)|tun\w*_(?:type|mode|method)$|only_train|train_only"
)
ADAPTERS = re.compile(
    r"(?:\w+[-_])?(?:q?lora|[dv]ora|adalora|ia3|p_?tuning|adapters?|projector|frozen|freeze)(?:[-_]\w+)?", re.IGNORECASE
)
# A format of few bits, whatever a setting is called.
NARROW = re.compile(r"(?:\w+[-_])?(?:fp[48]|mxfp[48]|nvfp4|nf4|int[48])(?:[-_]\w+)?", re.IGNORECASE)
QUANTISED = re.compile(r"[-_/](?:awq|gptq|aqlm|hqq|gguf|int[48]|[48]bit)(?![a-z0-9])", re.IGNORECASE)


def unpriced(program: str, names: Sequence[str], leaves: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Names of settings that may change the price and that nothing reads, each with its value as people write it.

    Args:
        program: the training software.
        names: as the files have them.
        leaves: every value of the files, by file and by key or flag; of a flag the values of each time it is given.

    >>> leaves = {"sft.yaml": {"lora_rank": 8, "save_steps": 500, "load_in_4bit": False, "seed": 1}}
    >>> list(unpriced("DeepSpeed", list(leaves["sft.yaml"]), leaves))
    [('lora_rank', 'lora_rank 8')]
    >>> flags = {"train.sh": {"--reset-attention-mask": [()], "--optimizer": [("adam",)], "--lr": [("1e-4",)]}}
    >>> list(unpriced("Megatron-LM", list(flags["train.sh"]), flags))
    [('--reset-attention-mask', '--reset-attention-mask')]
    """
    for name in names:
        values = [_text(texts[name]) for texts in leaves.values() if name in texts]
        value = values[-1] if values else "true"
        if costs(program, name, value):
            yield name, f"{name} {value}".removesuffix(" true")


def quantised(leaves: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Keys of models whose names say that their weights have few bits, each with its value.

    >>> list(quantised({"sft.yaml": {"base_model": "Qwen/Qwen2.5-7B-Instruct-AWQ", "seed": 4}}))
    ['base_model Qwen/Qwen2.5-7B-Instruct-AWQ: its weights are quantised']
    >>> list(quantised({"run.sh": {"--model": [("unsloth/llama-3-8b-bnb-4bit",)], "--model-type": [("awq",)]}}))
    ['--model unsloth/llama-3-8b-bnb-4bit: its weights are quantised']
    """
    for name, value in ((name, _text(value)) for texts in leaves.values() for name, value in texts.items()):
        if MODEL.search(name.replace("-", "_")) and QUANTISED.search(value):
            yield f"{name} {value}: its weights are quantised"


def costs(program: str, name: str, value: str) -> bool:
    """Whether a setting may change the price: by its name, unless its value is usual or its name known to be free.

    >>> costs("MaxText", "quantization", "int8"), costs("MaxText", "quantization", "")
    (True, False)
    >>> costs("MaxText", "sparse_matmul", "false"), costs("MaxText", "sparse_matmul", "true")
    (True, False)
    >>> costs("nanotron", "doremi.ref_model_resume_checkpoint_path", "out/1")
    True
    >>> costs("GPT-NeoX", "te_fp8_format", "hybrid"), costs("Axolotl", "lora_modules_to_save", "lm_head")
    (True, True)
    >>> costs("Megatron-LM", "--optimizer", "ademamix"), costs("Megatron-LM", "--optimizer", "adam")
    (True, False)
    """
    path = name.lstrip("-").replace("-", "_").lower()
    key = path.rpartition(".")[2]

    def among(patterns: Iterable[str]) -> bool:
        return any(fnmatchcase(path if "." in pattern else key, pattern) for pattern in patterns)

    if value.lower() in OFF:
        return among(NEEDED)
    if among(pattern for pattern, usual in USUAL.items() if value.lower() in usual):
        return False
    own = list(_own_free(program))
    if key in NAMES or path in NAMES:  # whole names, whatever patterns they fit
        return not any(map(among, own))
    if any(fnmatchcase(path, pattern) for pattern in NAMES if "." in pattern):
        return not any(map(among, own))
    if any(word in path for word in SECTIONS):
        return not among(pattern for pattern in FREE["every"] if "." not in pattern and pattern != "*_path*")
    telling = ADAPTERS.fullmatch(value) or NARROW.fullmatch(value)
    if not among(NAMES) and not any(word in key for word in WORDS) and not telling:
        return False
    return not among(FREE["every"]) and not any(map(among, own))


def free(program: str, name: str) -> bool:
    """Whether a setting is known to cost nothing, whatever its value.

    >>> free("Megatron-LM", "--wandb-name"), free("Megatron-LM", "--use-te")
    (True, False)
    """
    key = name.lstrip("-").replace("-", "_").lower()
    return any(fnmatchcase(key, pattern) for patterns in (FREE["every"], *_own_free(program)) for pattern in patterns)


def _own_free(program: str) -> Iterator[Sequence[str]]:
    """Names that cost nothing in a program and in the one that it takes its settings from."""
    programs = f"every {program} {LIKE.get(program, '')}"
    return (patterns for family, patterns in FREE.items() if family in programs and family != "every")


def trains(program: str, values: Mapping[str, Any]) -> Iterator[str]:
    """Keys that say which parts of a model are trained, or by what, whatever program has them.

    >>> list(trains("DeepSpeed", {"tune_mm_llm": False, "tuning": "lora", "mode": "qlora", "run_name": "lora-1"}))
    ['tune_mm_llm', 'tuning', 'mode']
    >>> list(trains("DeepSpeed", {"use_lora": False, "tuning_type": "full", "freeze_llm": None, "seed": 1}))
    []
    """
    for name, value in ((name, _text(value)) for name, value in values.items()):
        part = PARTS.search(name.rpartition(".")[2].replace("-", "_").lower()) or ADAPTERS.fullmatch(value)
        if part and costs(program, name, value):
            yield name


def _text(value: Any) -> str:
    """A value as it stands in a file; of a flag the last time that it is given."""
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        return " ".join(value[-1]) or "true"
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
