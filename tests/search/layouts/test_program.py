"""The program of layouts, which CP-SAT solves where cuts are too many to compare, against a comparison of all cuts."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from optimizer.base.errors import Infeasible
from optimizer.objectives.pipeline.stages import Runs
from optimizer.search.layouts.problem import LayoutProblem
from optimizer.search.layouts.solve.fastest_shape import fastest, least_memory_shape
from optimizer.search.layouts.solve.layout import _Effort, least_memory_assignment, shaped_layout
from optimizer.search.layouts.solve.least_memory import filled, fitting_layout, least_memory_layout
from optimizer.search.layouts.solve.program import LayoutProgram
from optimizer.search.layouts.solve.shapes import StageShapes, few_cuts
from tests.search.layouts.problems import Layer, costs
from tests.thorough import cases

ONCE = ("reduced", "gathered", "cover_backward", "cover_forward")


def problem_of(seed: int) -> LayoutProblem:
    """Kinds in runs or in turn, recomputed alike or stage by stage, states on the host: all that a problem may have."""
    rng = np.random.default_rng(seed)

    def some(most: int) -> float:
        return float(rng.integers(0, most + 1))

    def layer(chosen: bool) -> Layer:
        forward, kept, once = 1 + some(3), 2 + some(3), {name: some(3) for name in ONCE}
        times = {"forward": forward, "backward": 2 * forward, "always": some(1), "recompute": chosen * forward, **once}
        sizes = {"static": 8 + some(3), "state": hosts * (4 + some(4)), "in_flight": kept, "hosted": some(1)}
        again = {"recomputed": 1.0, "recomputing": some(2), "chosen": 1.0} if chosen else {"recomputed": kept}
        return {
            **times,
            **sizes,
            **again,
            "per_step": once["reduced"] + once["gathered"] + some(2),
            "recompute_price": chosen * some(2),
            "hosted": hosts * 5 * some(2),
            "host_in_flight": some(1) / 2,
        }

    pp, hosts, alike, chosen = 2 + seed % 3, float(seed % 4 == 1), seed % 4 == 2, (seed % 4 > 0, seed % 3 > 0)
    runs: Runs = (("dense", 2 + seed % 2), ("moe", 3 + seed % 3)) if seed % 5 else (("dense", 1), ("moe", 1)) * 3
    runs = (("dense", 6),) if seed % 7 == 0 else runs
    mtp = (("mtp", 1 + seed % 2),) * (seed % 6 < 3)
    kinds: dict[str, Layer] = {
        "embedding": {"static": 3.0, "in_flight": 0.5, "forward": some(1), "state": hosts * 3, "per_step": some(3)},
        "dense": layer(chosen[0]),
        "moe": layer(chosen[1]),
        "mtp": layer(alike and any(chosen)),
        "head": {"forward": 1 + some(4), "backward": 2 + some(6), "static": 3.0, "freed": some(2), "state": hosts * 3},
    }
    alternates = bool(seed % 3)
    problem = LayoutProblem(
        **costs(kinds, fixed=1.0),
        sequence=(("embedding", 1), *runs, *mtp, ("head", 1)),
        pp=pp,
        microbatches=int(rng.integers(1, 3 * pp + 2)),
        in_flight=tuple(float(pp - stage) for stage in range(pp)),
        usable=inf,
        seconds=some(1) / 2,
        filled=0.0 if alternates else some(4),
        hides=float(rng.uniform(0, 1)),
        alike=alike and any(chosen),
        more=2000 * int(hosts),  # a fifth of all
        hosted_price=hosts * 5 * some(2),
        alternates=alternates,
    )
    roomy = shaped_layout(problem, fastest(problem, every_cut(problem)))
    assert roomy is not None
    # No layout fills them exactly: the program rounds bytes up.
    usable, host = rng.uniform(0.8, 1.0) * max(roomy.memory), rng.uniform(0.8, 1.4) * max(roomy.on_host)
    return replace(problem, usable=round(usable) + 0.23, host_memory_per_gpu=inf if seed % 3 else round(host) + 1.23)


def every_cut(problem: LayoutProblem) -> StageShapes:
    cuts = few_cuts(problem, inf)
    assert cuts is not None
    return cuts


@pytest.mark.parametrize("seed", range(cases(360, sample=32)))
def test_the_program_finds_what_a_comparison_of_all_cuts_does(seed: int) -> None:
    problem = problem_of(seed)
    every = every_cut(problem)
    best, cuts = shaped_layout(problem, fastest(problem, every)), set(map(tuple, every.counts.tolist()))
    effort = _Effort(seed=0, time_limit=None, effort=None)
    if best is None:
        with pytest.raises(Infeasible):
            list(effort.layouts(LayoutProgram(problem)))
        return
    for at_most in (inf, best.objective * (1 + 1e-4)):
        *_, found = effort.layouts(LayoutProgram(problem, at_most))
        assert found is not None
        assert found.proven
        assert found.fits(problem)
        assert found.layers_per_stage in cuts
        assert found.objective == pytest.approx(best.objective, rel=1e-5)
    with pytest.raises(Infeasible):
        list(effort.layouts(LayoutProgram(problem, best.objective * (1 - 1e-3))))


def test_moe_layers_are_recomputed_before_dense_ones_though_these_cost_less() -> None:
    """One of two has to be recomputed, and either is enough."""
    layer = {"forward": 1.0, "backward": 2.0, "in_flight": 10.0, "chosen": 1.0}
    kinds: dict[str, Layer] = {"dense": {**layer, "recompute": 1.0}, "moe": {**layer, "recompute": 3.0}}
    problem = LayoutProblem(
        **costs({"embedding": {}, **kinds, "head": {}}),
        sequence=(("embedding", 1), ("dense", 1), ("moe", 1), ("head", 1)),
        pp=1,
        microbatches=4,
        in_flight=(1.0,),
        usable=12.0,
    )
    *_, found = _Effort(seed=0, time_limit=None, effort=None).layouts(LayoutProgram(problem))
    assert found is not None
    assert found.recomputed == ((("moe", 1),),)
    fewest = shaped_layout(problem, fastest(problem, every_cut(problem)))
    assert fewest is not None
    assert fewest.recomputed == found.recomputed


@pytest.mark.parametrize("seed", range(cases(360, sample=32)))
def test_the_least_memory_is_that_of_a_comparison_of_all_cuts(seed: int) -> None:
    problem = replace(problem_of(seed), usable=1000.23, more=0, host_memory_per_gpu=inf)
    best = shaped_layout(problem, least_memory_shape(problem))
    assert best is not None
    least = max(best.memory)
    found = least_memory_layout(problem)
    assert found is not None
    assert max(found.memory) == pytest.approx(least, rel=2e-6)
    cuts = set(map(tuple, every_cut(problem).counts.tolist()))
    assert max(least_memory_assignment(problem).memory) == pytest.approx(least, rel=1e-5)
    full, possible = filled(replace(problem, usable=(1 + 1e-6) * least))
    assert possible
    assert full is not None  # stage after stage, without a solver
    assert max(full.memory) <= (1 + 1e-6) * least
    for room, fits in ((1 + 1e-6, True), (1 - 1e-4, False)):
        fitting = fitting_layout(replace(problem, usable=room * least))
        assert (fitting is not None) is fits
        assert fitting is None or fitting.layers_per_stage in cuts
    roomy = fitting_layout(problem)
    assert roomy is not None
    assert {roomy.layers_per_stage, found.layers_per_stage} <= cuts


def test_mtp_layers_lie_before_a_head_that_fills_its_stage() -> None:
    sizes = {"embedding": 0.0, "dense": 1.0, "mtp": 3.0, "head": 3.0}
    problem = LayoutProblem(
        **costs({kind: {"static": size, "forward": 1.0, "backward": 2.0} for kind, size in sizes.items()}),
        sequence=(("embedding", 1), ("dense", 3), ("mtp", 1), ("head", 1)),
        pp=4,
        microbatches=4,
        in_flight=(1.0,) * 4,
        usable=4.01,
    )
    *_, found = _Effort(seed=0, time_limit=None, effort=None).layouts(LayoutProgram(problem))
    assert found is not None
    assert dict(found.kinds[2])["mtp"] == 1
    assert found.kinds[3] == (("head", 1),)


@pytest.mark.parametrize(("usable", "alike", "first"), [(7.01, True, 1), (4.01, True, 0), (7.01, False, 0)])
def test_stages_recompute_the_first_of_their_layers(usable: float, alike: bool, first: int) -> None:
    """Two of four bytes on each of two stages; to recompute one saves two."""
    layer = {"forward": 1.0, "backward": 2.0, "static": 1.0, "in_flight": 3.0, "recomputed": 1.0, "chosen": 1.0}
    problem = LayoutProblem(
        **costs({"embedding": {}, "dense": {**layer, "recompute": 1.0}, "head": {}}),
        sequence=(("embedding", 1), ("dense", 4), ("head", 1)),
        pp=2,
        microbatches=4,
        in_flight=(1.0, 1.0),
        usable=usable,
        alike=alike,
    )
    *_, found = _Effort(seed=0, time_limit=None, effort=None).layouts(LayoutProgram(problem))
    assert found is not None
    assert found.first == first
