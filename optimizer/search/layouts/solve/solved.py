"""Layouts that were found, so that plans whose layers cost the same are solved once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, fields
from math import inf

from optimizer.base.errors import Infeasible
from optimizer.search.layouts.problem import LayoutProblem
from optimizer.search.layouts.solve.layout import Layout, best_assignment


@dataclass
class Solved:
    """Problems with their best layouts; None where no layout has a pipeline of so many seconds.

    CP 2 with micro-batches of one sequence and CP 4 with two, for one, are one problem.
    seed, effort: of best_assignment.
    """

    seed: int = 0
    effort: float | None = None
    known: dict[Hashable, tuple[float, Layout | None]] = field(default_factory=dict)

    def best(self, problem: LayoutProblem, at_most: float = inf, time_limit: float | None = None) -> Layout:
        """The best layout, or one that a cut short search found; `time_limit` [s] is for what is not known.

        Raises Infeasible where no layout has a pipeline of `at_most` [s], TimeLimit where none was found in time.
        """
        key = _costs(problem)
        limit, layout = self.known.get(key, (-inf, None))
        if layout is not None:
            return layout
        if at_most <= limit:
            raise Infeasible(f"no layout has a pipeline of {at_most:.6g} s")
        try:
            layout = best_assignment(
                problem, seed=self.seed, time_limit=time_limit, effort=self.effort, at_most=at_most
            )
        except Infeasible:
            self.known[key] = at_most, None
            raise
        self.known[key] = at_most, layout
        return layout


def _costs(problem: LayoutProblem) -> Hashable:
    """All that decides about layouts."""
    rest = (getattr(problem, each.name) for each in fields(problem) if each.name not in ("kinds", "memory"))
    return tuple(problem.kinds.items()), tuple(problem.memory.layers.items()), problem.memory.fixed, *rest
