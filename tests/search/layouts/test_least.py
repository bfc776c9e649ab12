"""What layouts take at least is held against all of them, as is what is said to be the fastest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import inf

import numpy as np
import pytest

from optimizer.base.errors import Infeasible
from optimizer.objectives.arrays import FloatArray
from optimizer.search.layouts.problem import LayoutProblem
from optimizer.search.layouts.solve.layout import best_assignment
from optimizer.search.layouts.solve.least import least_objective, least_once, least_slowest, most_layers, once_forms
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


def heavy_ended(seed: int) -> LayoutProblem:
    """A thousandth of the time, but ends that take as long as many layers, and layers that are always recomputed."""
    problem, rng = uniform(seed), np.random.default_rng(seed)
    more = {"embedding": rng.choice([0.0, 9.0]), "dense": 0.0, "head": rng.choice([0.0, 20.0])}
    kinds = {
        kind: replace(
            layer,
            forward=(layer.forward + more[kind]) / 1000,
            backward=(layer.backward + more[kind]) / 1000,
            always=float(rng.uniform(0, 2) + more[kind]) / 1000,
            **{name: getattr(layer, name) / 1000 for name in ONCE},
        )
        for kind, layer in problem.kinds.items()
    }
    return replace(problem, kinds=kinds, usable=inf, seconds=problem.seconds / 1000)


@pytest.mark.parametrize("seed", range(cases(300, sample=60)))
def test_no_layout_with_heavy_ends_beats_the_bound(seed: int) -> None:
    problem = heavy_ended(seed)
    cuts = few_cuts(problem, inf)
    assert cuts is not None
    best = float(cuts.loads(problem, {}).least.min())
    assert 0 < least_objective(problem) <= least_objective(problem, best) <= best


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_the_least_time_of_the_slowest_stage_lies_between_two_that_are_close(seed: int, alike: bool) -> None:
    """Of all numbers of layers on stages, none recomputed or the first of each."""
    problem = heavy_ended(seed)
    pp = seed % 3 + 1
    problem = replace(problem, pp=pp, in_flight=(1.0,) * pp, alike=alike)
    dense = replace(problem.kinds["dense"], recompute=0.0005)
    problem = replace(problem, kinds={**problem.kinds, "dense": dense})
    ends = [problem.seconds] * pp
    ends[0] += problem.kinds["embedding"].seconds
    ends[-1] += problem.kinds["head"].seconds

    def seconds(counts: tuple[int, ...]) -> float:
        return max(
            end + count * dense.seconds + alike * bool(count) * dense.recompute
            for count, end in zip(counts, ends, strict=True)
        )

    total = problem.layers
    every_count = [counts for counts in product(range(total + 1), repeat=pp) if sum(counts) == total]
    least = min(map(seconds, every_count))
    low, high = least_slowest(problem)
    assert low <= least * (1 + 1e-12)
    assert high >= least * (1 - 1e-8)
    assert high - low < 1e-6 * problem.whole
    assert most_layers(problem, low * (1 - 1e-8)).tolist() == [0] * pp
    for slowest in (least, 1.5 * least, *(end + dense.seconds + dense.recompute / 2 for end in ends)):
        room = [
            sum(end + n * dense.seconds + alike * dense.recompute <= slowest for n in range(1, total + 1))
            for end in (end * (1 - 1e-9) for end in ends)
        ]
        holds = sum(room) >= total and max(ends) * (1 - 1e-9) <= slowest
        assert most_layers(problem, slowest).tolist() == (room if holds else [0] * pp)


@pytest.mark.parametrize("vpp", [1, 2, 3])
def test_what_a_stage_does_once_is_the_longest_of_its_forms(vpp: int) -> None:
    rng = np.random.default_rng(vpp)
    for _ in range(12):
        counts = dict(zip(("embedding", "dense", "head"), rng.integers(0, 5, 3).tolist(), strict=True))
        problem = replace(uniform(int(rng.integers(0, 100))), vpp=1)
        problem = replace(problem, vpp=vpp, pp=2, in_flight=(1.0, 1.0))

        def total(name: str, problem: LayoutProblem = problem, counts: dict[str, int] = counts) -> FloatArray:
            return np.asarray(sum(n * getattr(problem.kinds[kind], name) for kind, n in counts.items()))

        forms = [sum(n * form[kind] for kind, n in counts.items()) for form in once_forms(problem)]
        assert max(forms) == pytest.approx(float(problem.once(total)), abs=1e-12)


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
    [(uniform, (3.19425324, 3.20175724, 0.35876780)), (of_two_kinds, (2.40271686, 2.40271686, 0.0))],
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
