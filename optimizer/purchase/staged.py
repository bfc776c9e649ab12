"""Machines that come one delivery after the other: when the runs end on them, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from optimizer.purchase.campaign import Campaign, TrainingRun
from optimizer.purchase.designs.figures import Figures
from optimizer.purchase.designs.points import Point, figures_in
from optimizer.purchase.ranges import Range, combined
from optimizer.purchase.uncertainty.inputs import own_assumptions


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """So many GPUs more, so long after the first day [s]."""

    gpus: int
    at: float


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """One run on one number of GPUs, without a change [s]."""

    run: int
    gpus: int
    start: float
    end: float


@dataclass(frozen=True, kw_only=True)
class Course:
    """What happens when: time to train [s], cost [USD], energy of the site [J]."""

    stretches: tuple[Stretch, ...]
    time_to_train: float
    cost: float
    energy: float


@dataclass(frozen=True, kw_only=True)
class Staged:
    """One kind of machine in deliveries."""

    deliveries: tuple[Delivery, ...]
    points: tuple[Point, ...]  # as if all GPUs of a stage were there from the first day
    course: Course
    ranges: Mapping[str, Range]  # of time_to_train, cost and energy
    in_limits: bool  # whether every date, the deadline and the budget hold


def totals(deliveries: Sequence[Delivery]) -> tuple[int, ...]:
    """GPUs that are there after each delivery.

    >>> totals([Delivery(gpus=2048, at=0.0), Delivery(gpus=1024, at=1e7)])
    (2048, 3072)
    """
    return tuple(sum(item.gpus for item in deliveries[: index + 1]) for index in range(len(deliveries)))


def course(
    runs: Sequence[TrainingRun], deliveries: Sequence[Delivery], stages: Sequence[Figures], restart: float
) -> Course:
    """The runs one after the other, each on all GPUs that are there; a delivery stops the run for a restart [s].

    stages: the figures of the whole campaign on the GPUs of each stage. A stage does the same share of a run in a
    second as if it did all of it, and costs and draws the same a second.
    """
    dates = [*(item.at for item in deliveries[1:]), float("inf")]
    stretches: list[Stretch] = []
    stage, now = 0, deliveries[0].at
    for number, run in enumerate(runs):
        now, left = max(now, run.start), 1.0
        while left > 0:
            while now >= dates[stage]:
                stage += 1
            whole, gpus = stages[stage].walls[number], totals(deliveries)[stage]
            end = now + left * whole
            if end <= dates[stage]:
                stretches.append(Stretch(run=number, gpus=gpus, start=now, end=end))
                now, left = end, 0.0
            else:
                stretches.append(Stretch(run=number, gpus=gpus, start=now, end=dates[stage]))
                left -= (dates[stage] - now) / whole
                now = dates[stage] + restart
    starts = [item.at for item in deliveries]
    lasting = [max(0.0, min(until, now) - since) for since, until in zip(starts, dates, strict=True)]
    return Course(
        stretches=tuple(stretches),
        time_to_train=now,
        cost=sum(each.cost / each.time_to_train * time for each, time in zip(stages, lasting, strict=True)),
        energy=sum(each.mean_power * time for each, time in zip(stages, lasting, strict=True)),
    )


def staged(campaign: Campaign, deliveries: Sequence[Delivery], points: Sequence[Point]) -> Staged:
    """One kind of machine in deliveries; points: its design with the GPUs of each stage."""

    def at(values: Mapping[str, float]) -> Course:
        stages = [figures_in(campaign, point, values) for point in points]
        return course(campaign.runs, deliveries, stages, values["restart"])

    design = points[-1].design
    middle = at(campaign.scenario(design))
    ends = [
        tuple(at(campaign.scenario(design, **{item.name: value})) for value in (item.value.low, item.value.high))
        for item in own_assumptions(campaign, points[-1])
        if item.value.low != item.value.high
    ]

    def span(result: Callable[[Course], float]) -> Range:
        return combined(result(middle), [(result(low), result(high)) for low, high in ends])

    bounds = campaign.bounds
    last = {item.run: item.end for item in middle.stretches}
    dates = all(last[number] <= run.by for number, run in enumerate(campaign.runs))
    return Staged(
        deliveries=tuple(deliveries),
        points=tuple(points),
        course=middle,
        ranges={
            "time_to_train": span(lambda path: path.time_to_train),
            "cost": span(lambda path: path.cost),
            "energy": span(lambda path: path.energy),
        },
        in_limits=dates and middle.time_to_train <= bounds.deadline and middle.cost <= bounds.budget,
    )


def by_kind(campaign: Campaign, deliveries: Sequence[Delivery], points: Sequence[Point]) -> tuple[Staged, ...]:
    """Every kind of machine that has a plan for each stage: those within the limits first, cheapest first."""
    if not deliveries:
        return ()
    every = []
    for kind in dict.fromkeys(point.design.kind for point in points):
        mine = {point.design.gpus: point for point in points if point.design.kind == kind}
        wanted = [mine[count] for count in totals(deliveries) if count in mine]
        if len(wanted) == len(deliveries):
            every.append(staged(campaign, deliveries, wanted))
    return tuple(sorted(every, key=lambda item: (not item.in_limits, item.course.cost)))
