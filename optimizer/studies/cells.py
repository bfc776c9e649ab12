"""The map of TP x PP of a job: the best plan of each cell, or why no plan of it can run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optimizer.base.units import GB
from optimizer.constraints.pins import pins
from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.minimised.registry import objective_of
from optimizer.objectives.step.linear_stage import reserved_memory
from optimizer.reports.proof_lines import shown
from optimizer.search.lattice.enumerate import lattice, space_of
from optimizer.search.lattice.knobs import at_most_offload
from optimizer.search.lattice.oracle import Tuning, fold
from optimizer.search.why.comparison import broken_alone, pinned_job

FITS, FULL, FORBIDDEN = "fits", "memory", "forbidden"
MOST_TP, MOST_PP = 16, 64
LeastOfCells = dict[tuple[int, int], tuple[float, Plan]]  # the least value of each tp and pp, and its plan


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What the plans of one tp and pp come to."""

    tp: int
    pp: int
    kind: str
    value: float = 0.0  # of what is minimised by the best plan, where one fits
    unit: str = ""  # of that
    reserved: float = 0.0  # of the plan that reserves least, where none fits [B]
    plan: Plan | None = None  # the one or the other
    why: str = ""  # the rule, where there is no plan

    @property
    def text(self) -> str:
        """What stands in the cell."""
        return {FITS: shown(self.value, self.unit), FULL: f"{self.reserved / GB:.0f} GB", FORBIDDEN: "–"}[self.kind]

    @property
    def words(self) -> str:
        """The cell in words."""
        if self.kind == FITS and self.plan:
            return f"{shown(self.value, self.unit)} by {self.plan.summary()}"
        if self.kind == FULL and self.plan:
            return f"does not fit: the plan of least memory reserves {self.reserved / GB:.1f} GB, {self.plan.summary()}"
        return self.why


def cells(job: Job, answered: tuple[Plan, float] | None = None) -> list[Cell]:
    """Every cell, by tp and then pp: powers of two, and whatever else plans have.

    Plans are evenly split and each at its own knobs, as the search finds them, but for the plan that was `answered`,
    with its value.
    """
    best, least = _best(job), _least_memory(job)
    if answered:
        plan, value = answered
        best[plan.tp, plan.pp] = min(
            best.get((plan.tp, plan.pp), (value, plan)), (value, plan), key=lambda each: each[0]
        )
    tps = {*powers(min(MOST_TP, job.limits.max_tp or job.cluster.scale_up_size)), *(tp for tp, _ in least)}
    pps = {*powers(min(MOST_PP, job.model.layers)), *(pp for _, pp in least)}
    return [_cell(job, (tp, pp), best, least) for tp in sorted(tps) for pp in sorted(pps)]


def _cell(job: Job, key: tuple[int, int], best: LeastOfCells, least: LeastOfCells) -> Cell:
    tp, pp = key
    if key in best:
        unit = objective_of(job).unit
        return Cell(tp=tp, pp=pp, kind=FITS, value=best[key][0], unit=unit, plan=best[key][1])
    if key in least:
        return Cell(tp=tp, pp=pp, kind=FULL, reserved=least[key][0], plan=least[key][1])
    return Cell(tp=tp, pp=pp, kind=FORBIDDEN, why=forbidding(job, tp, pp))


def _best(job: Job) -> LeastOfCells:
    """The best plan that fits of each tp and pp, with its value of what is minimised."""
    least: LeastOfCells = {}
    points = fold(job, space_of(job), Tuning()).points
    if points is not None:
        _add(least, points.plans, np.where(points.fits, points.values, np.inf))
    return least


def _least_memory(job: Job) -> LeastOfCells:
    """The plan of each tp and pp that reserves least, with its bytes, as much optimizer state on the host as may be."""
    least: LeastOfCells = {}
    for plans in lattice(job, structural(job)):
        _add(least, plans, reserved_memory(job, plans, at_most_offload(layer_costs_of(job, plans))))
    return least


def _add(least: LeastOfCells, plans: Plans, values: NDArray[np.float64]) -> None:
    """Put the plan of the least finite value of each tp and pp into `least`, unless that has one of no more."""
    for index in np.argsort(values, kind="stable").tolist():
        key = int(plans.tp[index]), int(plans.pp[index])
        if np.isfinite(values[index]) and (key not in least or values[index] < least[key][0]):
            least[key] = float(values[index]), plans.plan(index)


def forbidding(job: Job, tp: int, pp: int) -> str:
    """The rule that leaves no plan with this tp and pp: a lock of the visitor, one that they break by themselves, else
    the first, in the order of the rules, with which none is left.
    """
    cell = Plans.of([Plan(tp=tp, pp=pp)])
    locked = [rule for rule in pins(job) if set(rule.variables) <= {"tp", "pp"} and not rule.check(job, cell).all()]
    if locked:
        return "; ".join(f"{rule.name}: {rule.explain(job)}" for rule in locked)
    pinned = pinned_job(job, {"tp": tp, "pp": pp})
    if alone := broken_alone(pinned):
        return "; ".join(f"{name}: {reason}" for name, reason in alone.items())
    rules = structural(pinned)
    low, high = 0, len(rules)  # with `low` rules some plan is left, with `high` none
    while high - low > 1:
        middle = (low + high) // 2
        if any(len(plans) for plans in lattice(pinned, rules[:middle])):
            low = middle
        else:
            high = middle
    rule = rules[high - 1]
    return f"{rule.name}: {rule.explain(pinned)}"


def powers(most: int) -> list[int]:
    """The powers of two up to `most`.

    >>> powers(6)
    [1, 2, 4]
    """
    return [2**power for power in range(most.bit_length()) if 2**power <= most]
