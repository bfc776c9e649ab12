"""Problems that were solved are not solved again, but for more than they were asked about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.base.errors import Infeasible
from optimizer.search.layouts.problem import LayoutProblem
from optimizer.search.layouts.solve import layout
from optimizer.search.layouts.solve.layout import Layout, Solved, best_assignment
from tests.search.layouts.problems import costs

LAYERS = LayoutProblem(
    **costs(
        {
            "embedding": {},
            "dense": {"forward": 1.0, "backward": 2.0, "static": 1.0, "per_step": 0.5, "hosted": 0.25},
            "head": {"forward": 0.5, "backward": 1.0, "static": 1.0},
        }
    ),
    sequence=(("embedding", 1), ("dense", 6), ("head", 1)),
    pp=2,
    microbatches=8,
    in_flight=(2.0, 1.0),
    usable=100.0,
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the solver is asked for, each time that it is [s]."""
    limits: list[float] = []

    def solve(problem: LayoutProblem, *, at_most: float, **others: object) -> Layout:
        limits.append(at_most)
        return best_assignment(problem, at_most=at_most)

    monkeypatch.setattr(layout, "best_assignment", solve)
    return limits


def test_the_same_costs_are_solved_once(asked: list[float]) -> None:
    memory = Solved()
    first = memory.best(LAYERS)
    assert memory.best(replace(LAYERS, kinds=dict(LAYERS.kinds))) is first
    assert len(asked) == 1
    assert memory.best(replace(LAYERS, microbatches=4)).objective < first.objective
    assert len(asked) == 2


def test_what_no_layout_does_is_remembered_up_to_its_limit(asked: list[float]) -> None:
    memory, best = Solved(), best_assignment(LAYERS).objective
    for limit in (0.9 * best, 0.8 * best):
        with pytest.raises(Infeasible):
            memory.best(LAYERS, limit)
    assert asked == [0.9 * best]
    assert memory.best(LAYERS, best).objective == pytest.approx(best)


@pytest.mark.parametrize("share", [0.999, 1.001])
def test_a_limit_counts_what_a_layout_has_on_the_host(share: float) -> None:
    """Stages of three layers fit with a quarter of their state on the host, which takes 0.25 s a layer there."""
    layers = {**LAYERS.memory.layers, "dense": replace(LAYERS.memory.layers["dense"], state=0.8)}
    tight = replace(LAYERS, memory=replace(LAYERS.memory, layers=layers), usable=3.4, more=10_000)
    best = best_assignment(tight)
    assert best.more == 2_500
    assert best.objective == pytest.approx(best.pipeline + 3 * (0.5 + 0.25 * 0.25))
    if share > 1:
        assert best_assignment(tight, at_most=best.objective * share).objective == pytest.approx(best.objective)
    else:
        with pytest.raises(Infeasible):
            best_assignment(tight, at_most=best.objective * share)
