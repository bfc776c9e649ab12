"""Dominance in time, cost and energy: fronts, their hypervolume, and points that miss their limits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from optimizer.purchase.designs.points import Excess, Point

OBJECTIVES = ("time_to_train", "cost", "energy")
REFERENCE_MARGIN = 1.1


def objectives(points: Sequence[Point]) -> NDArray[np.float64]:
    """Time [s], cost [USD] and energy [J] of points, one row each."""
    rows = [[getattr(point.figures, name) for name in OBJECTIVES] for point in points]
    return np.array(rows, dtype=np.float64).reshape(-1, len(OBJECTIVES))


def non_dominated(points: Sequence[Point]) -> tuple[Point, ...]:
    """The points that none of the others dominates, fastest first; of equal points the first one.

    a dominates b when it is no worse in time, cost and energy and better in one of them.
    """
    import moocore

    if not points:
        return ()
    on_front = moocore.is_nondominated(objectives(points), keep_weakly=False)
    front = [point for point, shown in zip(points, on_front, strict=True) if shown]
    return tuple(sorted(front, key=lambda point: tuple(objectives([point])[0])))


def hypervolume(points: Sequence[Point], reference: Sequence[float]) -> float:
    """Share of the box between the origin and `reference` that the points dominate [1].

    Source: Zitzler and Thiele, PPSN 1998; computed by moocore.
    """
    import moocore

    if not points:
        return 0.0
    return float(moocore.hypervolume(objectives(points) / np.asarray(reference), ref=np.ones(len(OBJECTIVES))))


def shortlist(
    front: Sequence[Point], wanted: Sequence[Point], reference: Sequence[float], count: int = 8
) -> tuple[Point, ...]:
    """The wanted points and those that add most hypervolume to them, at most `count` in all, in the front's order."""
    chosen = list({id(point): point for point in wanted}.values())
    left = [point for point in front if all(point is not taken for taken in chosen)]
    while left and len(chosen) < count:
        best = max(left, key=lambda point: hypervolume([*chosen, point], reference))
        chosen.append(best)
        left = [point for point in left if point is not best]
    taken = {id(point) for point in chosen}
    return tuple(point for point in front if id(point) in taken)


def reference_point(points: Sequence[Point]) -> tuple[float, ...]:
    """A tenth beyond the worst feasible value of each objective; ones without a point."""
    if not points:
        return (1.0,) * len(OBJECTIVES)
    return tuple(float(value) for value in REFERENCE_MARGIN * objectives(points).max(axis=0))


def nearest_points(points: Sequence[Point], count: int = 3) -> tuple[Point, ...]:
    """The points whose worst excess over a limit is smallest, best first, one for each kind of machine."""
    best: dict[str, Point] = {}
    for point in sorted(points, key=worst_excess):
        best.setdefault(point.design.kind, point)
    return tuple(best.values())[:count]


def worst_excess(point: Point) -> float:
    """How far the point lies beyond the limit that it breaks most [1]; 0 for a feasible one."""
    return max((excess.share for excess in point.excesses), default=0.0)


def binding_limits(points: Sequence[Point]) -> dict[str, int]:
    """For each limit that is broken, how many points would be feasible without it alone."""
    names = {excess.limit for point in points for excess in point.excesses}
    return {
        name: sum(all(excess.limit == name for excess in point.excesses) for point in points) for name in sorted(names)
    }


def smallest_excess(points: Sequence[Point], limit: str) -> Excess:
    """The least by which one limit is missed, over the points that break it."""
    return min(
        (excess for point in points for excess in point.excesses if excess.limit == limit),
        key=lambda excess: excess.share,
    )
