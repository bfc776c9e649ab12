"""What the words of a measured row say of its recipe: kernels, dispatcher, graphs, recomputed layers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from optimizer.plan import RECOMPUTE
from optimizer.stack import Stack

_REBUILT = re.compile(r"recompute_num_layers=(\d+)")


def under_recipe(row: Mapping[str, str], stack: Stack) -> Stack:
    """The stack with the features that the row names.

    >>> row = {"notes": "experts force-balanced; moe_flex_dispatcher_backend=hybridep"}
    >>> under_recipe(row, Stack(name="mine")).features.dispatcher
    'deduplicated'
    """
    changes = {**_kernels(row, stack), **_notes(row.get("notes", "").lower())}
    if _rematerialises(row):
        changes["selective"] = "qkv"
    return replace(stack, features=replace(stack.features, **changes)) if changes else stack


def recomputation(row: Mapping[str, str], assumed: list[str]) -> str:
    """The mode of recomputation that a row names, or that its framework always has."""
    named = row.get("recompute", "")
    if not named and _rematerialises(row):
        assumed.append("recomputation of all but the projections into attention, as in MaxText's GPU scripts")
        return "selective"
    return named if named in RECOMPUTE else "none"


def rebuilt_layers(row: Mapping[str, str], pp: int) -> tuple[int, ...]:
    """Layers that each of pp stages recomputes, () where the row gives no number.

    >>> rebuilt_layers({"recompute": "full", "notes": "recompute_num_layers=5; full recompute of 5 layers only"}, 2)
    (5, 5)
    """
    match = _REBUILT.search(row.get("notes", ""))
    return (int(match[1]),) * pp if match and row.get("recompute") == "full" else ()


def _rematerialises(row: Mapping[str, str]) -> bool:
    """MaxText always recomputes by some policy: without one its published runs would need several times the memory."""
    return "maxtext" in row.get("framework", "").lower()


def _kernels(row: Mapping[str, str], stack: Stack) -> dict[str, Any]:
    kernel = row.get("attention_kernel", "").lower()
    changes: dict[str, Any] = {}
    if "flash1" in kernel:
        changes["attention"] = "flash1"
    elif "flash" in kernel:
        changes["attention"] = stack.features.attention if stack.features.attention.startswith("flash") else "flash"
    elif kernel:
        changes["attention"] = "fused_softmax" if "fused" in kernel else "unfused"
    if kernel and not stack.features.fused_norm:
        changes["fused_norm"] = "fused_rmsnorm" in kernel
    return changes


def _notes(notes: str) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if "hybridep" in notes or "deepep" in notes:
        changes["dispatcher"] = "deduplicated"
    if "cuda_graph_impl=" in notes:
        changes["cuda_graphs"] = "cuda_graph_impl=none" not in notes
    if "force-balanced" in notes:
        changes["balanced_experts"] = True
    return changes
