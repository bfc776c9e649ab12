"""Why this plan and not yours: the best plan under your pins against ours, term by term, or the rules they break."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from optimizer.answer.answer import Answer, Clash
from optimizer.answer.keys import ComparisonKeys
from optimizer.base.errors import InputError
from optimizer.constraints.pin_text import Pinned, code, pins_text
from optimizer.constraints.pins import as_limits
from optimizer.constraints.rules.every import STRUCTURAL, structural
from optimizer.job.fields import FAST
from optimizer.job.job import PLACING, TIME, Job
from optimizer.job.plan import FIELDS, Knobs, Plan, Plans
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.price import price
from optimizer.search.infeasible.conflict import conflict
from optimizer.search.lattice.enumerate import lattice, plans_of
from optimizer.search.layouts.least_memory import LeastMemory
from optimizer.search.plan.alternatives import estimate_of, value_of
from optimizer.search.plan.best import best_plan

SAME = 1e-9  # relative difference of values below which two plans are equally good
Pins = Mapping[str, Pinned]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One term of both plans, in seconds or bytes."""

    term: str
    ours: float
    theirs: float

    @property
    def more(self) -> float:
        """What the other plan spends more on the term."""
        return self.theirs - self.ours


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Our plan and the best one under `pins`, each at its own knobs.

    The `more` of the `time` terms add up to the difference of the step times, those of `memory` to that of the peaks.
    """

    pins: str  # as they are typed
    # "slower" (a higher value of the objective), "same", "faster" (the pins reach where the search did not: another
    # schedule, a pin of the job undone), or "infeasible"
    verdict: str
    ours: Plan  # the answer's plan
    our_estimate: Estimate  # its price
    plan: Plan | None = None  # the best under the pins; where only memory is in the way, that of the least memory
    estimate: Estimate | None = None  # its price
    slower: float = 0.0  # its value over ours, minus one; negative for a better plan, 0 without one [1]
    broken: tuple[Clash, ...] = ()  # the rules in the way of an infeasible plan
    minimize: str = TIME  # what the values are of
    prefer: str = FAST  # as of the job

    @property
    def time(self) -> tuple[Difference, ...]:
        """Seconds by term, largest difference first."""
        return differences(self.our_estimate.time, self.estimate.time) if self.estimate else ()

    @property
    def memory(self) -> tuple[Difference, ...]:
        """Bytes by term, largest difference first."""
        return differences(self.our_estimate.memory, self.estimate.memory) if self.estimate else ()

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values."""
        return ComparisonKeys.of(self)


def why_not(job: Job, answer: Answer, pins: Pins) -> Comparison:
    """The best plan under these pins, at its own knobs, against the answer's.

    Raises InputError when the answer holds no plan, or a pinned variable does not exist or cannot take its value.
    """
    if answer.plan is None or answer.estimate is None:
        raise InputError(f"there is no plan to compare with: the answer is {answer.status}")
    asked = pinned_job(job, pins)
    theirs = best_plan(asked)
    plan, estimate = (theirs.plan, theirs.estimate) if theirs else _least_memory(asked)
    our_value = value_of(job, answer.plan, answer.knobs, answer.estimate)
    value = theirs.value if theirs else value_of(asked, plan, Knobs(), estimate) if plan and estimate else our_value
    slower = value / our_value - 1
    verdict = "same" if abs(slower) <= SAME else "slower" if slower > 0 else "faster"
    return Comparison(
        pins=pins_text(pins),
        verdict=verdict if theirs else "infeasible",
        ours=answer.plan,
        our_estimate=answer.estimate,
        plan=plan,
        estimate=estimate,
        slower=slower,
        broken=() if theirs else broken_rules(asked, pins),
        minimize=job.minimize,
        prefer=job.prefer,
    )


def pinned_job(job: Job, pins: Pins) -> Job:
    """The job with these pins instead of its own on the same variables."""
    limits, asked = job.without_pin(*pins).limits, as_limits(pins)
    return job.with_limits(**{name: {**getattr(limits, name), **asked[name]} for name in asked})


def broken_rules(job: Job, pins: Pins) -> tuple[Clash, ...]:
    """The rules that leave no plan: each that the pins break by themselves, and those that clash with them.

    Where no other rule does, a pin asks for what the software or the model cannot have: the pin itself, which says so.
    """
    asked = {f"{kind} {pins_text({name: value})}" for name, value in pins.items() for kind in ("fix", "range")}
    clashing = conflict(job)
    clashes = {clash.rule: clash for clash in clashing if clash.rule not in asked}
    alone = {name: Clash(rule=name, reason=reason) for name, reason in broken_alone(job).items()}
    return tuple({**alone, **clashes}.values()) or clashing


def broken_alone(job: Job) -> dict[str, str]:
    """Rules decided by the pinned variables only, and broken by their values: name and reason."""
    fixed = {name: value for name, value in job.limits.fixed.items() if name not in PLACING}
    values = {name: np.array([code(name, value)]) for name, value in fixed.items()}
    single = Plans.of([Plan()])
    columns = {name: getattr(single, name) for name in FIELDS} | values
    if {"tp", "cp", "pp"} <= values.keys() and "dp" not in values:
        columns["dp"] = np.maximum(1, job.gpus // (columns["tp"] * columns["cp"] * columns["pp"]))
        values["dp"] = columns["dp"]
    plans = plans_of(columns)
    decided = [rule for rule in STRUCTURAL if set(rule.variables) <= values.keys()]
    return {rule.name: rule.explain(job) for rule in decided if not rule.check(job, plans).all()}


def differences(ours: Mapping[str, float], theirs: Mapping[str, float]) -> tuple[Difference, ...]:
    """Term by term, largest difference first.

    >>> [item.more for item in differences({"gemm": 2.0, "bubble": 0.5}, {"gemm": 2.25, "bubble": 0.0})]
    [-0.5, 0.25]
    """
    names = dict.fromkeys((*ours, *theirs))
    terms = [Difference(term=name, ours=ours.get(name, 0.0), theirs=theirs.get(name, 0.0)) for name in names]
    return tuple(sorted(terms, key=lambda item: -abs(item.more)))


def _least_memory(job: Job) -> tuple[Plan | None, Estimate | None]:
    """The plan and layout that reserve least, all state on the host, and their price; None without any."""
    memory = LeastMemory()
    plan = memory.least(job, lattice(job, structural(job)))[1]
    if plan is None:
        return None, None
    plans = Plans.of([plan])
    return plan, estimate_of(job, price(job, plans, memory.at(layer_costs_of(job, plans))), 0)
