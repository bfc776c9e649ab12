"""The way from the plan that runs to the best one, as edits: one change, two, all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import ceil
from typing import Any

import numpy as np

from optimizer.constraints.rules.every import structural
from optimizer.frameworks.launch_as_read import LaunchAsRead, settings_of, with_stack
from optimizer.frameworks.megatron.layout import is_even
from optimizer.improve.neighbours import neighbours
from optimizer.improve.state import NOTICEABLE, SOFTWARE, Edit, State, current_state, edit_to, knobs_of, moved, state_of
from optimizer.improve.switches import SWITCHES, bucketed, capturable, switches, useless
from optimizer.job.job import EVEN, LAYERS, LAYOUT
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.arrays import BoolArray, FloatArray
from optimizer.objectives.step.price import price
from optimizer.objectives.step.safe_memory import USUAL_RISK, chances
from optimizer.search.lattice.oracle import Tuning
from optimizer.search.plan.best import best_plan

BATCHES = (0.5, 2.0, 4.0)


@dataclass(frozen=True, kw_only=True)
class Improvement:
    """What a launch is worth and the way up: single edits, best first, the best pair, and all changes to the best plan.

    The best is what is expected to gain most; edits that are not sure to fit come after all others. `pair` and `best`
    are None where nothing is gained by them over the best that needs fewer changes. `beyond` is a better one
    than `best` that the files cannot say.
    """

    question: LaunchAsRead
    current: State
    edits: tuple[Edit, ...]
    pair: Edit | None
    best: Edit | None
    beyond: Edit | None = None

    @property
    def every(self) -> tuple[Edit, ...]:
        """All edits that the files can say."""
        return (*self.edits, *(edit for edit in (self.pair, self.best) if edit))


def improve(question: LaunchAsRead, *, flex_batch: bool = False) -> Improvement:
    """Price a launch and find the edits that pay; `flex_batch` lets the global batch be half, twice or four times."""
    current = current_state(question)
    near, counts = neighbours(current.job, question.plan)
    if question.settings.get("cuda_graphs"):
        able = np.flatnonzero(capturable(question.job.model, near))
        near, counts = near.take(able), counts[able]
    if question.splits_sequences:
        does = np.flatnonzero(near.sequence_parallel == (near.tp > 1))
        near, counts = near.take(does), counts[does]
    ones = _singles(question, current, near, counts)
    ones += _batches(question, current) if flex_batch else []
    edits = _ranked(current, ones)
    twos = _pairs(question, current, near, counts)
    whole = [best_edit(question, current)]
    if whole[0] and not whole[0].sure:  # less memory at the ZeRO stage that runs
        pinned = {**question.job.limits.fixed, "zero_stage": question.plan.zero_stage}
        whole.append(best_edit(replace(question, job=question.job.with_limits(fixed=pinned)), current))
    whole += [best_edit(other, current) for other in _other_batches(question)] if flex_batch else []
    everything = [edit for edit in (*edits, *twos, *whole) if edit and edit.after.fits]
    everything = [edit for edit in everything if edit.sure] or (everything if not current.fits else [])
    top = max(everything, key=lambda edit: edit.expected, default=None)
    pair = _better(twos, edits)
    return Improvement(
        question=question,
        current=current,
        edits=edits,
        pair=pair,
        best=top if top and (top.expected > NOTICEABLE or not current.fits) else None,
    )


def _singles(question: LaunchAsRead, current: State, near: Plans, counts: Any) -> list[Edit]:
    """The best plan for each setting changed alone, each switch turned alone."""
    edits = list(_firsts(question, current, near.take(np.flatnonzero(counts == 1))))
    edits += [
        edit_to(current, state_of(question, question.plan, turned)) for turned in switches(question, question.plan)
    ]
    if "bucket" in question.framework.settable:
        edits.append(edit_to(current, bucketed(question, current)))
    return edits


def _other_batches(question: LaunchAsRead) -> Iterator[LaunchAsRead]:
    """The same question at half the global batch, twice and four times."""
    for factor in BATCHES:
        batch = int(question.job.global_batch * factor)
        if batch == question.job.global_batch * factor:
            settings = {**question.settings, "global_batch": batch}
            yield replace(question, job=replace(question.job, global_batch=batch), settings=settings)


def _batches(question: LaunchAsRead, current: State) -> list[Edit]:
    """The plan that runs with more or fewer micro-batches of the same size."""
    edits = []
    for other in _other_batches(question):
        plan = question.plan
        count = other.job.global_batch // (plan.dp * plan.micro_batch)
        if count * plan.dp * plan.micro_batch == other.job.global_batch and (plan.vpp == 1 or count % plan.pp == 0):
            edits.append(edit_to(current, state_of(other, replace(plan, num_microbatches=count))))
    return edits


def _priced(question: LaunchAsRead, plans: Plans, turned: Mapping[str, Any]) -> tuple[FloatArray, FloatArray]:
    """Seconds and bytes of plans with these settings changed, group by group of like stack and knobs."""
    seconds, reserved = np.full(len(plans), np.inf), np.full(len(plans), np.inf)
    # What settings follow from: the ZeRO stage and the replicas.
    kinds, of = np.unique(np.stack([plans.zero_stage, plans.dp * plans.cp]), axis=1, return_inverse=True)
    for kind in range(kinds.shape[1]):
        rows = np.flatnonzero(of.ravel() == kind)
        plan = plans.plan(int(rows[0]))
        settings = settings_of(question, plan, turned)
        with np.errstate(over="ignore", invalid="ignore"):
            costs = price(
                with_stack(question, settings, plan.zero_stage), plans.take(rows), knobs_of(question, settings)
            )
        seconds[rows], reserved[rows] = costs.step_time, costs.reserved
    return seconds, reserved


def _firsts(question: LaunchAsRead, current: State, plans: Plans) -> Iterator[Edit]:
    """Of plans that change the same setting the best: the fastest that fits, else that of least memory; and the best
    that is sure to fit, where that is another one.
    """
    if not len(plans):
        return
    seconds, reserved = _priced(question, plans, {})
    order, surely = ordered(current, seconds, reserved), _sure(current, reserved)
    seen: dict[frozenset[str], bool] = {}
    for plan, sure in zip(plans.take(order).plans(), surely[order].tolist(), strict=True):
        names = moved(current.plan, plan)
        if names in seen and (seen[names] or not sure):
            continue
        seen[names] = sure
        yield edit_to(current, state_of(question, plan))


def _sure(current: State, reserved: FloatArray) -> BoolArray:
    """What fits with 90 % at least, or needs no more memory than what runs."""
    leaner = current.fits & (reserved <= current.estimate.reserved)
    return np.asarray(leaner | (chances(current.job, reserved) >= 1.0 - USUAL_RISK))


def ordered(current: State, seconds: FloatArray, reserved: FloatArray) -> Any:
    """Positions by worth: of those that fit what they gain times the chance that they do, then by memory."""
    chance = chances(current.job, reserved)
    gain = current.estimate.step_time / seconds - (1.0 if current.fits else 0.0)
    worth = np.minimum(gain, gain * chance)  # a loss weighs in full
    fits = reserved <= current.job.usable_memory
    return np.lexsort((np.where(fits, -worth, reserved), ~fits))


def _pairs(question: LaunchAsRead, current: State, near: Plans, counts: Any) -> list[Edit]:
    """The best that two changes reach: two settings of the plan, one and a switch, or two switches."""
    able = replace(question.plan, dp=2, zero_stage=max(1, question.plan.zero_stage), recompute="none")
    able = replace(able, activation_offload=0)
    # What follows from a plan is to be switched on for another one even where it is on for this one.
    follows = question.launch.following(able)
    free = question.settings.keys() & follows.keys() - set(question.launch.fixed)
    following = [turned for turned in SWITCHES if turned.keys() & free]
    edits = []
    for turned in ({}, *switches(question, able), *following):
        rows: BoolArray = counts == (1 if turned else 2)
        rows = rows & capturable(question.job.model, near) if "cuda_graphs" in turned else rows
        plans = near.take(np.flatnonzero(rows))
        if len(plans):
            seconds, reserved = _priced(question, plans, turned)
            order = ordered(current, seconds, reserved)
            places = {int(order[0]), *order[_sure(current, reserved)[order]][:1].tolist()}
            edits += [edit_to(current, state_of(question, plans.plan(place), turned)) for place in sorted(places)]
    for first, second in combinations(switches(question, question.plan), 2):
        edits.append(edit_to(current, state_of(question, question.plan, {**first, **second})))
    return edits


def _ranked(current: State, edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Edits worth making, best first: those that fit and gain, or any that fit where what runs does not."""
    worth = [edit for edit in edits if edit.after.fits and (edit.gain > NOTICEABLE or not current.fits)]
    if not worth and not current.fits:
        worth = [edit for edit in edits if edit.after.estimate.reserved < current.estimate.reserved]
        return tuple(sorted(worth, key=lambda edit: edit.after.estimate.reserved))
    return tuple(sorted(worth, key=lambda edit: (not edit.sure, -edit.expected)))


def _better(pairs: Sequence[Edit], edits: Sequence[Edit]) -> Edit | None:
    """The best pair, None where one edit alone does as well."""
    fitting = [edit for edit in pairs if edit.after.fits and edit.sure]
    if not fitting:
        return None
    best = max(fitting, key=lambda edit: edit.expected)
    alone = edits[0].expected if edits and edits[0].after.fits and edits[0].sure else -1.0
    better = (1.0 + alone) < (1.0 + best.expected) * (1 - NOTICEABLE)
    return best if better and best.expected > NOTICEABLE else None


def unset(improvement: Improvement) -> list[str]:
    """What would pay but is no matter of flags alone, in words."""
    question, current = improvement.question, improvement.current
    if question.settings.get("tp_overlap") is not False or current.plan.tp == 1 or not current.plan.sequence_parallel:
        return []
    gain = state_of(question, current.plan, {"tp_overlap": True}).throughput / current.throughput - 1
    if gain < NOTICEABLE:
        return []
    needs = "it needs the user buffers of Transformer Engine"
    return [f"--tp-comm-overlap is off, and no edit sets it: {needs}; with the plan as it is it would gain {gain:.1%}"]


SHARES = 1000  # of the optimizer that files tell apart
SPARED = 1e-4  # share of the step below which a change is not worth making


def best_edit(question: LaunchAsRead, current: State) -> Edit | None:
    """The best plan of all, with everything switched on that helps."""
    fixed = question.launch.fixed
    on = {name: value for changes in SWITCHES for name, value in changes.items() if name not in fixed}
    settings = {name: on.get(name, value) for name, value in question.settings.items()}
    if not question.settings.get("cuda_graphs") and question.job.model.experts:
        settings.pop("cuda_graphs", None)
        on.pop("cuda_graphs", None)
    job = with_stack(question, settings, 1)
    if question.settings.get("cuda_graphs"):
        job = job.with_limits(choices={**job.limits.choices, "recompute": ("none", "selective")})
    if "layers_per_stage" not in question.framework.settable:
        runs, pinned = question.plan, job.limits.fixed
        filled = (
            "pp" in pinned and runs.layers_per_stage and not is_even(runs, job.model.layers)
        )  # as the program splits them, whatever the plan
        lying = {LAYERS: ",".join(map(str, runs.layers_per_stage))} if filled else {LAYOUT: EVEN}
        job = job.with_limits(fixed={**pinned, **lying})
    best = best_plan(job, Tuning(fixed=knobs_of(question, settings)))
    if best is None and "offload" in question.framework.settable:
        best = best_plan(job, Tuning())
    if best is None:
        return None
    plan = best.plan
    if plan.layers_per_stage and is_even(plan, job.model.layers):
        plan = replace(plan, layers_per_stage=())
    if question.splits_sequences:
        plan = replace(plan, sequence_parallel=plan.tp > 1)
    if best.knobs.offload and "offload" in question.framework.settable:  # by the distributed optimizer alone
        plan = replace(plan, zero_stage=max(1, plan.zero_stage))
    own, idle = settings_of(question, plan), useless(question, plan)
    turned = {name: value for name, value in on.items() if name in own and name not in idle}
    share = ceil(best.knobs.offload * SHARES) / SHARES  # as files write it
    after = _spared(question, state_of(question, plan, {**turned, "offload": share}))
    return edit_to(current, bucketed(question, after) if "bucket" in question.framework.settable else after)


def _spared(question: LaunchAsRead, after: State) -> State:
    """The best plan without the changes that gain nothing: each taken back where the step stays as fast and fits."""
    before = question.plan
    for name in ("zero_stage", "sequence_parallel", "shard", "etp"):
        fixed = question.splits_sequences or after.plan.tp == 1
        hosted = after.knobs.offload > 0
        if (name == "sequence_parallel" and fixed) or (name == "zero_stage" and hosted):
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
