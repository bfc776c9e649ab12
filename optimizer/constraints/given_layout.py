"""Layers that the user placed: even splits only, or so many layers on each stage, instead of a search over layouts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from optimizer.base.errors import InputError
from optimizer.base.units import is_count
from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray, FloatArray
from optimizer.job.job import EVEN, LAYERS, LAYOUT, PLACING, RECOMPUTED, Job
from optimizer.job.plan import Placement, Plan, Plans, balanced, virtual_stages
from optimizer.job.recomputation import RECOMPUTE
from optimizer.job.stack import ALL_LAYERS, BY_STAGE, BY_VIRTUAL_STAGE

FULL = RECOMPUTE.index("full")


@dataclass(frozen=True, kw_only=True)
class GivenLayout:
    """The layers lie, or are recomputed, as `variable` asks; `counts` are those of a list, empty for the even split."""

    name: str
    variable: str
    counts: tuple[int, ...] = ()

    @property
    def variables(self) -> tuple[str, ...]:
        """What decides whether a plan can place its layers so."""
        return {LAYOUT: ("pp",), LAYERS: ("pp", "vpp")}.get(self.variable, ("pp", "vpp", "recompute"))

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether a plan can place its layers so, and does where it says how its layers lie."""
        columns = (plans.pp.tolist(), plans.vpp.tolist(), plans.recompute.tolist())
        known = {row: self._possible(job, *row) for row in set(zip(*columns, strict=True))}
        possible = np.array([known[row] for row in zip(*columns, strict=True)], dtype=np.bool_)
        if plans.placements is None:
            return possible
        given = placements(job, plans)
        same = [self._same(job, *row) for row in zip(columns[0], columns[1], plans.placements, given, strict=True)]
        return np.asarray(possible & np.array(same, dtype=np.bool_))

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of the stages, virtual stages and modes under which the layers can lie so."""
        if self.variable != LAYOUT:
            rows = program.combinations(self.variables)
            program.allow(self.variables, [row for row in rows if self._possible(job, *row)], literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        asked = f"you asked for {self.name.partition(' ')[2]}"
        if self.variable == LAYOUT:
            return f"{asked}: no other layout is searched"
        if self.variable == RECOMPUTED:
            return f"{asked}: {len(self.counts)} stages under full recomputation that hold so many layers{rule_of(job)}"
        uneven = not job.stack.features.uneven_stages and len(set(self.counts)) > 1
        why = f", but {job.stack.name} cuts them evenly" if uneven else ""
        stages = f"{len(self.counts)} stages or virtual stages" if len(self.counts) > 1 else "one stage"
        return f"{asked}: {job.model.layers} layers on {stages}{why}"

    def beyond(self, job: Job) -> bool:
        """Whether the software cannot recompute the layers that were asked for, whatever the plan."""
        if self.variable != RECOMPUTED or job.stack.features.recompute_by == BY_STAGE:
            return False
        stages = len(self.counts)
        return not any(self._possible(job, stages, vpp) for vpp in range(1, job.model.layers // stages + 1))

    def required(self, job: Job, plans: Plans) -> FloatArray:
        """Nothing, or 1 where a plan cannot place its layers so."""
        return np.asarray(~self.check(job, plans), dtype=np.float64)

    def relax(self, job: Job, required: float) -> tuple[Job, str]:
        """Without it."""
        return job.without_pin(self.variable), f"drop {self.name}"

    def _possible(self, job: Job, pp: int, vpp: int, recompute: int = FULL) -> bool:
        if self.variable == LAYOUT:
            return True
        if self.variable == RECOMPUTED:
            given = counts_of(job, LAYERS)
            if recompute != FULL or len(self.counts) != pp or (given and len(given) not in (pp, pp * vpp)):
                return False
            possible = all(
                some <= here for some, here in zip(self.counts, _layers_of_stages(job, pp, vpp), strict=True)
            )
            return possible and _recomputed(job, pp, vpp) is not None
        even = job.stack.features.uneven_stages or len(set(self.counts)) == 1
        return len(self.counts) in (pp, pp * vpp) and even

    def _same(self, job: Job, pp: int, vpp: int, placed: Placement, asked: Placement) -> bool:
        if self.variable == RECOMPUTED:
            return (placed.recomputed, placed.first) == (asked.recomputed, asked.first)
        mine, theirs = (virtual_stages(given.layers, job.model.layers, pp, vpp) for given in (placed, asked))
        alike = placed.first == asked.first and placed.recomputed in ((), asked.recomputed)
        together = self.variable == LAYERS or alike
        return mine == theirs and placed.mtp_ahead == 0 and together


def given_layouts(job: Job) -> tuple[GivenLayout, ...]:
    """The rules about layouts that the user added.

    Raises InputError for a layout that is none of this model's.
    """
    fixed = job.limits.fixed
    if LAYOUT in fixed and fixed[LAYOUT] != EVEN:
        raise InputError(f"cannot fix {LAYOUT}={fixed[LAYOUT]}: expected {EVEN}; lists of layers go to {LAYERS}")
    if LAYOUT in fixed and LAYERS in fixed:
        raise InputError(f"cannot fix {LAYOUT}={EVEN} and {LAYERS}={fixed[LAYERS]} together; keep one")
    layers, recomputed, whole = counts_of(job, LAYERS), counts_of(job, RECOMPUTED), job.model.layers
    if LAYERS in fixed and sum(layers) != whole:
        raise InputError(f"cannot fix {LAYERS}={fixed[LAYERS]}: {job.model.name} has {whole} layers, not {sum(layers)}")
    if not all(layers[1:-1]):
        raise InputError(f"cannot fix {LAYERS}={fixed[LAYERS]}: only the first and the last may be without layers")
    if sum(recomputed) > whole:
        raise InputError(f"cannot fix {RECOMPUTED}={fixed[RECOMPUTED]}: {job.model.name} has only {whole} layers")
    return tuple(
        GivenLayout(name=f"fix {name}={fixed[name]}", variable=name, counts=counts_of(job, name))
        for name in PLACING
        if name in fixed
    )


def counts_of(job: Job, name: str) -> tuple[int, ...]:
    """Layers stage by stage as they were pinned, "19,20,21,20"; none where they were not."""
    value = job.limits.fixed.get(name, "")
    return () if value in ("", EVEN) else counts(name, str(value))


def counts(name: str, text: str) -> tuple[int, ...]:
    """Layers stage by stage.

    Raises InputError for anything else than whole numbers.

    >>> counts("layers_per_stage", "19, 20,21,20")
    (19, 20, 21, 20)
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(map(is_count, parts)):
        raise InputError(f"cannot fix {name}={text}: expected the layers of each stage, such as {name}=19,20,21,20")
    return tuple(int(part) for part in parts)


def with_assigned_layers(job: Job, plan: Plan) -> Plan:
    """The plan with its layers where the user placed them, else evenly split, all recomputed where it may be chosen."""
    placed = _placement(job, plan.pp, plan.vpp, plan.recompute == "full")
    return plan.lying(placed)


def placements(job: Job, plans: Plans) -> tuple[Placement, ...]:
    """Where the layers of every plan lie: see with_assigned_layers."""
    rows = list(zip(plans.pp.tolist(), plans.vpp.tolist(), (plans.recompute == FULL).tolist(), strict=True))
    known = {row: _placement(job, *row) for row in set(rows)}
    return tuple(known[row] for row in rows)


def _placement(job: Job, pp: int, vpp: int, full: bool) -> Placement:
    layers = counts_of(job, LAYERS) or balanced(job.model.layers, pp)
    if not full:
        return Placement(layers=layers)
    if counts_of(job, RECOMPUTED):
        return replace(_recomputed(job, pp, vpp) or Placement(), layers=layers)
    each = job.stack.features.recompute_by == BY_STAGE and not job.recomputes_all
    return Placement(layers=layers, recomputed=_layers_of_stages(job, pp, vpp) if each else ())


def _recomputed(job: Job, pp: int, vpp: int) -> Placement | None:
    """What is recomputed where each stage recomputes as many layers as was pinned; None where the software cannot."""
    asked, by = counts_of(job, RECOMPUTED), job.stack.features.recompute_by
    if by == BY_STAGE:
        return Placement(recomputed=asked)
    if asked == _layers_of_stages(job, pp, vpp):
        return Placement()
    counts = virtual_stages(counts_of(job, LAYERS), job.model.layers, pp, vpp)
    for first in range(1, max(counts)):
        each = tuple(sum(min(first, count) for count in counts[stage::pp]) for stage in range(pp))
        if by == BY_VIRTUAL_STAGE and asked == each:
            return Placement(first=first)
    return None


def rule_of(job: Job) -> str:
    """How the software limits full recomputation, in words that go on a sentence; nothing if all is free."""
    return {
        BY_VIRTUAL_STAGE: f"; {job.stack.name} recomputes equally many layers on every virtual stage, the first ones",
        ALL_LAYERS: f"; {job.stack.name} recomputes all layers or none",
    }.get(job.stack.features.recompute_by, "")


def _layers_of_stages(job: Job, pp: int, vpp: int) -> tuple[int, ...]:
    """Layers on each stage."""
    counts = virtual_stages(counts_of(job, LAYERS), job.model.layers, pp, vpp)
    return tuple(sum(counts[stage::pp]) for stage in range(pp))
