"""Which layers and parts a fine-tuning program freezes, as `--train` names them.

Source: hiyouga/LLaMA-Factory v0.9.5, src/llamafactory/model/adapter.py, _setup_freeze_tuning; axolotl-ai-cloud/axolotl
v0.21.0, src/axolotl/utils/freeze.py, freeze_layers_except; modelscope/ms-swift v4.6.0, swift/arguments/tuner_args.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from optimizer.catalog import model_names, preset_model
from optimizer.job.method import FROZEN, VISION
from optimizer.job.model import Model

FREEZE = "freeze"  # of LLaMA-Factory's finetuning_type
COUNT, MODULES, EXTRA = (f"freeze_{name}" for name in ("trainable_layers", "trainable_modules", "extra_modules"))
USUAL_COUNT, PRO, UNFROZEN = 2, "use_llama_pro", "unfrozen_parameters"
LLAMA_FACTORY, AXOLOTL = ("finetuning_type", COUNT, MODULES, EXTRA), (UNFROZEN,)
# What freezes a vision tower and what joins it to the language model, unless it is false, by the key of the method.
TOWER: Mapping[str, tuple[str, str]] = {
    "finetuning_type": ("freeze_vision_tower", "freeze_multi_modal_projector"),
    **dict.fromkeys(("tuner_type", "train_type"), ("freeze_vit", "freeze_aligner")),
}
# Parts by what Hugging Face calls their modules.
OUTSIDE: Mapping[str, str] = {"embedding": "embed_tokens", "head": "lm_head"}
INSIDE: Mapping[str, str] = {"attention": "self_attn", "mlp": "mlp"}
WEIGHTS = (  # of a layer
    *(f"self_attn.{name}_proj.weight" for name in "qkvo"),
    *(f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
    *("input_layernorm.weight", "post_attention_layernorm.weight"),
)
PLAIN = re.compile(r"(?:[\w.^$]|\\\.|\[[\w-]+\][*+]?){1,100}")  # patterns that no text makes slow


def frozen_by_llama_factory(values: Mapping[str, Any]) -> str:
    """What `--train` says of `finetuning_type: freeze`, "" for what it cannot.

    >>> frozen_by_llama_factory({"freeze_trainable_layers": 8, "freeze_extra_modules": "lm_head"})
    'frozen:embedding,layers.0--9'
    >>> frozen_by_llama_factory({"freeze_trainable_layers": -4, "freeze_trainable_modules": "self_attn"})
    'frozen:embedding,head,mlp,layers.4--1'
    """
    count, modules = values.get(COUNT, USUAL_COUNT), _words(values.get(MODULES, "all"))
    if values.get(PRO) or not isinstance(count, int) or not count or not {*modules} <= {"all", *INSIDE.values()}:
        return ""
    parts = [part for part, name in OUTSIDE.items() if name not in _words(values.get(EXTRA))]
    if "all" not in modules:
        parts += [part for part, name in INSIDE.items() if name not in modules]
    return f"{FROZEN}:{','.join([*parts, f'layers.0-{-count - 1}' if count > 0 else f'layers.{-count}--1'])}"


def frozen_tower(values: Mapping[str, Any], method: str, name: str) -> str:
    """What `--train` says of a model that has a vision tower and is trained whole by this key, "" for all of it.

    >>> whole = {"finetuning_type": "full"}
    >>> frozen_tower(whole, "finetuning_type", "qwen3-vl-4b"), frozen_tower(whole, "finetuning_type", "qwen3-4b")
    ('frozen:vision', '')
    >>> frozen_tower({"freeze_vision_tower": False}, "finetuning_type", "qwen3-vl-4b")
    ''
    """
    if method not in TOWER or name not in model_names() or preset_model(name).tower is None:
        return ""
    return "" if values.get(TOWER[method][0]) is False else f"{FROZEN}:{VISION}"


def adapted_tower(values: Mapping[str, Any], method: str, name: str) -> str:
    """The key that has adapters on the vision tower of a model too, "" for none.

    >>> adapted_tower({"freeze_vit": False}, "train_type", "qwen3-vl-4b")
    'freeze_vit'
    """
    key = TOWER.get(method, ("",))[0]
    return key if values.get(key) is False and name in model_names() and preset_model(name).tower is not None else ""


def towerless(method: str, name: str) -> tuple[str, ...]:
    """Keys that freeze what a known model does not have.

    >>> towerless("finetuning_type", "qwen3-4b"), towerless("finetuning_type", "qwen3-vl-4b")
    (('freeze_vision_tower', 'freeze_multi_modal_projector'), ())
    """
    known = name in model_names() and preset_model(name).tower is None
    return TOWER.get(method, ()) if known else ()


def frozen_by_axolotl(values: Mapping[str, Any], name: str) -> str:
    """What `--train` says of `unfrozen_parameters` in a dense model, "" for what it cannot.

    >>> patterns = ["^lm_head.weight$", "model.layers.2[0-9]+", "^model.layers.3[01]+.self_attn.[a-z_]+.weight$"]
    >>> frozen_by_axolotl({"unfrozen_parameters": patterns[:2]}, "llama3-8b")
    'frozen:embedding,layers.0-19,layers.30-31'
    >>> frozen_by_axolotl({"unfrozen_parameters": patterns}, "llama3-8b")
    ''
    """
    patterns = values.get(UNFROZEN)
    if not isinstance(patterns, list) or not name or not all(map(PLAIN.fullmatch, map(str, patterns))):
        return ""
    model = preset_model(name)
    try:
        own = [re.compile(re.sub(r"\.(?!\+)", r"\.", str(pattern))) for pattern in patterns]
    except re.error:
        return ""
    return "" if model.experts or model.tied_embeddings else _frozen(own, model)


def _frozen(patterns: Sequence[re.Pattern[str]], model: Model) -> str:
    def trained(*weights: str) -> set[bool]:
        return {any(pattern.match(weight) for pattern in patterns) for weight in weights}

    outside = {"embedding": "model.embed_tokens.weight", "head": "lm_head.weight"}
    frozen = [part for part, weight in outside.items() if trained(weight) == {False}]
    layers = [trained(*(f"model.layers.{layer}.{weight}" for weight in WEIGHTS)) for layer in range(model.layers)]
    if any(len(words) > 1 for words in layers):
        return ""
    for has, run in groupby(range(model.layers), lambda layer: layers[layer] == {True}):
        these = list(run)
        frozen += [] if has else [f"layers.{these[0]}-{these[-1]}"]
    return f"{FROZEN}:{','.join(frozen)}"


def _words(value: Any) -> list[str]:
    words = value if isinstance(value, list) else str(value or "").split(",")
    return [str(word).strip() for word in words]
