"""The Pareto front of a campaign: which designs no other one beats in time, cost and energy at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from optimizer.purchase.campaign import Campaign
from optimizer.purchase.designs.front import hypervolume, nearest_points, non_dominated, reference_point
from optimizer.purchase.designs.outer import Grid, explore
from optimizer.purchase.designs.points import Planner, Point, Rejected, Workshop, check_kinds, default_planner


@dataclass(frozen=True, kw_only=True)
class Purchase:
    """The answer to a campaign."""

    campaign: Campaign
    points: tuple[Point, ...]
    rejected: tuple[Rejected, ...]
    front: tuple[Point, ...]  # points that no feasible point dominates, fastest first
    hypervolume: float  # share of that box which the front dominates [1]
    reference: tuple[float, ...]  # corner of the hypervolume box, by objective in SI
    trace: tuple[float, ...] = ()  # the same after each trial of the continuous search
    seed: int = 0
    nearest: tuple[Point, ...] = ()  # points closest to the limits when nothing is feasible

    @property
    def feasible(self) -> tuple[Point, ...]:
        """Every evaluated point within all limits."""
        return tuple(point for point in self.points if point.feasible)


def pareto(
    campaign: Campaign,
    grid: Grid,
    *,
    planner: Planner = default_planner,
    ranges: dict[str, tuple[float, float]] | None = None,
    trials: int = 0,
    sampler: str = "tpe",
    seed: int = 0,
    on_point: Callable[[], None] = lambda: None,
) -> Purchase:
    """Evaluate every design of the grid, then `trials` more within continuous `ranges`, and keep the front.

    ranges: bounds by continuous variable of Design ("nic", "oversubscription", "power_cap", "batch_factor", "hbm"), in
    SI. Raises InputError for a kind of machine without a price or a power figure.
    """
    designs = tuple(grid.designs())
    caps = (ranges or {}).get("power_cap", ())
    check_kinds(campaign, [*designs, *(replace(designs[0], power_cap=cap) for cap in caps)])
    workshop = Workshop(campaign=campaign, planner=planner, on_point=on_point)
    for design in designs:
        workshop.point(design)
    explored: tuple[Point | Rejected, ...] = ()
    if trials and ranges:
        explored = explore(workshop, grid, ranges, trials=trials, sampler=sampler, seed=seed)
    return purchase(workshop, explored, seed)


def purchase(workshop: Workshop, explored: Sequence[Point | Rejected] = (), seed: int = 0) -> Purchase:
    """The answer from everything that a workshop has evaluated."""
    points = workshop.evaluated
    feasible = [point for point in points if point.feasible]
    reference = reference_point(feasible)
    return Purchase(
        campaign=workshop.campaign,
        points=points,
        rejected=workshop.rejected,
        front=non_dominated(feasible),
        hypervolume=hypervolume(feasible, reference),
        reference=reference,
        trace=_trace(feasible, explored, reference),
        seed=seed,
        nearest=() if feasible else nearest_points(points),
    )


def _trace(
    feasible: Sequence[Point], explored: Sequence[Point | Rejected], reference: Sequence[float]
) -> tuple[float, ...]:
    """Hypervolume after the grid and after each trial, for the judgement whether the search has settled."""
    if not explored:
        return ()
    later = {id(point) for point in explored}
    seen = [point for point in feasible if id(point) not in later]
    volumes = [hypervolume(seen, reference)]
    for point in explored:
        if isinstance(point, Point) and point.feasible:
            seen.append(point)
            volumes.append(hypervolume(seen, reference))
        else:
            volumes.append(volumes[-1])
    return tuple(volumes)
