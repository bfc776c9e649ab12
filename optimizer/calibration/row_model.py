"""The model that a measured row names or describes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from optimizer.calibration.row_numbers import integer, number
from optimizer.errors import InputError, UnknownName
from optimizer.model import Model
from optimizer.presets import load_model, model_spellings

Row = Mapping[str, str]
GATED = ("llama", "qwen", "mistral", "mixtral", "deepseek", "gemma", "gptoss", "internlm", "glm", "phi")
# what the columns of a row cannot describe: experts, state-space layers
UNDESCRIBED = re.compile(
    r"moe|mixtral|deepseek|dbrx|gptoss|grok|kimi|llama4|a\d+b|\dx\d+b|mamba|jamba|nemotronh|qwen3next"
)


def read_model(row: Row, assumed: list[str]) -> Model:
    """The preset that a row's model names, with the row's own dimensions where it gives them.

    A row that gives other layers and another width means another model ("GPT2-2B" is no GPT of 22 billion).
    """
    dimensions = {key: int(number(row, column)) for key, column in _DIMENSIONS.items() if row.get(column)}
    missing = [_DIMENSIONS[key] for key in ("layers", "hidden", "heads") if key not in dimensions]
    preset = _preset_model(row.get("model", ""))
    if preset is not None:
        changed = {key: value for key, value in dimensions.items() if value != getattr(preset, key)}
        if missing or not {"layers", "hidden"} <= changed.keys():
            return _resized(preset, changed, row)
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
    return replace(preset, **resized) if resized else preset


_DIMENSIONS = {
    "layers": "layers",
    "hidden": "hidden",
    "ffn_hidden": "ffn_hidden",
    "heads": "heads",
    "kv_heads": "kv_heads",
    "vocab": "vocab",
}


def _described_model(row: Row, dims: dict[str, int], assumed: list[str]) -> Model:
    if UNDESCRIBED.search(_plain(row.get("model", ""))):
        raise InputError(
            f"model {row['model']!r} is no preset and has layers that the columns of a row cannot describe"
        )
    hidden, heads = dims["hidden"], dims["heads"]
    gated = any(word in _plain(row.get("model", "")) for word in GATED)
    if "vocab" not in dims:
        assumed.append("vocabulary 51200")
    learned = "position" in row.get("notes", "") or not gated
    return Model(
        name=row.get("model") or "unnamed",
        layers=dims["layers"],
        hidden=hidden,
        heads=heads,
        kv_heads=dims.get("kv_heads", heads),
        head_dim=hidden // heads,
        ffn_hidden=dims.get("ffn_hidden", 4 * hidden),
        vocab=dims.get("vocab", 51200),
        max_seq_len=integer(row, "seq_len", _context(row)),
        gated_mlp=gated,
        norm="rms" if gated else "layer",
        position="learned" if learned and not gated else "rope",
        attention_bias=not gated,
        attention_out_bias=not gated,
        mlp_bias=not gated,
        tied_embeddings=not gated or "tied embeddings true" in row.get("notes", "").lower(),
    )


def _context(row: Row) -> int:
    """Tokens of a sample where the row names none: 2,048, but 1,024 for models like GPT-2 (Radford et al. 2019)."""
    return 1024 if "gpt2" in _plain(row.get("model", "")) else 2048


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
        return load_model(name)
    except UnknownName:
        pass
    except InputError:
        raise InputError(f"model {name!r} cannot be read") from None
    known = _model_index().get(_plain(re.sub(r"\(.*?\)", "", name)))
    return load_model(known) if known else None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())
