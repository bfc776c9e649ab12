"""Settings of the software that could be told otherwise for a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from optimizer.frameworks.launch_as_read import LaunchAsRead
from optimizer.job.model import Model
from optimizer.job.plan import Plan, Plans
from optimizer.job.recomputation import RECOMPUTE
from optimizer.objectives.arrays import BoolArray

# Settings that are switched together: the second does nothing, or cannot be, without the first.
SWITCHES: tuple[Mapping[str, Any], ...] = (
    {"reduce_overlap": True, "gather_overlap": True},
    {"gather_overlap": True},
    {"offload": 0.0},
    {"cuda_graphs": True},
)


def capturable(model: Model, plans: Plans) -> BoolArray:
    """Which plans a CUDA graph of whole layers can hold: dense layers that neither recompute all nor use the host.

    Source: NVIDIA/Megatron-LM, megatron/core/transformer/transformer_config.py, checks of cuda_graph_impl.
    """
    whole = plans.recompute == RECOMPUTE.index("full")
    return np.asarray(~whole & (plans.activation_offload == 0) & (model.experts is None))


def captured(question: LaunchAsRead, plan: Plan) -> bool:
    """Whether a CUDA graph can hold the layers of this plan."""
    return bool(capturable(question.job.model, Plans.of([plan]))[0])


def switches(question: LaunchAsRead, plan: Plan) -> Iterator[Mapping[str, Any]]:
    """What the software could be told otherwise for a plan: each a set of settings that go together."""
    said = {name: value for name, value in question.settings.items() if name not in question.launch.fixed}
    seen: list[Mapping[str, Any]] = []
    for changes in SWITCHES:
        changed = {name: value for name, value in changes.items() if name in said and said[name] != value}
        if plan.zero_stage == 0:
            changed.pop("gather_overlap", None)
        if not captured(question, plan):
            changed.pop("cuda_graphs", None)
        if changed in seen:
            continue
        seen.append(changed)
        if not changed or ("gather_overlap" in changed and len(changed) == 1 and not said["reduce_overlap"]):
            continue
        if {"reduce_overlap", "gather_overlap"} & changed.keys() and plan.dp * plan.cp == 1:
            continue
        yield changed


def useful(said: Mapping[str, Any], before: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """Settings without switches that do nothing for a plan: these stay as they were."""
    useless = set()
    if plan.dp * plan.cp == 1:
        useless |= {"reduce_overlap", "gather_overlap"}
    if plan.zero_stage == 0:
        useless.add("gather_overlap")
    kept = {name: before[name] for name in useless if name in before}
    if not said.get("offload") and "offload" not in before:
        return {**{name: value for name, value in said.items() if name != "offload"}, **kept}
    return {**said, **kept}
