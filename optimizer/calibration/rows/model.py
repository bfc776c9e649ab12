"""The model that a measured row names or describes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from optimizer.base.errors import InputError, UnknownName
from optimizer.calibration.rows.numbers import integer, number
from optimizer.catalog import model_spellings, preset_model
from optimizer.catalog.readers.model_file import impossible
from optimizer.job.model import Experts, Model

Row = Mapping[str, str]
GATED = (
    "llama",
    "qwen",
    "mistral",
    "mixtral",
    "deepseek",
    "gemma",
    "gptoss",
    "internlm",
    "glm",
    "phi3",
    "phi4",
    "baichuan",
)
# what the columns of a row cannot describe: state-space and linear attention, latent attention; and MoE layers, unless
# the row has the columns that describe them
OTHER_LAYERS = re.compile(r"mamba|jamba|nemotronh|nemotronv3|qwen3next|qwen3.5|deepseek|kimi")
MOE_NAMES = re.compile(r"moe|mixtral|dbrx|gptoss|grok|llama4|ba\d+b|\dx\d+b")
DIMENSIONS = ("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "vocab")
EXPERTS = {"count": "experts", "top_k": "topk", "ffn_hidden": "moe_ffn_hidden"}
# "Llama 3 70B, 4-layer proxy", "llama3-405b, layers 4": so many layers of a model
PROXY = re.compile(r"[\s,;:(-]*(?:(\d+)[\s-]*layers?|layers?\s*[=:]?\s*(\d+))(?:[\s-]*proxy)?\)?\s*$", re.IGNORECASE)


def read_model(row: Row, assumed: list[str]) -> Model:
    """The preset that a row's model names, with the row's own dimensions where it gives them.

    A row that gives other layers and another width means another model ("GPT2-2B" is no GPT of 22 billion); one that
    names fewer layers of a model, in its name or in its column, means a proxy, the preset with fewer layers.
    """
    named, depth = without_depth(row.get("model", ""))
    if depth and not row.get("layers"):
        row = {**row, "layers": str(depth)}
    dimensions = {name: int(number(row, name)) for name in DIMENSIONS if row.get(name)}
    missing = [name for name in ("layers", "hidden", "heads") if name not in dimensions]
    preset = _preset_model(named)
    if preset is not None:
        changed = {key: value for key, value in dimensions.items() if value != getattr(preset, key)}
        if missing or not {"layers", "hidden"} <= changed.keys():
            if "layers" in changed:
                assumed.append(f"{preset.name} with {changed['layers']} of its {preset.layers} layers")
            return possible(_resized(preset, changed, row))
    if missing:
        raise InputError(f"model {row.get('model')!r} is no preset and the row has no {', '.join(missing)}")
    return _described_model(row, dimensions, assumed)


def _resized(preset: Model, changed: dict[str, int], row: Row) -> Model:
    """The preset with these dimensions; those that follow from them keep their proportion."""
    resized: dict[str, Any] = dict(changed)
    if "heads" in changed or "hidden" in changed:
        resized["head_dim"] = changed.get("hidden", preset.hidden) // changed.get("heads", preset.heads)
    if "hidden" in changed:
        resized.setdefault("ffn_hidden", preset.ffn_hidden * changed["hidden"] // preset.hidden)
    if "heads" in changed and not row.get("kv_heads") and preset.kv_heads == preset.heads:
        resized["kv_heads"] = changed["heads"]
    if preset.position == "learned" and row.get("seq_len"):
        resized["max_seq_len"] = integer(row, "seq_len")
    experts = _expert_columns(row)
    if preset.experts and any(getattr(preset.experts, key) != value for key, value in experts.items()):
        resized["experts"] = replace(preset.experts, **experts)
    return replace(preset, **resized) if resized else preset


def possible(model: Model) -> Model:
    """The model itself; raises InputError where no model can be like that, as a row's wrong cells may have it."""
    if problems := impossible(model):
        raise InputError(f"model {model.name!r} as the row changes it: {'; '.join(problems)}")
    return model


def without_depth(name: str) -> tuple[str, int]:
    """A model's name without the number of layers that it ends with, and that number, 0 for none.

    >>> without_depth("Llama 3 70B, 4-layer proxy"), without_depth("llama3-405b, layers 4"), without_depth("gpt3")
    (('Llama 3 70B', 4), ('llama3-405b', 4), ('gpt3', 0))
    """
    match = PROXY.search(name)
    return (name[: match.start()], int(match[1] or match[2])) if match else (name, 0)


def _expert_columns(row: Row) -> dict[str, Any]:
    """Fields of Experts that the row's columns give."""
    return {key: integer(row, column) for key, column in EXPERTS.items() if row.get(column)}


def _experts(row: Row) -> Experts | None:
    """The MoE layers that a row describes, None where it describes none."""
    columns = _expert_columns(row)
    if len(columns) < len(EXPERTS):
        return None
    shared = int(number(row, "shared_experts")) if row.get("shared_experts") else 0
    return Experts(**columns, shared_ffn_hidden=shared * columns["ffn_hidden"])


def _described_model(row: Row, dims: dict[str, int], assumed: list[str]) -> Model:
    experts, plain = _experts(row), _plain(row.get("model", ""))
    if OTHER_LAYERS.search(plain) or (MOE_NAMES.search(plain) and not experts):
        raise InputError(
            f"model {row['model']!r} is no preset and has layers that the columns of a row cannot describe"
        )
    hidden, heads = dims["hidden"], dims["heads"]
    gated = any(word in plain for word in GATED)
    if "vocab" not in dims:
        assumed.append("vocabulary 51200")
    described = Model(
        name=row.get("model") or "unnamed",
        layers=dims["layers"],
        hidden=hidden,
        heads=heads,
        kv_heads=dims.get("kv_heads", heads),
        head_dim=hidden // heads,
        ffn_hidden=dims.get("ffn_hidden", 4 * hidden),
        vocab=dims.get("vocab", 51200),
        max_seq_len=integer(row, "seq_len", 1024 if "gpt2" in plain else 2048),  # GPT-2: Radford et al. 2019
        gated_mlp=gated,
        norm="rms" if gated else "layer",
        position="rope" if gated else "learned",
        attention_bias=not gated,
        attention_out_bias=not gated,
        mlp_bias=not gated,
        tied_embeddings=not gated or row.get("tied_embeddings") == "yes",
        experts=experts,
    )
    return possible(described)


@cache
def _model_index() -> Mapping[str, str]:
    """Presets by plain spelling, with its decimal points; without them where only one preset is meant.

    "llama31405b" is llama3.1-405b, but "gpt1.3b" must never become a model of 13 billion.
    """
    spellings = model_spellings()
    exact = {_plain(spelling.rpartition("/")[2]): name for spelling, name in spellings.items()}
    exact |= {_plain(spelling): name for spelling, name in spellings.items()}
    pointless: dict[str, set[str]] = {}
    for spelling, name in exact.items():
        pointless.setdefault(spelling.replace(".", ""), set()).add(name)
    return {spelling: min(names) for spelling, names in pointless.items() if len(names) == 1} | exact


@cache
def _preset_model(name: str) -> Model | None:
    if not name:
        return None
    try:
        return preset_model(name)
    except UnknownName:
        pass
    except InputError:
        raise InputError(f"model {name!r} cannot be read") from None
    inside = re.search(r"\((.*?)\)", name)
    spellings = [re.sub(r"\(.*?\)", "", name), *([inside[1]] if inside else [])]
    name_of_preset = next((preset for text in spellings if (preset := _model_index().get(_plain(text)))), None)
    return preset_model(name_of_preset) if name_of_preset else None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())
