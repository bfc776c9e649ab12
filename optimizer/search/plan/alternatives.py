"""What else was close: runners-up of another structure, near-ties, and results too good to be believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from optimizer.answer.answer import Alternative, NearTies
from optimizer.constraints.given_layout import with_assigned_layers
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.step.estimate import Costs, Estimate
from optimizer.objectives.step.flops import model_flops
from optimizer.objectives.step.price import price
from optimizer.search.lattice.enumerate import alike
from optimizer.search.lattice.knobs import columns, joined_knobs, knobs_at
from optimizer.search.lattice.oracle import STRUCTURE, Points, Tuning
from optimizer.search.layouts.assigned import LaidOut
from optimizer.search.layouts.candidates import place

PLACED = 8  # runners-up whose layers are placed

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
    """Positions of the fastest plans that fit, one per structure, none of the best plan's own, fastest first."""
    order = np.argsort(points.seconds, kind="stable")
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


def structure(plan: Plan) -> tuple[int, ...]:
    """What makes a plan another one than a variant of it."""
    return tuple(getattr(plan, name) for name in STRUCTURE)


def alternatives(
    job: Job,
    points: Points,
    laid: LaidOut,
    best: Plan,
    seconds: float,
    count: int,
    tuning: Tuning,
    *,
    time_limit: float | None = None,
) -> tuple[Alternative, ...]:
    """The runners-up of the best plan, whose step takes so many `seconds`, each at its own knobs.

    The first of them, while there is time, are as best laid out; those that the search for the best plan has laid out
    stay as they are.
    """
    positions = runners_up(points, best, count)
    chosen = [points.plans.plan(position) for position in positions]
    searched = [] if job.layout_given else chosen[:PLACED]
    missing = [plan for plan in searched if plan not in laid.placed]
    found_now = place(job, Plans.of(missing), tuning, time_limit=time_limit) if missing else ()
    placed = {**laid.placed, **dict(zip(missing, found_now, strict=False))}
    pool = [found for plan in searched if (found := placed.get(plan))]
    pool += [found for found in laid.candidates if found.solved and structure(found.plan) != structure(best)]
    first: dict[tuple[int, ...], tuple[Plan, Knobs]] = {}
    for found in sorted(pool, key=lambda candidate: candidate.seconds):
        first.setdefault(structure(found.plan), (found.plan, found.knobs))
    for position, plan in zip(positions, chosen, strict=True):
        if plan in searched and plan in placed:
            continue
        even = with_assigned_layers(job, plan), knobs_at(points.knobs, position)
        first.setdefault(structure(even[0]), even)
    if not first or not count:
        return ()
    plans, settings = zip(*first.values(), strict=True)
    costs = price(job, Plans.of(plans), joined_knobs([columns(knobs, 1) for knobs in settings]))
    return tuple(
        Alternative(
            plan=plans[index],
            knobs=settings[index],
            estimate=estimate_of(job, costs, index),
            slower=max(0.0, float(costs.step_time[index]) / seconds - 1),
        )
        for index in np.argsort(costs.step_time, kind="stable")[:count].tolist()
    )


def estimate_of(job: Job, costs: Costs, index: int) -> Estimate:
    """One plan's breakdown, with the rates of the whole job."""
    useful = model_flops(job.model, job.seq_len, 1.0) * job.tokens
    return costs.estimate(index, job.tokens, job.gpus, useful)


def near_ties(points: Points, best: Plan, seconds: float, others: Sequence[Alternative] = ()) -> NearTies:
    """How many other plans come within 1 % and 5 % of the best: evenly split, if they fit so, or as `others` are laid
    out.
    """
    times = np.where(points.fits & ~alike(points.plans, best), points.seconds, np.inf)
    unseen: list[float] = []
    for item in others:
        same = alike(points.plans, item.plan)
        times[same] = np.minimum(times[same], item.estimate.step_time)
        unseen += [] if same.any() else [item.estimate.step_time]
    ratio = np.append(times, unseen) / seconds
    return NearTies(within_1_percent=int(np.sum(ratio <= 1.01)), within_5_percent=int(np.sum(ratio <= 1.05)))


def flags(job: Job, estimate: Estimate, ceilings: Mapping[str, float] = MEASURED_MFU) -> tuple[str, ...]:
    """Warnings about an estimate: an MFU above anything measured on the device.

    `ceilings` maps the name of a device to the highest MFU published for it.
    """
    name = job.cluster.device.name
    ceiling = ceilings.get(name)
    if ceiling is None or estimate.mfu <= ceiling:
        return ()
    return (
        f"MFU {estimate.mfu:.1%} is above the {ceiling:.0%} that is the highest published for {name}: "
        "take the step time as a lower bound",
    )
