"""Brute force over small jobs: every layout of every plan, priced with as little on the host as it needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import ceil, floor

import numpy as np
import pytest
from numpy.typing import NDArray

from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.plan import KnobColumns, Knobs, Placement, Plan, Plans
from optimizer.objectives.expected import risk_classes
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.minimised.registry import objective_of
from optimizer.objectives.pipeline.stages import stages_of
from optimizer.objectives.step.host_memory import fits_host
from optimizer.objectives.step.price import price_layer_costs
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.check.plan_rules import placement_findings
from optimizer.search.lattice.enumerate import alike as alike_plans
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.lattice.knobs import HostNeed, at_most_offload, at_risk, columns, tuned
from optimizer.search.plan.alternatives import value_of
from optimizer.search.plan.best import best_plan
from optimizer.search.plan.planner import plan

MOST_PLANS = 400
MOST_LAYOUTS = 20_000
AT_ONCE = 4000


def layouts(job: Job, given_plan: Plan) -> Iterator[Plan]:
    """Every placement of a plan's layers that the search allows, one after the other."""
    pp, vpp, layers = given_plan.pp, given_plan.vpp, job.model.layers
    aheads = range(max(1, pp - 1)) if job.model.mtp_layers else (0,)
    for ahead, counts in product(aheads, compositions(layers, pp * vpp)):
        if not allowed(job, given_plan, counts, ahead):
            continue
        for placed in recomputations(job, given_plan, counts):
            yield given_plan.lying(replace(placed, layers=counts, mtp_ahead=ahead))


def recomputations(job: Job, given_plan: Plan, counts: tuple[int, ...]) -> Iterator[Placement]:
    """What of the layers of a layout may be recomputed: any number on each stage, the first ones of all virtual stages
    alike, or all.
    """
    by = job.stack.features.recompute_by
    if given_plan.recompute != "full" or "recompute" in job.limits.fixed or by != "stage":
        yield Placement()
    if given_plan.recompute != "full" or "recompute" in job.limits.fixed or by == "all layers":
        return
    if by == "stage":
        held = [sum(counts[stage :: given_plan.pp]) for stage in range(given_plan.pp)]
        yield from (Placement(recomputed=numbers) for numbers in product(*(range(n + 1) for n in held)))
    elif alike(job, given_plan, counts):
        yield from (Placement(first=first) for first in range(1, max(counts) + 1))


def alike(job: Job, given_plan: Plan, counts: tuple[int, ...]) -> bool:
    """Whether no virtual stage holds less than its share, but for the first and those of the last round."""
    if given_plan.vpp == 1 or not job.stack.features.uneven_stages:
        return True
    share = job.model.layers // len(counts)
    last = len(counts) - given_plan.pp
    return all(n >= share or not 0 < place < last for place, n in enumerate(counts))


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in compositions(total - first, parts - 1):
            yield (first, *rest)


def allowed(job: Job, given_plan: Plan, counts: tuple[int, ...], ahead: int) -> bool:
    """No virtual stage is empty, virtual stages differ little from their share, and some software cuts evenly only."""
    places = len(counts)
    occupied = list(counts)
    occupied[0] += 1
    occupied[-1] += 1
    occupied[places - 1 - ahead] += job.model.mtp_layers
    if ahead and any(counts[-ahead:]):
        return False  # prediction layers come after all others
    if min(occupied) < 1 or (not job.stack.features.uneven_stages and len(set(counts)) > 1):
        return False
    if given_plan.vpp == 1:
        return True
    share = job.model.layers / places
    least = [0 if virtual >= places - given_plan.pp else floor(share) - 1 for virtual in range(places)]
    return all(low <= n <= ceil(share) + 1 for low, n in zip(least, counts, strict=True))


def every_layout(job: Job) -> tuple[Plans, list[Plan], NDArray[np.int64]] | None:
    """All plans, all layouts of all of them and the plan that each is of; None when there are too many to price."""
    parts = list(lattice(job, structural(job)))
    every = Plans.joined(parts) if parts else None
    if every is None or len(every) > MOST_PLANS:
        return None
    found: list[Plan] = []
    owners: list[int] = []
    for index in range(len(every)):
        some = list(layouts(job, every.plan(index)))
        found, owners = found + some, owners + [index] * len(some)
        if len(found) > MOST_LAYOUTS:
            return None
    return every, found, np.array(owners, dtype=np.int64)


def settings_of(job: Job, plans: Plans) -> tuple[KnobColumns, ...]:
    """The knobs of each plan: its own, and those with none and with all of the optimizer that may be on the host."""
    layer_costs = layer_costs_of(job, plans)
    own = tuned(layer_costs).knobs
    return own, replace(own, offload=0 * own.offload), replace(own, offload=at_most_offload(layer_costs).offload)


def at_least(job: Job, plans: list[Plan], knobs: KnobColumns, risk: float) -> KnobColumns:
    """The settings with as much of the optimizer on the host as each of these layouts needs at a risk."""
    needs = []
    for start in range(0, len(plans), AT_ONCE):
        layer_costs = at_risk(layer_costs_of(job, Plans.of(plans[start : start + AT_ONCE])), risk)
        needs.append(HostNeed.of(layer_costs, stages_of(job.model, layer_costs.plans)).least(layer_costs.job)[0])
    return replace(knobs, offload=np.concatenate(needs))


def lowest(job: Job, plans: list[Plan], knobs: KnobColumns) -> float:
    """The least value of the plans that fit, each with settings of its own; infinite where none does."""
    best = np.inf
    for start in range(0, len(plans), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        layer_costs = layer_costs_of(job, Plans.of(plans[part]))
        costs = price_layer_costs(layer_costs, knobs.take(part))
        values = objective_of(job).value(layer_costs, knobs.take(part), costs.step_time, costs.reserved)
        fits = (costs.reserved <= safe_memory(job)) & fits_host(layer_costs, knobs.take(part))
        best = min(best, float(np.min(np.where(fits, values, np.inf))))
    return best


def compare(job: Job) -> bool:
    """The planner's answer against the best of all layouts that fit, each plan at its own settings and each layout with
    as little on the host as it needs; False where these are too many to price, or none.
    """
    every = every_layout(job)
    if every is None or not every[1]:
        return False
    plans, laid, owners = every
    answer, again = plan(job, top=2, trials=0), best_plan(job)
    best = min(lowest(job, laid, knobs.take(owners)) for knobs in settings_of(job, plans))
    own = settings_of(job, plans)[0].take(owners)
    least = min(lowest(job, laid, at_least(job, laid, own, each.risk)) for each in risk_classes(job))
    assert least <= best * (1 + 1e-9)
    if answer.plan is None or answer.certificate is None or answer.estimate is None:
        assert answer.status == "infeasible"
        assert again is None
        assert best == np.inf
        return True
    assert answer.status == "optimal"
    value = value_of(job, answer.plan, answer.knobs, answer.estimate)
    assert least * (1 - 1e-7) <= value <= least * (1 + 1e-7)
    assert answer.certificate.best == pytest.approx(value, rel=1e-9)
    assert answer.certificate.lower_bound <= least * (1 + 1e-7)
    best = value
    largest = columns(Knobs(bucket=1e9, comm_sm_share=0.3), len(laid))
    assert answer.certificate.knob_bound <= min(best, lowest(job, laid, largest)) * (1 + 1e-9)
    assert answer.estimate.reserved <= safe_memory(job)
    assert all(finding.holds for finding in placement_findings(job, answer.plan))
    assert all(value_of(job, o.plan, o.knobs, o.estimate) >= best * (1 - 1e-7) for o in answer.alternatives)
    assert again is not None
    assert (again.plan, again.knobs, again.estimate) == (answer.plan, answer.knobs, answer.estimate)
    (place,) = np.flatnonzero(alike_plans(plans, answer.plan))
    knobs = settings_of(job, plans)[0]
    assert replace(answer.knobs, offload=0.0) == Knobs(
        **{name: float(getattr(knobs, name)[place]) for name in ("bucket", "comm_sm_share")}
    )
    return True
