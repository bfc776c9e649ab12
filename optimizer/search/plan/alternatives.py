"""What else was close: runners-up of another structure, near-ties, and results too good to be believed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice

import numpy as np

from optimizer.answer.answer import Alternative, NearTies
from optimizer.constraints.given_layout import with_assigned_layers
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.arrays import FloatArray, ascending
from optimizer.objectives.layer.layer_costs import layer_costs_of, layer_costs_of_plan
from optimizer.objectives.minimised.registry import objective_of
from optimizer.objectives.step.estimate import Costs, Estimate
from optimizer.objectives.step.flops import useful_flops
from optimizer.objectives.step.price import price_layer_costs
from optimizer.search.lattice.enumerate import alike
from optimizer.search.lattice.knobs import OwnSettings, columns, joined_knobs, knobs_at
from optimizer.search.lattice.oracle import STRUCTURE, Points, Tuning
from optimizer.search.layouts.assigned import AssignedLayouts, Candidate, ProofPlans
from optimizer.search.layouts.candidates import place

PLACED = 8  # runners-up whose layers are placed
LOWEST = 4  # plans of the lowest bounds whose layers are placed besides

# Highest MFU published for training in 16-bit on each device, as its authors count FLOPs.
# A100: Hagemann et al., arXiv 2311.05610 (LLaMA 13B). H100: NVIDIA/dgxc-benchmarking, nemotron/README.md (15B).
# TPU v5e and v5p: AI-Hypercomputer/maxtext, README.md.
MEASURED_MFU: Mapping[str, float] = {
    "a100-40": 0.706,
    "a100-80": 0.706,
    "h100": 0.661,
    "tpu-v5e": 0.669,
    "tpu-v5p": 0.703,
}


def runners_up(points: Points, best: Plan, count: int) -> list[int]:
    """Positions of the best plans that fit, one per structure, none of the best plan's own, the best first."""
    order = ascending(points.values)
    columns = [getattr(points.plans, name) for name in STRUCTURE]
    seen = {structure(best)}
    chosen: list[int] = []
    for position in order[points.fits[order]]:
        key = tuple(int(column[position]) for column in columns)
        if len(chosen) >= count:
            break
        if key not in seen:
            seen.add(key)
            chosen.append(int(position))
    return chosen


def _lowest(proof: ProofPlans, best: Plan) -> list[Plan]:
    """The plans of the lowest bounds that may fit, of any structure but the best plan's own."""
    order = ascending(proof.values)
    plans = (proof.plans.plan(position) for position in order[proof.fits[order]].tolist())
    return [*islice((plan for plan in plans if structure(plan) != structure(best)), LOWEST)]


def _last(known: Iterable[tuple[tuple[int, ...], float]], count: int) -> float:
    """The value that the worst of `count` structures has at the most, infinite where fewer are known.

    >>> _last([((1,), 3.0), ((2,), 4.0), ((1,), 2.0)], 1), _last([((1,), 3.0), ((1,), 2.0)], 2)
    (2.0, inf)
    """
    least: dict[tuple[int, ...], float] = {}
    for key, value in known:
        least[key] = min(value, least.get(key, np.inf))
    return sorted(least.values())[count - 1] if len(least) >= count else np.inf


def structure(plan: Plan) -> tuple[int, ...]:
    """What makes a plan another one than a variant of it."""
    return tuple(getattr(plan, name) for name in STRUCTURE)


def alternatives(
    job: Job,
    points: Points,
    layouts: AssignedLayouts,
    best: Plan,
    value: float,
    count: int,
    tuning: Tuning,
    *,
    time_limit: float | None = None,
    own: OwnSettings | None = None,
) -> tuple[Alternative, ...]:
    """The runners-up of the best plan, whose `value` is in the unit of the objective, each at its own knobs.

    own: settings of the job's plans as far as they are known.

    The first of them, while there is time, get their best layouts; those that the search for the best plan has laid out
    stay as they are.
    """
    if not count:
        return ()
    positions = runners_up(points, best, count)
    chosen = [points.plans.plan(position) for position in positions]
    # Those of the lowest bounds too: some are no good evenly split.
    proof = None if job.layout_given else layouts.proof
    lowest = _lowest(proof, best) if proof else []
    searched = [] if job.layout_given else [*dict.fromkeys((*chosen[:PLACED], *lowest))]
    missing = [plan for plan in searched if plan not in layouts.placed]
    pool = [other for plan in searched if (other := layouts.placed.get(plan))]
    pool += [other for other in layouts.candidates if other.solved and structure(other.plan) != structure(best)]
    even = dict(zip(chosen, points.values[positions].tolist(), strict=True))
    known = [
        *((structure(other.plan), other.value) for other in pool),
        *((structure(plan), even[plan]) for plan in even),
    ]
    splits = np.array([even.get(plan, np.inf) for plan in missing])

    def below(placed: Sequence[Candidate | None]) -> FloatArray:
        now = ((structure(other.plan), other.value) for other in placed if other)
        return np.asarray(np.minimum(splits, _last((*known, *now), count)))

    others = place(job, Plans.of(missing), tuning, time_limit=time_limit, own=own, below=below) if missing else ()
    pool += [other for other in others if other]
    first: dict[tuple[int, ...], tuple[Plan, Knobs]] = {}
    for rank in ascending(np.array([other.value for other in pool])).tolist():
        first.setdefault(structure(pool[rank].plan), (pool[rank].plan, pool[rank].knobs))
    for position, plan in zip(positions, chosen, strict=True):
        first.setdefault(structure(plan), (with_assigned_layers(job, plan), knobs_at(points.knobs, position)))
    if not first:
        return ()
    plans, settings = zip(*first.values(), strict=True)
    costs, values = valued(job, plans, settings)
    return tuple(
        Alternative(
            plan=plans[index],
            knobs=settings[index],
            estimate=estimate_of(job, costs, index),
            slower=max(0.0, float(values[index]) / value - 1),
        )
        for index in ascending(values)[:count].tolist()
    )


def valued(job: Job, plans: Sequence[Plan], settings: Sequence[Knobs]) -> tuple[Costs, FloatArray]:
    """What plans cost, each at settings of its own, and their values [unit of the objective]."""
    layer_costs, knobs = layer_costs_of(job, Plans.of(plans)), joined_knobs([columns(each, 1) for each in settings])
    costs = price_layer_costs(layer_costs, knobs)
    return costs, objective_of(job).value(layer_costs, knobs, costs.step_time, costs.reserved)


def value_of(job: Job, plan: Plan, knobs: Knobs, estimate: Estimate) -> float:
    """What a plan is minimised by [unit of the objective]."""
    return objective_of(job).value_of(job, plan, knobs, estimate.step_time, estimate.reserved)


def estimate_of(job: Job, costs: Costs, index: int) -> Estimate:
    """One plan's breakdown, with the rates of the whole job."""
    useful = useful_flops(job)
    return costs.estimate(index, job.tokens, job.gpus, useful)


@lru_cache(maxsize=256)
def estimate_of_plan(job: Job, plan: Plan, knobs: Knobs) -> Estimate:
    """One plan's breakdown at its knobs: edits and answers ask for those of the same plans again and again."""
    return estimate_of(job, price_layer_costs(layer_costs_of_plan(job, plan), knobs), 0)


def near_ties(points: Points, best: Plan, value: float, others: Sequence[Alternative] = ()) -> NearTies:
    """How many other plans come within 1 % and 5 % of the best: evenly split, if they fit so, or with the layouts of
    `others`.
    """
    ratios = np.where(points.fits & ~alike(points.plans, best), points.values, np.inf) / value
    unseen: list[float] = []
    for item in others:
        same = alike(points.plans, item.plan)
        ratios[same] = np.minimum(ratios[same], 1.0 + item.slower)
        unseen += [] if same.any() else [1.0 + item.slower]
    ratio = np.append(ratios, unseen)
    return NearTies(within_1_percent=int(np.sum(ratio <= 1.01)), within_5_percent=int(np.sum(ratio <= 1.05)))


def flags(job: Job, estimate: Estimate) -> tuple[str, ...]:
    """Warnings about an estimate: an MFU above anything measured on the device."""
    name = job.cluster.device.name
    ceiling = MEASURED_MFU.get(name)
    if ceiling is None or estimate.mfu <= ceiling:
        return ()
    return (
        f"MFU {estimate.mfu:.1%} is above the {ceiling:.0%} that is the highest published for {name}: "
        "take the step time as a lower bound",
    )
