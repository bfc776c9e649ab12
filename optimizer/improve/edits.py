"""The way from the plan that runs to the best one, as edits: one change, two, all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from optimizer.constraints.rules import structural
from optimizer.exports.layout import is_even
from optimizer.improve.neighbours import neighbours
from optimizer.job import EVEN, LAYOUT, Job
from optimizer.model import Model
from optimizer.objectives.arrays import BoolArray, FloatArray
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.price import price
from optimizer.objectives.step.safe_memory import chance_to_fit, chances
from optimizer.plan import FIELDS, Knobs, Plan, Plans
from optimizer.recomputation import RECOMPUTE
from optimizer.scripts.question import Question, with_stack
from optimizer.search.check.plan_rules import priced
from optimizer.search.lattice.oracle import Tuning
from optimizer.search.plan.alternatives import estimate_of
from optimizer.search.plan.best import best_plan

NOTICEABLE = 1e-3  # share of the step that an edit must gain to be worth saying
BATCHES = (0.5, 2.0, 4.0)
PLACING = ("Megatron-LM", "Megatron-Bridge", "Primus")  # programs that are told where layers lie
OFFLOADING = ("Megatron-LM", "Megatron-Bridge", "Primus")  # programs whose optimizer may lie on the host in part
SEQUENCE_PARALLEL = ("torchtitan", "MaxText")  # programs that split sequences wherever they split tensors
SPARED = 1e-4  # share of the step below which a change is not worth making
FOLLOWING = ("dp", "num_microbatches", "schedule")
SOFTWARE = ("global_batch", "reduce_overlap", "gather_overlap", "offload", "cuda_graphs")
BUCKETED = ("Megatron-LM", "Megatron-Bridge", "Primus", "DeepSpeed")  # programs that are told how large a bucket is
BUCKETS = (40e6, 80e6, 160e6, 320e6, 640e6, 1e9)  # B, of gradients
# Settings that are switched together: the second does nothing, or cannot be, without the first.
SWITCHES: tuple[Mapping[str, Any], ...] = (
    {"reduce_overlap": True, "gather_overlap": True},
    {"gather_overlap": True},
    {"offload": 0.0},
    {"cuda_graphs": True},
)


@dataclass(frozen=True, kw_only=True)
class Change:
    """One setting before and after."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True, kw_only=True)
class State:
    """A plan with the software's settings and knobs, and its price; `fits` with this chance."""

    job: Job
    plan: Plan
    settings: Mapping[str, Any]
    knobs: Knobs
    estimate: Estimate

    @property
    def fits(self) -> bool:
        """Whether it stays within the memory usable."""
        return self.estimate.reserved <= self.job.usable_memory

    @property
    def throughput(self) -> float:
        """Tokens trained on per second by the whole job [1/s]."""
        return self.job.tokens / self.estimate.step_time

    @property
    def chance(self) -> float:
        """The chance of that."""
        return chance_to_fit(self.job, self.estimate.reserved)


@dataclass(frozen=True, kw_only=True)
class Edit:
    """Changes that are made together, and where they lead; gain: tokens trained on per second, relative to before."""

    changes: tuple[Change, ...]
    after: State
    gain: float

    @property
    def names(self) -> frozenset[str]:
        """What the user decides: without what follows from it."""
        return frozenset(change.name for change in self.changes if change.name not in FOLLOWING)


@dataclass(frozen=True, kw_only=True)
class Improvement:
    """What a launch is worth and the way up: single edits, best first, the best pair, and all changes to the best plan.

    `pair` and `best` are None where nothing is gained by them over the best that needs fewer changes.
    """

    question: Question
    current: State
    edits: tuple[Edit, ...]
    pair: Edit | None
    best: Edit | None


def improve(question: Question, *, flex_batch: bool = False) -> Improvement:
    """Price a launch and find the edits that pay; `flex_batch` lets the global batch be half, twice or four times."""
    current = _current(question)
    near, counts = neighbours(current.job, question.plan)
    if question.settings.get("cuda_graphs"):
        able = np.flatnonzero(capturable(question.job.model, near))
        near, counts = near.take(able), counts[able]
    if question.launch.program in SEQUENCE_PARALLEL:
        does = np.flatnonzero(near.sequence_parallel == (near.tp > 1))
        near, counts = near.take(does), counts[does]
    ones = _singles(question, current, near, counts)
    ones += _batches(question, current) if flex_batch else []
    edits = _ranked(current, ones)
    twos = _pairs(question, current, near, counts, ones)
    whole = [_best(question, current)]
    whole += [_best(other, current) for other in _other_batches(question)] if flex_batch else []
    everything = [edit for edit in (*edits, *twos, *whole) if edit and edit.after.fits]
    top = max(everything, key=lambda edit: edit.gain, default=None)
    pair = _better(twos, edits)
    return Improvement(
        question=question,
        current=current,
        edits=edits,
        pair=pair,
        best=top if top and (top.gain > NOTICEABLE or not current.fits) else None,
    )


def _current(question: Question) -> State:
    estimate = priced(question.job, question.plan, question.knobs)
    return State(
        job=question.job,
        plan=question.plan,
        settings=question.settings,
        knobs=question.knobs,
        estimate=estimate,
    )


def capturable(model: Model, plans: Plans) -> BoolArray:
    """Which plans a CUDA graph of whole layers can hold: dense layers that neither recompute all nor use the host.

    Source: NVIDIA/Megatron-LM, megatron/core/transformer/transformer_config.py, checks of cuda_graph_impl.
    """
    whole = plans.recompute == RECOMPUTE.index("full")
    return np.asarray(~whole & (plans.activation_offload == 0) & (model.experts is None))


def _captured(question: Question, plan: Plan) -> bool:
    return bool(capturable(question.job.model, Plans.of([plan]))[0])


def switches(question: Question, plan: Plan) -> Iterator[Mapping[str, Any]]:
    """What the software could be told otherwise for a plan: each a set of settings that go together."""
    said, seen = question.settings, []
    for changes in SWITCHES:
        changed = {name: value for name, value in changes.items() if name in said and said[name] != value}
        if plan.zero_stage == 0:
            changed.pop("gather_overlap", None)
        if not _captured(question, plan):
            changed.pop("cuda_graphs", None)
        if changed in seen:
            continue
        seen.append(changed)
        if not changed or ("gather_overlap" in changed and len(changed) == 1 and not said["reduce_overlap"]):
            continue
        if {"reduce_overlap", "gather_overlap"} & changed.keys() and plan.dp * plan.cp == 1:
            continue
        yield changed


def _priced(question: Question, plans: Plans, settings: Mapping[str, Any]) -> tuple[FloatArray, FloatArray, Any]:
    """Seconds and bytes of plans under these settings, group by group of ZeRO stages, and how to get their states."""
    seconds, reserved = np.full(len(plans), np.inf), np.full(len(plans), np.inf)
    knobs = _knobs(question, settings)
    for stage in np.unique(plans.zero_stage).tolist():
        rows = np.flatnonzero(plans.zero_stage == stage)
        job = with_stack(question, settings, stage)
        with np.errstate(over="ignore", invalid="ignore"):
            costs = price(job, plans.take(rows), knobs)
        seconds[rows], reserved[rows] = costs.step_time, costs.reserved
    return seconds, reserved, knobs


def _knobs(question: Question, settings: Mapping[str, Any]) -> Knobs:
    return replace(question.knobs, offload=float(settings.get("offload", 0.0)))


def _state(question: Question, plan: Plan, settings: Mapping[str, Any], bucket: float | None = None) -> State:
    job, knobs = with_stack(question, settings, plan.zero_stage), _knobs(question, settings)
    knobs = knobs if bucket is None else replace(knobs, bucket=bucket)
    estimate = estimate_of(job, price(job, Plans.of([plan]), knobs), 0)
    return State(job=job, plan=plan, settings=settings, knobs=knobs, estimate=estimate)


def _edit(current: State, after: State) -> Edit:
    changes = differences(current, after)
    return Edit(changes=changes, after=after, gain=after.throughput / current.throughput - 1)


def differences(before: State, after: State) -> tuple[Change, ...]:
    """Every setting that differs, those of the plan first."""
    names = [*FIELDS, "layers_per_stage", "recompute_first", "mtp_ahead"]
    found = [Change(name=name, before=getattr(before.plan, name), after=getattr(after.plan, name)) for name in names]
    found += [
        Change(name=name, before=before.settings[name], after=after.settings[name])
        for name in SOFTWARE
        if name in before.settings
    ]
    if before.knobs.bucket != after.knobs.bucket:
        found.append(Change(name="bucket", before=before.knobs.bucket, after=after.knobs.bucket))
    return tuple(change for change in found if change.before != change.after)


def _singles(question: Question, current: State, near: Plans, counts: Any) -> list[Edit]:
    """The best plan for each setting changed alone, each switch turned alone."""
    said = dict(question.settings)
    found = list(_firsts(question, current, near.take(np.flatnonzero(counts == 1)), said))
    for changed in switches(question, question.plan):
        found.append(_edit(current, _state(question, question.plan, {**said, **changed})))
    if question.launch.program in BUCKETED:
        found.append(_edit(current, _bucketed(question, current)))
    return found


def _bucketed(question: Question, state: State) -> State:
    """The state with the gradient bucket that makes it fastest, the one that it has where none is noticeably better."""
    if state.plan.dp * state.plan.cp == 1 or not state.settings.get("reduce_overlap"):
        return state
    others = [_state(question, state.plan, state.settings, size) for size in BUCKETS]
    best = min((other for other in others if other.fits or not state.fits), key=_step, default=state)
    return best if _step(best) < _step(state) * (1 - NOTICEABLE) else state


def _step(state: State) -> float:
    return state.estimate.step_time


def _other_batches(question: Question) -> Iterator[Question]:
    """The same question at half the global batch, twice and four times."""
    for factor in BATCHES:
        batch = int(question.job.global_batch * factor)
        if batch == question.job.global_batch * factor:
            settings = {**question.settings, "global_batch": batch}
            yield replace(question, job=replace(question.job, global_batch=batch), settings=settings)


def _batches(question: Question, current: State) -> list[Edit]:
    """The plan that runs with more or fewer micro-batches of the same size."""
    found = []
    for other in _other_batches(question):
        plan = question.plan
        count = other.job.global_batch // (plan.dp * plan.micro_batch)
        if count * plan.dp * plan.micro_batch == other.job.global_batch and (plan.vpp == 1 or count % plan.pp == 0):
            found.append(_edit(current, _state(other, replace(plan, num_microbatches=count), other.settings)))
    return found


def _firsts(question: Question, current: State, plans: Plans, settings: dict[str, Any]) -> Iterator[Edit]:
    """Of plans that change the same setting the best: the fastest that fits, else the leanest."""
    if not len(plans):
        return
    seconds, reserved, _ = _priced(question, plans, settings)
    order = ordered(current, seconds, reserved)
    seen: set[frozenset[str]] = set()
    rows = plans.take(order).plans()
    for plan in rows:
        names = moved(current.plan, plan)
        if names in seen:
            continue
        seen.add(names)
        yield _edit(current, _state(question, plan, settings))


def moved(before: Plan, after: Plan) -> frozenset[str]:
    """The setting that a plan changes, by which like edits are told: its followers do not count.

    >>> sorted(moved(Plan(tp=1, pp=4, vpp=2, dp=2), Plan(tp=1, pp=1, dp=8)))
    ['pp']
    """
    names = {name for name in FIELDS if name not in FOLLOWING and getattr(before, name) != getattr(after, name)}
    if "pp" in names and 1 in (before.pp, after.pp):
        names.discard("vpp")
    if "ep" in names and 1 in (before.ep, after.ep):
        names.discard("dispatcher")
    if "tp" in names:
        names -= {"sequence_parallel"} if 1 in (before.tp, after.tp) else set()
        names -= {"etp"} if before.etp == before.tp and after.etp == after.tp else set()
    return frozenset(names)


def ordered(current: State, seconds: FloatArray, reserved: FloatArray) -> Any:
    """Positions by worth: of those that fit what they gain times the chance that they do, then the leanest."""
    chance = chances(current.job, reserved)
    gain = current.estimate.step_time / seconds - (1.0 if current.fits else 0.0)
    worth = np.where(gain > 0, gain * chance, gain)
    fits = reserved <= current.job.usable_memory
    return np.lexsort((np.where(fits, -worth, reserved), ~fits))


def _pairs(question: Question, current: State, near: Plans, counts: Any, ones: Sequence[Edit]) -> list[Edit]:
    """The best that two changes reach: two settings of the plan, one and a switch, or two switches."""
    said = dict(question.settings)
    found: list[Edit] = []
    best = _fastest(question, near.take(np.flatnonzero(counts == 2)), said, current)
    found += [best] if best else []
    able = replace(question.plan, dp=2, zero_stage=max(1, question.plan.zero_stage), recompute="none")
    able = replace(able, activation_offload=0)
    for changed in switches(question, able):
        rows: BoolArray = counts == 1
        rows = rows & capturable(question.job.model, near) if "cuda_graphs" in changed else rows
        best = _fastest(question, near.take(np.flatnonzero(rows)), {**said, **changed}, current)
        found += [best] if best else []
    for first, second in combinations(switches(question, question.plan), 2):
        found.append(_edit(current, _state(question, question.plan, {**said, **first, **second})))
    return found


def _fastest(question: Question, plans: Plans, settings: dict[str, Any], current: State) -> Edit | None:
    if not len(plans):
        return None
    seconds, reserved, _ = _priced(question, plans, settings)
    place = int(ordered(current, seconds, reserved)[0])
    return _edit(current, _state(question, plans.plan(place), settings))


def _best(question: Question, current: State) -> Edit | None:
    """The best plan of all, with everything switched on that helps."""
    said = dict(question.settings)
    for changes in SWITCHES:
        said |= {name: value for name, value in changes.items() if name in said}
    if not question.settings.get("cuda_graphs") and question.job.model.experts:
        said.pop("cuda_graphs", None)
    job = with_stack(question, said, 1)
    if question.settings.get("cuda_graphs"):
        job = job.with_limits(choices={**job.limits.choices, "recompute": ("none", "selective")})
    if question.launch.program not in PLACING:
        job = job.with_limits(fixed={**job.limits.fixed, LAYOUT: EVEN})
    found = best_plan(job, Tuning(fixed=_knobs(question, said)))
    if found is None and question.launch.program in OFFLOADING:
        found = best_plan(job, Tuning())
    if found is None:
        return None
    said["offload"] = found.knobs.offload
    knobs = replace(question.knobs, offload=found.knobs.offload)
    plan = found.plan
    if plan.layers_per_stage and is_even(plan, job.model.layers):
        plan = replace(plan, layers_per_stage=())
    if question.launch.program in SEQUENCE_PARALLEL:
        plan = replace(plan, sequence_parallel=plan.tp > 1)
    found = replace(found, plan=plan, knobs=knobs)
    settings = _useful({**question.settings, **said}, question.settings, found.plan)
    if settings.get("cuda_graphs") and not _captured(question, found.plan):
        settings["cuda_graphs"] = question.settings["cuda_graphs"]
    job = with_stack(question, settings, found.plan.zero_stage)
    estimate = estimate_of(job, price(job, Plans.of([found.plan]), found.knobs), 0)
    after = State(job=job, plan=found.plan, settings=settings, knobs=found.knobs, estimate=estimate)
    after = _spared(question, after)
    return _edit(current, _bucketed(question, after) if question.launch.program in BUCKETED else after)


def _spared(question: Question, after: State) -> State:
    """The best plan without the changes that gain nothing: each taken back where the step stays as fast and fits."""
    before = question.plan
    for name in ("zero_stage", "sequence_parallel", "shard", "etp"):
        if name == "sequence_parallel" and question.launch.program in SEQUENCE_PARALLEL:
            continue
        if getattr(after.plan, name) != getattr(before, name):
            plan = replace(after.plan, **{name: getattr(before, name)})
            if name == "sequence_parallel" and after.plan.tp == 1:
                continue
            after = _no_worse(after, _restated(question, after, plan, after.settings))
    for name in SOFTWARE:
        if name in question.settings and after.settings.get(name) != question.settings[name] and name != "global_batch":
            settings = {**after.settings, name: question.settings[name]}
            after = _no_worse(after, _restated(question, after, after.plan, settings))
    return after


def _restated(question: Question, state: State, plan: Plan, settings: Mapping[str, Any]) -> State:
    job = with_stack(question, settings, plan.zero_stage)
    knobs = replace(state.knobs, offload=float(settings.get("offload", 0.0)))
    if any(not rule.check(job, Plans.of([plan])).all() for rule in structural(job)):
        return state
    estimate = estimate_of(job, price(job, Plans.of([plan]), knobs), 0)
    return State(job=job, plan=plan, settings=settings, knobs=knobs, estimate=estimate)


def _no_worse(state: State, other: State) -> State:
    """The other state where it fits and is as fast."""
    return other if other.fits and other.estimate.step_time <= state.estimate.step_time * (1 + SPARED) else state


def _useful(said: Mapping[str, Any], before: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
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


def _ranked(current: State, edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Edits worth making, best first: those that fit and gain, or any that fit where what runs does not."""
    worth = [edit for edit in edits if edit.after.fits and (edit.gain > NOTICEABLE or not current.fits)]
    if not worth and not current.fits:
        worth = [edit for edit in edits if edit.after.estimate.reserved < current.estimate.reserved]
        return tuple(sorted(worth, key=lambda edit: edit.after.estimate.reserved))
    return tuple(sorted(worth, key=lambda edit: -edit.gain))


def _better(pairs: Sequence[Edit], edits: Sequence[Edit]) -> Edit | None:
    """The best pair, None where one edit alone does as well."""
    fitting = [edit for edit in pairs if edit.after.fits]
    if not fitting:
        return None
    best = min(fitting, key=lambda edit: edit.after.estimate.step_time)
    alone = edits[0].after.estimate.step_time if edits and edits[0].after.fits else float("inf")
    return best if best.after.estimate.step_time < alone * (1 - NOTICEABLE) and best.gain > NOTICEABLE else None


def unset(found: Improvement) -> list[str]:
    """What would pay but is no matter of flags alone, in words."""
    question, current = found.question, found.current
    if question.settings.get("tp_overlap") is not False or current.plan.tp == 1 or not current.plan.sequence_parallel:
        return []
    there = _state(question, current.plan, {**question.settings, "tp_overlap": True})
    gain = there.throughput / current.throughput - 1
    if gain < NOTICEABLE:
        return []
    needs = "it needs the user buffers of Transformer Engine"
    return [f"--tp-comm-overlap is off, and no edit sets it: {needs}; with the plan as it is it would gain {gain:.1%}"]
