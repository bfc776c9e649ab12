"""Settings of the software that could be switched for a plan, and its best gradient bucket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from optimizer.frameworks.launch_as_read import LaunchAsRead
from optimizer.improve.state import NOTICEABLE, State, knobs_of, state_of
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
    {"compiled": True},
    {"liger": "on"},
    {"syncs_last": False},
    {"hosted_weights": False, "offload": 0.0},
)


def capturable(model: Model, plans: Plans) -> BoolArray:
    """Which plans a CUDA graph of whole layers can hold: dense layers that neither recompute all nor use the host.

    Source: NVIDIA/Megatron-LM, megatron/core/transformer/transformer_config.py, checks of cuda_graph_impl.
    """
    whole = plans.recompute == RECOMPUTE.index("full")
    return np.asarray(~whole & (plans.activation_offload == 0) & (model.experts is None))


def useless(question: LaunchAsRead, plan: Plan) -> set[str]:
    """Settings that do nothing for a plan, or that it cannot have."""
    once = {"syncs_last"} if plan.num_microbatches == 1 or plan.dp == 1 or plan.zero_stage < 2 else set()
    alone = {"reduce_overlap", "gather_overlap"} if plan.dp * plan.cp == 1 else set()
    whole = {"gather_overlap"} if plan.zero_stage == 0 else set()
    return once | alone | whole | (set() if capturable(question.job.model, Plans.of([plan]))[0] else {"cuda_graphs"})


def switches(question: LaunchAsRead, plan: Plan) -> Iterator[Mapping[str, Any]]:
    """The settings that could be switched for a plan: each a set of those that go together.

    Args:
        question: the launch; what it calls fixed cannot be switched.
        plan: the plan, to which a setting may mean nothing.
    """
    idle = {*question.launch.fixed, *useless(question, plan)}
    now = {name: value for name, value in question.settings.items() if name not in idle}
    seen: list[Mapping[str, Any]] = [{}]
    for changes in SWITCHES:
        changed = {name: value for name, value in changes.items() if name in now and now[name] != value}
        if changed not in seen and not (
            list(changed) == ["gather_overlap"] and not question.settings["reduce_overlap"]
        ):
            yield changed
        seen.append(changed)


BUCKETS = (40e6, 80e6, 160e6, 320e6, 640e6, 1e9)  # B, of gradients


def bucketed(question: LaunchAsRead, state: State) -> State:
    """The state with the gradient bucket that makes it fastest, the one that it has where none is noticeably better."""
    alone = state.plan.dp * state.plan.cp == 1 or not state.settings.get("reduce_overlap")
    if alone or "bucket" in question.launch.fixed:
        return state
    others = [
        state_of(question, state.plan, state.settings, replace(knobs_of(question, state.settings), bucket=size))
        for size in BUCKETS
    ]
    able = (other for other in others if other.fits or not state.fits)
    best = min(able, key=lambda other: other.estimate.step_time, default=state)
    return best if best.estimate.step_time < state.estimate.step_time * (1 - NOTICEABLE) else state
