"""All changes together: to the best plan, without those that gain nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from optimizer.constraints.rules.every import structural
from optimizer.frameworks.launch_as_read import LaunchAsRead, settings_of, with_stack
from optimizer.frameworks.megatron.layout import is_even
from optimizer.improve.bucket import bucketed
from optimizer.improve.edit import SOFTWARE, Edit, edit_to
from optimizer.improve.state import State, knobs_of, state_of
from optimizer.improve.switches import SWITCHES, useless
from optimizer.job.job import EVEN, LAYOUT
from optimizer.job.plan import Plan, Plans
from optimizer.search.lattice.oracle import Tuning
from optimizer.search.plan.best import best_plan

SPARED = 1e-4  # share of the step below which a change is not worth making


def best_edit(question: LaunchAsRead, current: State) -> Edit | None:
    """The best plan of all, with everything switched on that helps."""
    fixed = question.launch.fixed
    on = {name: value for changes in SWITCHES for name, value in changes.items() if name not in fixed}
    said = {name: on.get(name, value) for name, value in question.settings.items()}
    if not question.settings.get("cuda_graphs") and question.job.model.experts:
        said.pop("cuda_graphs", None)
        on.pop("cuda_graphs", None)
    job = with_stack(question, said, 1)
    if question.settings.get("cuda_graphs"):
        job = job.with_limits(choices={**job.limits.choices, "recompute": ("none", "selective")})
    if "layers_per_stage" not in question.framework.settable:
        job = job.with_limits(fixed={**job.limits.fixed, LAYOUT: EVEN})
    best = best_plan(job, Tuning(fixed=knobs_of(question, said)))
    if best is None and "offload" in question.framework.settable:
        best = best_plan(job, Tuning())
    if best is None:
        return None
    plan = best.plan
    if plan.layers_per_stage and is_even(plan, job.model.layers):
        plan = replace(plan, layers_per_stage=())
    if question.framework.sequence_parallel:
        plan = replace(plan, sequence_parallel=plan.tp > 1)
    own, idle = settings_of(question, plan), useless(question, plan)
    turned = {name: value for name, value in on.items() if name in own and name not in idle}
    after = _spared(question, state_of(question, plan, {**turned, "offload": best.knobs.offload}))
    return edit_to(current, bucketed(question, after) if "bucket" in question.framework.settable else after)


def _spared(question: LaunchAsRead, after: State) -> State:
    """The best plan without the changes that gain nothing: each taken back where the step stays as fast and fits."""
    before = question.plan
    for name in ("zero_stage", "sequence_parallel", "shard", "etp"):
        fixed = question.framework.sequence_parallel or after.plan.tp == 1
        if name == "sequence_parallel" and fixed:
            continue
        if getattr(after.plan, name) != getattr(before, name):
            plan = replace(after.plan, **{name: getattr(before, name)})
            after = _no_worse(after, _restated(question, after, plan, after.settings))
    for name in SOFTWARE:
        if name in after.usual and after.settings.get(name) != after.usual[name] and name != "global_batch":
            settings = {**after.settings, name: after.usual[name]}
            after = _no_worse(after, _restated(question, after, after.plan, settings))
    return after


def _restated(question: LaunchAsRead, state: State, plan: Plan, settings: Mapping[str, Any]) -> State:
    """The state with another plan and other settings where every rule admits them, else as it was."""
    job = with_stack(question, settings, plan.zero_stage)
    if any(not rule.check(job, Plans.of([plan])).all() for rule in structural(job)):
        return state
    return state_of(question, plan, settings, replace(state.knobs, offload=float(settings.get("offload", 0.0))))


def _no_worse(state: State, other: State) -> State:
    """The other state where it fits and is as fast."""
    return other if other.fits and other.estimate.step_time <= state.estimate.step_time * (1 + SPARED) else state
