"""How much each uncertain input moves the answer for one design, and the interval that all of them leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optimizer.base.errors import InputError
from optimizer.job.plan import Plans
from optimizer.objectives.step.price import price
from optimizer.purchase.campaign import Campaign, Design
from optimizer.purchase.designs.figures import Figures, PlannedRun, figures
from optimizer.purchase.designs.points import Point, figures_in
from optimizer.purchase.ranges import Range, combined
from optimizer.purchase.uncertainty.inputs import own_assumptions

RESULTS = ("time_to_train", "cost", "energy", "co2")
NETWORK = "nic"


@dataclass(frozen=True, kw_only=True)
class Swing:
    """One input moved to its low and its high value."""

    name: str
    title: str
    low: float
    high: float
    unit: str
    results: Mapping[str, tuple[float, float]]  # (at low, at high) of each of RESULTS, in SI
    uncertain: bool = True  # False for a choice of the buyer, such as the NIC, which widens no interval

    def width(self, result: str) -> float:
        """Distance between the two results [unit of the result]."""
        at_low, at_high = self.results[result]
        return abs(at_high - at_low)


def tornado(campaign: Campaign, point: Point, result: str = "cost") -> tuple[Swing, ...]:
    """Each input at its low and high value, the others at their middle, widest swing of `result` first.

    The network is halved and doubled under the same plan.
    """
    swings = [*input_swings(campaign, point), *_network_swing(campaign, point)]
    return tuple(sorted(swings, key=lambda swing: (-swing.width(result), swing.name)))


def input_swings(campaign: Campaign, point: Point) -> list[Swing]:
    """Each uncertain input at its low and high value, the others at their middle."""
    swings = []
    for item in own_assumptions(campaign, point):
        ends = [
            figures_in(campaign, point, campaign.scenario(point.design, **{item.name: value}))
            for value in (item.value.low, item.value.high)
        ]
        low, high, results = item.value.low, item.value.high, _pairs(ends)
        swings.append(Swing(name=item.name, title=item.title, low=low, high=high, unit=item.unit, results=results))
    return swings


def intervals(point: Point, swings: Sequence[Swing]) -> dict[str, Range]:
    """Range of each of RESULTS when the uncertain inputs vary independently."""
    return {
        result: combined(getattr(point.figures, result), [swing.results[result] for swing in swings if swing.uncertain])
        for result in RESULTS
    }


def _network_swing(campaign: Campaign, point: Point) -> list[Swing]:
    bandwidth = point.design.network_bandwidth
    if not bandwidth:
        return []
    ends = []
    for factor in (0.5, 2.0):
        design = replace(point.design, nic=bandwidth * factor)
        try:
            planned = repriced(campaign, design, point)
        except InputError:
            return []
        ends.append(figures(campaign, design, planned, campaign.scenario(design), point.on_host))
    swing = Swing(
        name=NETWORK,
        title="network bandwidth per GPU",
        low=bandwidth * 0.5,
        high=bandwidth * 2.0,
        unit="B/s",
        results=_pairs(ends),
        uncertain=False,
    )
    return [swing]


def repriced(campaign: Campaign, design: Design, point: Point) -> list[PlannedRun]:
    """The point's plans on another design, without a new search."""
    planned = []
    for run, answer in zip(campaign.runs, point.answers, strict=True):
        if answer.plan is None or answer.estimate is None:
            raise InputError("a point without a plan cannot be priced again")
        job = design.job(campaign, run)
        costs = price(job, Plans.of([answer.plan]), answer.knobs)
        flops = answer.estimate.flops_per_gpu * answer.estimate.step_time * design.gpus
        estimate = costs.estimate(0, job.tokens, job.gpus, flops)
        planned.append(PlannedRun.of(job, answer.plan, answer.knobs, estimate))
    return planned


def _pairs(ends: Sequence[Figures]) -> dict[str, tuple[float, float]]:
    values = {result: tuple(float(np.asarray(getattr(end, result))) for end in ends) for result in RESULTS}
    return {result: (pair[0], pair[1]) for result, pair in values.items()}
