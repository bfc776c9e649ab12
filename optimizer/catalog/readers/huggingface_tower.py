"""The vision tower in a multimodal model's config.json, as a Tower; the sizes that files leave out are their classes'.

Source: huggingface/transformers v5.17.0, models/qwen2_vl, qwen2_5_vl, qwen3_vl, gemma3 (siglip), llama4 and internvl,
modeling_*.py and configuration_*.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.job.model import Tower

VISION, TEXT = "vision_config", "text_config"
QWEN = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")
SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "layers": ("depth", "num_hidden_layers"),
    "hidden": ("embed_dim", "hidden_size"),  # Qwen2-VL calls the language model's width hidden_size
    "heads": ("num_heads", "num_attention_heads"),
}
COLOURS, LARGEST = 3, 10_000_000


def tower_of(config: Mapping[str, Any]) -> Tower | None:
    """The tower of a whole config.json; None where it has none whose class is known, or lacks a size.

    >>> sizes = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "out_hidden_size": 3584}
    >>> round(tower_of({"model_type": "qwen2_5_vl", "hidden_size": 3584, "vision_config": sizes}).params / 1e6)
    677
    """
    kind, vision = config.get("model_type"), config.get(VISION)
    if kind not in (*QWEN, "gemma3", "llama4", "internvl") or not isinstance(vision, dict):
        return None
    numbers = {key: value for key, value in vision.items() if is_whole(value)}
    sizes = {name: next((numbers[key] for key in keys if key in numbers), 0) for name, keys in SPELLINGS.items()}
    ratio = vision.get("mlp_ratio")
    wider = sizes["hidden"] * ratio if isinstance(ratio, int | float) else 0
    ffn = numbers.get("intermediate_size") or (round(wider) if 0 < wider <= LARGEST else 0)
    part = config.get(TEXT)
    width = (part if isinstance(part, dict) else config).get("hidden_size")
    if not all((*sizes.values(), ffn)) or not is_whole(width):
        return None
    hidden, gated = sizes["hidden"], kind == "qwen2_5_vl"
    more = _qwen(kind, hidden, numbers, vision) if kind in QWEN else _fixed(kind, hidden, ffn, first(width), config)
    return Tower(**sizes, ffn_hidden=ffn, gated_mlp=gated, **more)


def is_whole(value: object) -> bool:
    """Whether a value is a whole number above 0 that a size may be."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST


def _qwen(kind: str, hidden: int, numbers: Mapping[str, int], vision: Mapping[str, Any]) -> dict[str, int]:
    """Patches of two frames, of which squares are merged; Qwen3-VL's layers are tapped, each by a merger of its own."""
    newer = kind.startswith("qwen3")
    side, frames = numbers.get("patch_size", 16 if newer else 14), numbers.get("temporal_patch_size", 2)
    squares = numbers.get("spatial_merge_size", 2) ** 2
    out = numbers.get("out_hidden_size" if kind != "qwen2_vl" else "hidden_size", hidden)
    merger = (squares * hidden) * (squares * hidden + out)
    taps = listed(vision, "deepstack_visual_indexes", 3) if newer else 0
    positions = numbers.get("num_position_embeddings", 2304) if newer else 0
    return {
        "patches": squares,
        "image_tokens": positions // squares,
        "whole_layers": listed(vision, "fullatt_block_indexes", 4) if kind == "qwen2_5_vl" else 0,
        "outside": (COLOURS * frames * side**2 + positions) * hidden + (1 + taps) * merger,
    }


def _fixed(kind: str, hidden: int, ffn: int, width: int, config: Mapping[str, Any]) -> dict[str, int]:
    """Images of one size, whose patches are pooled or put together."""
    vision = config[VISION]
    image, side = (first(vision.get(key, usual)) for key, usual in (("image_size", 448), ("patch_size", 14)))
    patches = (image // max(side, 1)) ** 2
    pooled = kind == "gemma3"
    tokens = first(config.get("mm_tokens_per_image", 256)) if pooled else patches // 4
    inner, outer, last = (
        first(vision.get(key, usual))
        for key, usual in (("projector_input_dim", 4096), ("projector_output_dim", 4096), ("vision_output_dim", 7680))
    )
    projectors = {
        "gemma3": hidden * width,
        "llama4": ffn * inner + outer**2 + last * width,
        "internvl": (4 * hidden + width) * width,
    }
    return {
        "patches": max(patches // max(tokens, 1), 1),
        "image_tokens": tokens,
        "outside": (COLOURS * side**2 + patches) * hidden + projectors[kind],
    }


def listed(vision: Mapping[str, Any], key: str, usual: int) -> int:
    """How many layers a key lists."""
    layers = vision.get(key)
    return len(layers) if isinstance(layers, list) else usual


def first(value: Any) -> int:
    """A size, or the first of two.

    >>> first([448, 448]), first(14)
    (448, 14)
    """
    one = value[0] if isinstance(value, list) and value else value
    return int(one) if is_whole(one) else 1
