"""Rows of a cumulative ablation: each one's software is what all steps up to its own have left of it.

Source: NVIDIA/Megatron-LM @3c1b98efdc^, docs/discussions/deepseek-v3-gb200-optimization, the table in section 3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from optimizer.job.stack import GRAPHED, UNFUSED

_STEP = re.compile(r"cumulative step of one ablation: ([^;(]+)", re.IGNORECASE)
# What each step of the guide changes of a stack's features, in its order; its routing is forced to be even throughout.
_BASELINE: Mapping[str, Any] = {"unfused": UNFUSED, "graphed": (), "bound_host": False, "balanced_experts": True}
_STEPS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("baseline", {}),
    ("fused scale allocation", {"unfused": ("router", "swizzle")}),
    ("router fusion", {"unfused": ("swizzle",)}),
    ("deepep", {}),
    ("no up_proj recompute", {}),
    ("cuda graphs", {"graphed": GRAPHED[:2]}),
    ("tuned deepep", {}),
    ("cpu binding", {"bound_host": True}),
    ("pdl + fused swizzle", {"unfused": ()}),
    ("cuda graphs capture shared expert", {"graphed": GRAPHED}),
    ("hybridep", {}),
    ("cpu-side optimisation", {}),
    ("quantisation fused into norm", {}),
)


def ablated(notes: str) -> dict[str, Any]:
    """Features of the software of a row that names its step; none of a row that names no step known here.

    >>> found = ablated("cumulative step of one ablation: CUDA graphs; layout Et|(tt|)*30L")
    >>> found["unfused"], found["graphed"], found["bound_host"]
    (('swizzle',), ('attention', 'router'), False)
    """
    match = _STEP.search(notes)
    said = match[1].strip().lower() if match else ""
    # The longest name that begins it: "cuda graphs" begins another step, too.
    known = max((name for name, _ in _STEPS if said.startswith(name)), key=len, default="")
    if not known:
        return {}
    features = dict(_BASELINE)
    for name, changes in _STEPS:
        features |= changes
        if name == known:
            break
    return features
