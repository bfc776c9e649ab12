"""What layouts take at least is held against all of them, as is what is said to be the fastest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf

import numpy as np
import pytest

from optimizer.base.errors import Infeasible
from optimizer.search.layouts.problem import LayoutProblem
from optimizer.search.layouts.solve.layout import best_assignment
from optimizer.search.layouts.solve.least import least_objective, least_once
from optimizer.search.layouts.solve.shapes import every, few_cuts, near_cuts
from tests.search.layouts.problems import costs
from tests.search.layouts.test_shapes import interleaved
from tests.thorough import cases

ONCE = ("per_step", "reduced", "gathered", "cover_backward", "cover_forward")


def uniform(seed: int) -> LayoutProblem:
    """Layers of one kind in a 1F1B pipeline, which hide more or less of what they do once per step."""
    rng = np.random.default_rng(seed)
    pp, layers = int(rng.integers(2, 6)), int(rng.integers(5, 10))

    def layer(most: float) -> dict[str, float]:
        times = {name: float(rng.uniform(0, most)) for name in ("forward", "backward", *ONCE)}
        return times | {"per_step": times["per_step"] + times["reduced"] + times["gathered"], "static": 1.0}

    return LayoutProblem(
        **costs({"embedding": layer(rng.choice([0.0, 2.0])), "dense": layer(3.0), "head": layer(2.0)}),
        sequence=(("embedding", 1), ("dense", layers), ("head", 1)),
        pp=pp,
        microbatches=int(rng.integers(1, 4 * pp)),
        in_flight=tuple(float(pp - stage) for stage in range(pp)),
        usable=float(rng.choice([4.5, 100.0])),
        seconds=float(rng.choice([0.0, 0.5])),
        hides=float(rng.uniform(0, 1)),
        alternates=True,
    )


@pytest.mark.parametrize("seed", range(cases(300, sample=60)))
def test_no_layout_of_like_layers_beats_the_bound_and_the_best_is_the_fastest(seed: int) -> None:
    problem = uniform(seed)
    cuts = few_cuts(problem, inf)
    assert cuts is not None
    loads = cuts.loads(problem, {})
    best = float(np.where(loads.fits, loads.least, inf).min())
    if best == inf:
        with pytest.raises(Infeasible):
            best_assignment(problem)
        return
    assert max(least_objective(problem), least_objective(problem, best)) <= best
    assert best_assignment(problem).objective == pytest.approx(best, rel=1e-7)
    with pytest.raises(Infeasible):
        best_assignment(problem, at_most=best * (1 - 1e-4))


def of_two_kinds(seed: int) -> LayoutProblem:
    problem = interleaved(seed)
    flying = tuple(float(problem.pp - stage) for stage in range(problem.pp))
    return replace(problem, vpp=1, in_flight=flying, alternates=bool(seed % 4), alike=False)


@pytest.mark.parametrize("seed", range(cases(96, sample=24)))
def test_no_layout_of_two_kinds_of_layers_beats_the_bound(seed: int) -> None:
    problem = of_two_kinds(seed)
    every_cut = few_cuts(problem, inf)
    assert every_cut is not None
    assert least_objective(problem) <= every_cut.loads(replace(problem, usable=inf), {}).least.min()


@pytest.mark.parametrize(
    ("problem_of", "close"),
    [(uniform, (3.17659351, 3.18409751, 0.35876780)), (of_two_kinds, (2.40271686, 2.40271686, 0.0))],
    ids=("one kind", "two kinds"),
)
def test_bounds_are_as_close_as_they_were(
    problem_of: Callable[[int], LayoutProblem], close: tuple[float, float, float]
) -> None:
    """Of all layouts, of those that take at most a tenth more than their bound, and of what is done once per step."""
    problems = [problem_of(seed) for seed in range(130, 190)]
    all_of_them = [least_objective(problem) for problem in problems]
    bounds = [
        (least, least_objective(problem, 1.1 * least), least_once(problem))
        for problem, least in zip(problems, all_of_them, strict=True)
    ]
    whole = np.array([[problem.whole] for problem in problems])
    assert (np.array(bounds) / whole).mean(axis=0) == pytest.approx(close, rel=1e-6)


def test_what_fills_the_memory_to_the_last_byte_is_found() -> None:
    """The program rounds bytes up: two layers and what is beside them take one of its steps too many."""
    layer = {"forward": 1.0, "backward": 2.0, "static": 0.3}
    kinds = {"embedding": {}, "dense": {**layer, "per_step": 1.0}, "moe": {**layer, "per_step": 5.0}, "head": {}}
    problem = LayoutProblem(
        **costs(kinds, fixed=0.1),
        sequence=(("embedding", 1), ("dense", 48), ("moe", 48), ("head", 1)),
        pp=64,
        microbatches=576,
        in_flight=(1.0,) * 64,
        usable=0.7 * (1 + 1e-12),
    )
    layout = best_assignment(problem)
    assert layout.proven
    assert max(layout.layers_per_stage) == 2
    assert max(layout.memory) <= problem.usable


def test_a_pipeline_of_many_stages_is_proven_without_a_search() -> None:
    """96 layers on 64 stages can be cut in more ways than anything could compare."""
    layer = {"forward": 1.0, "backward": 2.0, "per_step": 5.0}
    problem = LayoutProblem(
        **costs({"embedding": {}, "dense": layer, "head": {"forward": 0.3, "backward": 0.5}}),
        sequence=(("embedding", 1), ("dense", 96), ("head", 1)),
        pp=64,
        microbatches=576,
        in_flight=tuple(range(64, 0, -1)),
        usable=1.0,
        alternates=True,
    )
    assert every(((0, 2), *[(1, 2)] * 62, (0, 2)), 96) is None
    assert len(near_cuts(problem)) <= 64
    layout = best_assignment(problem, effort=0.0)
    assert layout.proven
    assert layout.layers_per_stage == (*[2] * 32, *[1] * 32)
    assert layout.objective == pytest.approx(least_objective(problem, layout.objective), rel=1e-6)
