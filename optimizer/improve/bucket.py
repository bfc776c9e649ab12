"""The gradient bucket that makes a plan fastest."""

from __future__ import annotations

from dataclasses import replace

from optimizer.frameworks.launch_as_read import LaunchAsRead
from optimizer.improve.edit import NOTICEABLE
from optimizer.improve.state import State, knobs_of, state_of

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
