"""An Unsloth program as keys of a Trainer: the arguments of the calls that load, adapt and train, from its syntax tree.

Nothing is run. Source of the names and defaults: unslothai/unsloth 2026.10.9, unsloth/models/loader.py
(from_pretrained), llama.py (get_peft_model); huggingface/trl v1.16.0, trl/trainer/sft_config.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from optimizer.base.errors import InputError
from optimizer.frameworks.config.python import Argument, WrittenCall, calls_of

IMPORTS = re.compile(r"^\s*(?:from|import)\s+unsloth\b", re.MULTILINE)
FAST, LOADS, ADAPTS = "Fast", "from_pretrained", "get_peft_model"
LONGEST = 100_000  # characters
ARGUMENTS = ("SFTConfig", "TrainingArguments", "UnslothTrainingArguments")
CALLS = (LOADS, ADAPTS, *ARGUMENTS, "SFTTrainer", "UnslothTrainer")
OTHERS = tuple(f"{loss}Trainer" for loss in ("DPO", "KTO", "ORPO", "CPO", "GRPO", "RLOO", "PPO", "Reward"))
# What Unsloth and PyTorch answer on every GPU since Ampere.
SUPPORTED = re.compile(r"(?:[\w.]+\.)?is_bf(?:loat)?16_supported\(\)")
FULL, BITS, ADAPTED, CHECKPOINTS = "full_finetuning", "load_in_4bit", "unsloth", "use_gradient_checkpointing"
LENGTH = "max_seq_length"
OTHER_BITS = ("load_in_8bit", "load_in_16bit")
DEFAULTS: Mapping[str, Any] = {
    **{LENGTH: 2048, "packing": False, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1},
    **{"optim": "adamw_torch_fused", "bf16": True, "r": 16},
}
# Of TRL's SFTConfig, whose defaults Unsloth writes anew: unsloth/models/rl.py (replacements).
OWN: Mapping[str, Any] = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "optim": "adamw_8bit"}
NEEDED = (*DEFAULTS, "model_name", "max_length", "max_steps", "target_modules", FULL, BITS, *OTHER_BITS, CHECKPOINTS)


def is_script(text: str) -> bool:
    """Whether a Python file imports Unsloth."""
    return bool(IMPORTS.search(text))


def script_values(text: str) -> dict[str, Any]:
    r"""What a program says by the keys of a Trainer.

    Raises InputError for one that does not load and train with supervision once each, or whose arguments only a run
    would tell; SyntaxError for what is no Python.

    >>> text = "import unsloth\nm, t = FastModel.from_pretrained('Qwen/Qwen3-4B', load_in_4bit=True)\n"
    >>> text += "m = FastModel.get_peft_model(m, r=8)\nSFTTrainer(model=m, args=SFTConfig(max_steps=9))"
    >>> values = script_values(text)
    >>> [values[name] for name in ("model_name", "load_in_4bit", "unsloth", "r", "max_steps", "gradient_checkpointing")]
    ['Qwen/Qwen3-4B', True, True, 8, 9, True]
    """
    if other := next(iter(calls_of(text, OTHERS)), None):
        raise InputError(f"{other.name}: programs of Unsloth are read with SFTTrainer alone")
    arguments = dict(_arguments(text))
    unknown = {name: text[slice(*argument.span)] for name, argument in arguments.items() if not argument.known}
    open_ones = [name for name, said in unknown.items() if name in NEEDED and not SUPPORTED.fullmatch(said)]
    if open_ones:
        raise InputError(f"{', '.join(open_ones)}: only a run would tell; write the value there")
    stated = {name: argument.value for name, argument in arguments.items() if argument.known}
    whole = stated.pop(FULL, False) is True
    narrow = [stated.get(name) is True for name in OTHER_BITS]
    stated.pop(OTHER_BITS[1], None)
    stated.setdefault(BITS, not (whole or any(narrow)))
    checkpoints = stated.pop(CHECKPOINTS, ADAPTED)
    hosts = {CHECKPOINTS: ADAPTED} if checkpoints == ADAPTED else {CHECKPOINTS: bool(checkpoints)}
    called = {call.name for call in _calls(text)}
    adapts = ADAPTS in called
    own = {ADAPTED: adapts, "gradient_checkpointing": bool(checkpoints), **hosts}
    return {**DEFAULTS, **({} if called & {*ARGUMENTS[1:]} else OWN), **stated, **own}


def script_changed(text: str, name: str, value: Any) -> str:
    r"""The program with one argument written otherwise, or added to those of training.

    >>> script_changed("FastModel.from_pretrained(NAME); SFTConfig(max_steps=9)", "max_steps", 8)
    'FastModel.from_pretrained(NAME); SFTConfig(max_steps=8)'
    >>> script_changed("FastModel.from_pretrained(NAME); SFTConfig(max_steps=9)", "packing", True)
    'FastModel.from_pretrained(NAME); SFTConfig(packing=True, max_steps=9)'
    """
    if argument := dict(_arguments(text)).get(name):
        start, end = argument.span
        return text[:start] + repr(value) + text[end:]
    place = next((call.inside for call in calls_of(text, ARGUMENTS)), None)
    if place is None:
        raise InputError(f"{name}: no call of {' or '.join(ARGUMENTS)} is there to say it")
    return text[:place] + f"{name}={value!r}, " + text[place:]


def _calls(text: str) -> list[WrittenCall]:
    """The calls that count, what trains last; of models that are loaded the first, later ones are what was saved.

    Raises InputError for a program that loads none, trains nothing, or is too long.
    """
    if len(text) > LONGEST:
        raise InputError(f"more than {LONGEST:,} characters are no program that trains")
    written = sorted(calls_of(text, CALLS), key=lambda call: (CALLS.index(call.name), call.inside))
    loads = [call for call in written if call.name == LOADS and call.owner.startswith(FAST)]
    if not loads or not any(call.name in CALLS[2:] for call in written):
        raise InputError(f"expected {FAST}Model's {LOADS} and an SFTTrainer, whose arguments say what is trained")
    return [loads[0], *(call for call in written if call.name != LOADS)]


def _arguments(text: str) -> Iterator[tuple[str, Argument]]:
    """Arguments of the calls by name; a model named first is the one that is loaded, as long as it is there."""
    for call in _calls(text):
        if call.name == LOADS and call.first is not None:
            yield "model_name", call.first
        unused = (LENGTH,) if call.name == ADAPTS else ()
        yield from ((name, argument) for name, argument in call.named.items() if name not in unused)
