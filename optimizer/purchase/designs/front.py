"""Dominance in time, cost and energy: fronts, their hypervolume, and points that miss their limits."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

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
    front: dict[tuple[float, ...], Point] = {}
    for row, point in sorted(zip(map(tuple, objectives(points).tolist()), points, strict=True), key=itemgetter(0)):
        # What dominates a point comes before it.
        if not any(all(a <= b for a, b in zip(other, row, strict=True)) for other in front):
            front[row] = point
    return tuple(front.values())


def hypervolume(points: Sequence[Point], reference: Sequence[float]) -> float:
    """Share of the box between the origin and `reference` that the points dominate [1].

    The box is cut where a point's energy lies; each slab is the area below it, under the staircase of its points.

    Source: Zitzler and Thiele, PPSN 1998.
    """
    boxes = np.minimum(objectives(points) / np.asarray(reference), 1.0)
    boxes = boxes[np.argsort(boxes[:, 2], kind="stable")]
    slabs = np.diff(boxes[:, 2], append=1.0)
    return float(sum(slab * _area(boxes[: place + 1, :2]) for place, slab in enumerate(slabs) if slab))


def _area(corners: NDArray[np.float64]) -> float:
    """Area that points dominate in the unit square.

    >>> _area(np.array([[0.5, 0.25], [0.25, 0.5]]))
    0.5
    """
    stairs = corners[np.argsort(corners[:, 0], kind="stable")]
    return float(np.diff(stairs[:, 0], append=1.0) @ (1.0 - np.minimum.accumulate(stairs[:, 1])))


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
