"""The model that flags of Megatron-LM and Megatron-DeepSpeed describe."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from optimizer.base.units import is_count
from optimizer.catalog import model_spellings, preset_model
from optimizer.catalog.places import spelling
from optimizer.frameworks.bash.flags import Flag
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.megatron.flag_names import (
    MEGATRON_DEEPSPEED,
    SHAPE_COUNTS,
    SHAPE_SWITCHES,
    Meaning,
    note_flags,
    whole_number,
)
from optimizer.frameworks.shape import ROUTER, named

POSITIONS: Mapping[str, str] = {
    **{"learned_absolute": "learned", "absolute": "learned", "alibi": "alibi"},
    **dict.fromkeys(("rope", "rotary", "yarn", "mrope"), "rope"),
    **dict.fromkeys(("none", "nope"), "none"),
}
NORMS: Mapping[str, str] = {
    **dict.fromkeys(("rmsnorm", "te_rmsnorm", "rms"), "rms"),
    **dict.fromkeys(("layernorm", "layernorm1p", "low_precision_layernorm"), "layer"),
}
# Vocabularies by the type of the tokenizer, each with the flag of its file and what the file's path is known by.
TOKENIZERS: Mapping[str, tuple[int, str, str]] = {
    "GPT2BPETokenizer": (50257, "--vocab-file", "gpt2"),
    "Llama2Tokenizer": (32000, "--tokenizer-model", "llama"),
}
SIZED = re.compile(r"\d+k(?![a-z0-9])")  # in a tokenizer's path: a vocabulary of its own, such as of 100k
OF_CHECKPOINT, CHECKPOINTS = "--use-checkpoint-args", ("--load", "--pretrained-checkpoint", "--checkpoint")
MOST_LAYERS, LONGEST = 10_000, 100_000  # of a list of layers, and characters of what makes it
MULTIPLE, MULTIPLIER = "--multiple-of", "--hidden-dim-multiplier"  # of a gated MLP's width, in FlagScale
DECIMAL = re.compile(r"\d{1,3}(\.\d{1,9})?")
SHARED = "--n-shared-experts"  # of MindSpeed-LLM, each as wide as the others: features_manager/moe/shared_expert.py
GROUPED = "--group-query-attention"
SPELT_ALONE = "--hidden_size"  # in Megatron-LLM alone, whose linear layers have biases by a flag
# Flag, setting and meaning; of a setting that comes twice the last counts.
FLAGS: Sequence[tuple[str, str, Meaning]] = (
    ("--tokenizer-model", "vocab", lambda _, flag: _vocabulary(flag.value)),
    ("--tokenizer-name-or-path", "vocab", lambda _, flag: _vocabulary(flag.value)),
    ("--pad-vocab-size-to", "vocab", whole_number),
    *((name, key, whole_number) for name, key in SHAPE_COUNTS.items()),
    *((name, key, lambda _, flag: SHAPE_SWITCHES[flag.name][1]) for name, (key, _) in SHAPE_SWITCHES.items()),
    ("--normalization", "norm", lambda launch, flag: _named_as(launch, flag, NORMS, "layer")),
    ("--position-embedding-type", "position", lambda launch, flag: _named_as(launch, flag, POSITIONS, "none")),
    ("--num-query-groups", "kv_heads", whole_number),
    ("--num-key-value-heads", "kv_heads", whole_number),
    ("--attention-head-type", "kv_heads", lambda _, flag: 1 if flag.value == "multiquery" else None),
    (SHARED, "shared_ffn", lambda launch, flag: _shared(launch, flag)),
    ("--moe-router-score-function", "router", lambda _, flag: flag.value if flag.value != "softmax" else None),
    ("--window-size", "window", lambda _, flag: _window(flag.value)),
    ("--window-attn-skip-freq", "window_every", lambda launch, flag: _skips(launch, flag)),
)
# What Megatron takes where no flag says otherwise.
DEFAULTS: Mapping[str, Any] = {
    "norm": "layer",
    "position": "learned",
    "mlp_bias": True,
    "attention_bias": False,
    "tied_embeddings": True,
    "activation": "gelu",
}


def read_shape(launch: Launch, last: Mapping[str, Flag]) -> None:
    """Note layers, widths, switches of the architecture, and which layers are MoE."""
    settings = launch.settings
    idle = {"--pad-vocab-size-to"} if "--vocab-size" in last else set()
    idle |= set() if GROUPED in last else {"--num-query-groups"}
    if _tokenizer(launch, last) and "--vocab-size" in last:  # which only NullTokenizer takes
        idle.add("--vocab-size")
        if (stated := last["--vocab-size"].value) != str(launch.settings["vocab"]):
            launch.assumed.append(f"vocabulary of {launch.settings['vocab']:,} tokens, the tokenizer's, not {stated}")
    note_flags(launch, {name: flag for name, flag in last.items() if name not in idle}, FLAGS)
    if GROUPED in last and "--num-query-groups" not in last:  # one group, as Megatron-LM has it
        launch.say("kv_heads", 1, last[GROUPED].written)
    if settings.get("gated_mlp"):
        settings["activation"] = "swiglu"
    if "--hidden-size" in last and last["--hidden-size"].written == SPELT_ALONE:
        settings.setdefault("mlp_bias", False)
        settings.setdefault("attention_bias", settings["mlp_bias"])
    if "--disable-bias-linear" not in last:
        settings.setdefault("attention_bias", True)
    launch.settings |= {name: value for name, value in DEFAULTS.items() if name not in settings}
    settings["attention_out_bias"] = settings["mlp_bias"]
    if MULTIPLE in last and settings.get("gated_mlp") and "ffn_hidden" not in settings:
        _rounded_width(launch, last)
    _moe(launch, last)
    if "--num-experts" in last and "--multi-latent-attention" in last:  # a preset may have such heads
        settings.setdefault("mtp_layers", 0)
    if OF_CHECKPOINT in last and any(name in last for name in CHECKPOINTS):
        _of_checkpoint(launch, last)


def _of_checkpoint(launch: Launch, last: Mapping[str, Flag]) -> None:
    """Note the model that the checkpoint is named after, or its tokenizer: its arguments come before the flags.

    Source: NVIDIA/Megatron-LM, megatron/training/checkpointing.py, load_args_from_checkpoint.
    """
    settings = launch.settings
    if "model" in settings:
        return
    paths = [last[name].value for name in (*CHECKPOINTS, "--tokenizer-model") if name in last]
    presets = (named(part) for path in paths for part in path.split("/"))
    for model in map(preset_model, filter(None, presets)):
        stated = {name: settings[name] for name in ("layers", "hidden", "heads", "ffn_hidden") if name in settings}
        if all(getattr(model, name) == size for name, size in stated.items()):
            launch.say("model", model.name, last[OF_CHECKPOINT].written)
            return
    launch.unpriced.append(f"{last[OF_CHECKPOINT].written}: the checkpoint may have another shape than the flags")


def _rounded_width(launch: Launch, last: Mapping[str, Flag]) -> None:
    """Note the width of a gated MLP that two flags make of the model's."""
    factor = last[MULTIPLIER].value if MULTIPLIER in last else "1"
    if not DECIMAL.fullmatch(factor):
        launch.problems.append(f"{last[MULTIPLIER].written} {factor}: no number")
        return
    multiple = whole_number(launch, last[MULTIPLE]) or 1
    width = int(int(launch.settings.get("hidden", 0) * 8 / 3) * Fraction(factor))
    launch.say("ffn_hidden", -(-width // multiple) * multiple, last[MULTIPLE].written)


def _moe(launch: Launch, last: Mapping[str, Flag]) -> None:
    """Note the layers with experts; Megatron-DeepSpeed's are every second one, with one expert for each token."""
    settings = launch.settings
    if settings.get("experts", 0) <= 1:
        for key in ("experts", "top_k", "expert_ffn", *ROUTER):
            settings.pop(key, None)
            launch.written.pop(key, None)
        return
    if "--moe-layer-freq" in last:
        _layer_pattern(launch, last["--moe-layer-freq"])
    elif "--expert-interval" in last or launch.program == MEGATRON_DEEPSPEED:
        launch.say("every", whole_number(launch, last["--expert-interval"]) if "--expert-interval" in last else 2)
        settings.setdefault("top_k", 1)
    settings.setdefault("top_k", 2)


def _tokenizer(launch: Launch, last: Mapping[str, Flag]) -> bool:
    """Note the vocabulary that a type of tokenizer has, and tell whether it is sure: its file may be of another one.

    Source: NVIDIA/Megatron-LM, megatron/core/tokenizers/utils/build_tokenizer.py.
    """
    flag = last.get("--tokenizer-type")
    if flag is None and "--vocab-file" in last and "gpt2" in last["--vocab-file"].value.lower():
        launch.say("vocab", TOKENIZERS["GPT2BPETokenizer"][0], last["--vocab-file"].written)
    if flag is None or flag.value not in TOKENIZERS:
        return False
    count, file, mark = TOKENIZERS[flag.value]
    path = last[file].value.lower() if file in last else mark
    if mark in path and not SIZED.search(path):
        launch.say("vocab", count, flag.written)
        return True
    if not {"--vocab-size", "--padded-vocab-size", "--pad-vocab-size-to"} & last.keys():
        launch.settings["vocab"] = launch.vocabulary = count
        launch.assumed.append(f"vocabulary of {count:,} tokens: {last[file].value} may have another (--model)")
    return False


def _vocabulary(name: str) -> int | None:
    """The vocabulary of the model that a tokenizer is named after, None for one that names no preset.

    A model that is tuned from another has its tokenizer, and often its name within its own.

    >>> [_vocabulary(name) for name in ("meta-llama/Llama-3.1-8B", "nvidia/OpenMath2-Llama3.1-8B", "./tokenizer.model")]
    [128256, 128256, None]
    """
    bare = spelling(name.rpartition("/")[2])
    within = (preset for text, preset in model_spellings().items() if bare.endswith(spelling(text)))
    preset = named(name) or max(within, key=len, default="")
    return preset_model(preset).vocab if preset else None


def _named_as(launch: Launch, flag: Flag, table: Mapping[str, str], usual: str) -> str:
    """What a table has for a value; one that it has not is said, and taken for the usual."""
    if flag.value.lower() not in table and not flag.unknown:
        launch.unpriced.append(f"{flag.written} {flag.value}")
    return table.get(flag.value.lower(), usual)


def _shared(launch: Launch, flag: Flag) -> int | None:
    """The width of so many shared experts, each as wide as one that is routed to."""
    width = launch.settings.get("expert_ffn", launch.settings.get("ffn_hidden", 0))
    return (whole_number(launch, flag) or 0) * width or None


def _window(text: str) -> int:
    """Tokens of a window that is given by those before and after a token.

    >>> _window("(1023,0)"), _window("none")
    (1024, 0)
    """
    digits = text.strip("(").partition(",")[0]
    return int(digits) + 1 if is_count(digits) else 0


def _skips(launch: Launch, flag: Flag) -> int | None:
    """Layers from one with full attention to the next; a list has 1 for each layer with a window.

    >>> [_skips(Launch(program=""), Flag("", "", tuple(text.split()), (), ())) for text in ("4", "1 0 1 0", "1 0 0 1")]
    [4, 2, None]
    """
    text = "".join(flag.values)
    if len(flag.values) == 1:
        return whole_number(launch, flag)
    every = text.find("0") + 1
    period = "1" * (every - 1) + "0"
    if every and text == (period * len(text))[: len(text)]:
        return every
    launch.unpriced.append(" ".join((flag.written, *flag.values)))
    return None


def listed(text: str) -> list[int]:
    """A list of numbers that a Python expression of lists, sums and multiples makes, empty for none.

    >>> listed("([0]*1+[1]*3)*2"), listed("[0,1]"), listed("2")
    ([0, 1, 1, 1, 0, 1, 1, 1], [0, 1], [])
    """

    def value(node: ast.AST) -> Any:
        match node:
            case ast.List():
                return [each.value for each in node.elts if isinstance(each, ast.Constant) and type(each.value) is int]
            case ast.Constant() if type(node.value) is int:
                return node.value
            case ast.BinOp(op=ast.Add()):
                parts = (value(node.left), value(node.right))
                return [*parts[0], *parts[1]] if all(isinstance(part, list) for part in parts) else []
            case ast.BinOp(op=ast.Mult()):
                times = sorted((value(node.left), value(node.right)), key=lambda part: isinstance(part, int))
                fits = isinstance(times[0], list) and isinstance(times[1], int)
                return times[0] * times[1] if fits and len(times[0]) * times[1] <= MOST_LAYERS else []
        return []

    try:
        result = value(ast.parse(text, mode="eval").body) if len(text) <= LONGEST else []
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return result if isinstance(result, list) else []


def _layer_pattern(launch: Launch, flag: Flag) -> None:
    """Which layers are MoE, from a number or from a Python list such as ([0]*3+[1]*58)."""
    text = "".join(flag.values).replace(" ", "").strip("\"'")
    pattern = list(map(int, flag.values)) if {*flag.values} <= {"0", "1"} and flag.values[1:] else listed(text)
    if is_count(text) and not pattern:
        launch.say("every", int(text), flag.written)
        if int(text) and launch.settings.get("layers", 0) % int(text):  # the first of every so many, the last ones too
            launch.unpriced.append(f"{flag.written} {text} of {launch.settings['layers']} layers")
        if int(text) > 1 and launch.settings.get("first_dense"):
            launch.unpriced.append(f"{flag.written} {text} behind {launch.written['first_dense']}")
        if "first_dense" not in launch.settings:
            launch.say("first_dense", 0, flag.written)
        return
    if 1 not in pattern:
        launch.unsearched.append(f"{flag.written} {text}: every layer is taken to be MoE")
        return
    first, rest = pattern.index(1), pattern[pattern.index(1) :]
    every = rest.index(1, 1) if 1 in rest[1:] else 1
    if sum(pattern) != len(range(first, len(pattern), every)):
        launch.unpriced.append(f"{flag.written} {text}: of layers that do not alternate evenly")
    # A stride counts from its first dense layer.
    launch.say("first_dense", max(0, first - every + 1), flag.written)
    launch.say("every", every, flag.written)
