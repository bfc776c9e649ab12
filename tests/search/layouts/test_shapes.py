"""Shapes of virtual stages: all of them, priced as each is alone, and the fastest that fits."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf

import numpy as np
import pytest

from optimizer.base.errors import Infeasible
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.pipeline.schedules import in_flight
from optimizer.search.layouts.problem import (
    LayoutProblem,
    layout_problem,
    partly_recomputed_limits,
    recomputable,
    runs_of,
)
from optimizer.search.layouts.solve.fastest_shape import fastest, least_memory_shape
from optimizer.search.layouts.solve.layout import Layout, assess, best_assignment, recomputed_alike, shaped_layout
from optimizer.search.layouts.solve.shapes import (
    FEW,
    StageShapes,
    every,
    few_cuts,
    graded,
    least_slowest,
    nearly_even,
    shapes_of,
)
from tests.search.layouts.problems import Layer, costs
from tests.search.layouts.test_layout import random_problem
from tests.thorough import cases


def interleaved(seed: int) -> LayoutProblem:
    """A small problem of interleaved virtual stages, whose recomputation is chosen by stage or alike."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng)
    pp, vpp = (2, 2) if seed % 3 else (3, 2)
    flying = in_flight(Plans.of([Plan(pp=pp, vpp=vpp, schedule="interleaved")] * pp), np.arange(pp, dtype=np.float64))
    runs = (("dense", 2), ("moe", int(rng.integers(4, 7)))) if seed % 5 else (("dense", 1), ("moe", 1)) * 3
    ends = [run for run in problem.sequence if run[0] not in ("dense", "moe")]
    return replace(
        problem,
        sequence=(ends[0], *runs, *ends[1:]),
        pp=pp,
        vpp=vpp,
        microbatches=pp * int(rng.integers(1, 4)),
        in_flight=tuple(flying.tolist()),
        usable=float(rng.integers(40, 130)) + 0.25,
        alike=bool(seed % 2) and any(layer.chosen for layer in problem.memory.layers.values()),
    )


def choices(problem: LayoutProblem, shapes: StageShapes, row: int) -> list[Layout]:
    """A shape with everything that its stages may recompute."""
    runs = runs_of(problem, shapes.counts[row].tolist(), int(shapes.ahead[row]))
    again = recomputable(problem)
    if problem.alike:
        within = all(
            low <= n <= high
            for n, (low, high) in zip(shapes.counts[row], partly_recomputed_limits(problem), strict=True)
        )
        firsts = range(int(shapes.counts.max()) + 1) if within else (0,)
        return [recomputed_alike(problem, runs, first) for first in firsts]
    stages = []
    for stage in range(problem.pp):
        held = {kind: sum(dict(r).get(kind, 0) for r in runs[stage :: problem.pp]) for kind in again}
        numbers = [dict(zip(again, each, strict=True)) for each in product(*(range(n + 1) for n in held.values()))]
        both = set(again) >= {"dense", "moe"}
        stages.append([n for n in numbers if not both or not n["dense"] or n["moe"] == held["moe"]])
    return [assess(problem, runs, chosen) for chosen in product(*stages)]


@pytest.mark.parametrize("seed", range(cases(24, sample=12)))
def test_the_fastest_shape_is_that_of_exhaustion(seed: int) -> None:
    """With as few layers recomputed as lets it fit, in whatever way may be chosen."""
    problem = interleaved(seed)
    shapes = shapes_of(problem)
    listed = [layout for row in range(len(shapes)) for layout in choices(problem, shapes, row)]
    best = min((layout.objective for layout in listed if layout.fits(problem)), default=inf)
    found = shaped_layout(problem, fastest(problem, shapes))
    if best == inf:
        assert found is None
        return
    assert found is not None
    assert found.fits(problem)
    assert found.objective == pytest.approx(best, rel=1e-8)
    assert fastest(problem, shapes, best * (1 + 1e-6)) is not None
    assert fastest(problem, shapes, best * (1 - 1e-6)) is None


@pytest.mark.parametrize("seed", range(cases(48, sample=16)))
def test_few_cuts_hold_the_fastest_layout_without_virtual_stages(seed: int) -> None:
    """Whatever has to take less than some time is among them, with 1F1B and with a closed form."""
    problem = interleaved(seed)
    flying = tuple(float(problem.pp - stage) for stage in range(problem.pp))
    problem = replace(problem, vpp=1, in_flight=flying, alternates=bool(seed % 4), more=problem.more * (seed % 2))
    every_cut = few_cuts(problem, inf)
    assert every_cut is not None
    listed = [layout for row in range(len(every_cut)) for layout in choices(problem, every_cut, row)]
    best = min((layout.objective for layout in listed if layout.fits(problem)), default=inf)
    few = few_cuts(problem, problem.slowest_within(best * (1 + 1e-9)))
    assert few is not None
    found = shaped_layout(problem, fastest(problem, few, best * (1 + 1e-9)))
    assert (found.objective if found else inf) == pytest.approx(best, rel=1e-8)
    rooms = [len(few_cuts(problem, slowest) or ()) > 0 for slowest in (0.0, *least_slowest(problem))]
    assert rooms == [False, False, True]
    assert best == inf or best_assignment(problem).objective == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("seed", range(cases(24, sample=12)))
def test_the_leanest_shape_is_that_of_exhaustion(seed: int) -> None:
    problem = interleaved(seed)
    shapes = shapes_of(problem)
    listed = (layout for row in range(len(shapes)) for layout in choices(problem, shapes, row))
    found = shaped_layout(problem, least_memory_shape(problem))
    assert found is not None
    assert max(found.memory) == pytest.approx(min(max(layout.memory) for layout in listed), rel=1e-9)


def test_many_layouts_cost_what_each_of_them_does() -> None:
    job = Job(
        model=load_model("deepseek-v2-lite"),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=16,
        seq_len=2048,
        global_batch=64,
    )
    plan = Plan(pp=2, vpp=7, dp=8, ep=8, num_microbatches=8, schedule="interleaved")
    problem = layout_problem(job, plan)
    shapes = shapes_of(problem)
    loads = shapes.loads(problem, {})
    seconds = loads.pipeline + loads.stalled + loads.once
    assert len(shapes) > 100
    assert np.any(loads.stalled > 0)
    for row in range(0, len(shapes), 7):
        one = assess(problem, runs_of(problem, shapes.counts[row].tolist(), int(shapes.ahead[row])), [{}, {}])
        assert one.objective == pytest.approx(seconds[row], rel=1e-12)
        assert one.memory == pytest.approx(loads.memory[row].tolist(), rel=1e-12)
        assert one.layers_per_virtual_stage == tuple(shapes.counts[row].tolist())


def test_shapes_do_not_depend_on_what_anything_costs() -> None:
    """So that no restriction and no better hardware changes what is compared."""
    problem = interleaved(1)
    dearer = {kind: replace(cost, forward=3 * cost.forward) for kind, cost in problem.kinds.items()}
    smaller = {kind: replace(cost, in_flight=cost.in_flight / 2) for kind, cost in problem.memory.layers.items()}
    other = replace(problem, kinds=dearer, memory=replace(problem.memory, layers=smaller), usable=1e9, microbatches=12)
    assert shapes_of(other) is shapes_of(problem)


def test_all_layouts_are_shapes_where_they_are_few() -> None:
    few = every(((1, 2),) * 6, 9)
    assert few is not None
    assert len(few) == 20  # three of six hold one more
    assert len({tuple(counts) for counts in few.tolist()}) == 20
    assert every(((0, 3),) * 14, 21) is None
    assert [every(((0, 9999),) * 2, total) is None for total in (FEW - 1, FEW)] == [False, True]
    assert FEW == 1000  # some milliseconds
    shaped = {tuple(counts) for counts in nearly_even(((0, 3),) * 14, 21).tolist()}
    assert 100 < len(shaped) == len(nearly_even(((0, 3),) * 14, 21)) < FEW
    assert all(sum(counts) == 21 for counts in shaped)


@pytest.mark.parametrize(("few", "listed"), [(3, False), (4, True)])
def test_as_many_layouts_as_are_few_are_listed(few: int, listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.search.layouts.solve.shapes.FEW", few)
    found = every.__wrapped__(((1, 2), (0, 2), (0, 1)), 3)
    assert (found is not None) is listed
    assert found is None or len(found) == 4


@pytest.mark.parametrize("pp", [1, 2, 3, 4])
@pytest.mark.parametrize("mtp", [0, 2])
def test_every_cut_is_listed_once(pp: int, mtp: int) -> None:
    """No stage is empty: the first has the embedding, the last the head, and one of the last two the MTP layers, which
    follow all others.
    """
    kinds = {"embedding": {}, "dense": {"forward": 1.0}, "moe": {"forward": 1.0}, "mtp": {}, "head": {}}
    predicting = (("mtp", mtp),) * bool(mtp)
    problem = LayoutProblem(
        **costs(kinds),
        sequence=(("embedding", 1), ("dense", 2), ("moe", 3), *predicting, ("head", 1)),
        pp=pp,
        microbatches=1,
        in_flight=(1.0,) * pp,
        usable=1.0,
    )
    right = [
        (counts, ahead)
        for counts in product(range(6), repeat=pp)
        for ahead in ((0, 1) if mtp and pp > 2 else (0,))
        if sum(counts) == 5 and not (ahead and counts[-1])
        if all(count or (mtp and stage == pp - 1 - ahead) for stage, count in enumerate(counts[1:-1], start=1))
    ]
    cuts = few_cuts(problem, inf)
    assert cuts is not None
    assert sorted(zip(map(tuple, cuts.counts.tolist()), cuts.ahead.tolist(), strict=True)) == sorted(right)
    for row, (counts, ahead) in enumerate(zip(cuts.counts.tolist(), cuts.ahead.tolist(), strict=True)):
        runs = runs_of(problem, counts, ahead)
        held = {kind: [dict(stage).get(kind, 0) for stage in runs] for kind in cuts.by_kind}
        assert {kind: number[row].tolist() for kind, number in cuts.by_kind.items()} == held


@pytest.mark.parametrize(("pp", "vpp", "total"), [(2, 2, 6), (3, 2, 9), (4, 3, 20)])
def test_graded_shapes_have_more_on_every_later_stage(pp: int, vpp: int, total: int) -> None:
    """All stages but the last hold so many more than the one before, whatever is left the last ones of them."""
    limits, others = ((0, 4),) * (pp * vpp), pp - 1
    stages = {tuple(counts.reshape(vpp, pp).sum(axis=0).tolist()) for counts in graded(limits, total, pp)}
    right = set()
    for last, more, first in product(range(4 * vpp + 1), range(vpp + 1 if pp > 2 else 1), range(total + 1)):
        each = [first + more * stage for stage in range(others)]
        if 0 <= (left := total - last - sum(each)) < others:
            right.add((*(count + (stage >= others - left) for stage, count in enumerate(each)), last))
    assert stages == right
    for counts in graded(limits, total, pp):
        held = counts.reshape(vpp, pp)
        assert (held.max(axis=0)[:-1] - held.min(axis=0)[:-1] <= 1).all()
        assert held[:, -1].max() - held[:, -1].min() <= 1 or (held[-1, -1] == 0 and np.ptp(held[:-1, -1]) <= 1)


def test_of_shapes_that_are_as_fast_the_one_is_taken_whose_stages_change_least() -> None:
    kinds: dict[str, Layer] = {"embedding": {"forward": 1.0}, "dense": {}, "head": {}}
    problem = LayoutProblem(
        **costs(kinds),
        sequence=(("embedding", 1), ("dense", 8), ("head", 1)),
        pp=2,
        vpp=3,
        microbatches=4,
        in_flight=(1.0, 1.0),
        usable=1.0,
    )
    found = fastest(problem, shapes_of(problem))
    assert found is not None
    assert int((np.diff(found.counts) != 0).sum()) == 1  # eight layers on six virtual stages cannot all be as many


def test_why_no_layout_fits_is_said_with_what_a_stage_needs_in_the_mean() -> None:
    """Four layers of 2 GB and 1 GB in flight, recomputed half of it, on two stages with 1 GB of their own."""
    layer = {"static": 2e9, "in_flight": 1e9, "recomputed": 0.5e9, "chosen": 1.0}
    problem = LayoutProblem(
        **costs({"embedding": {}, "dense": layer, "head": {}}, fixed=1e9),
        sequence=(("embedding", 1), ("dense", 4), ("head", 1)),
        pp=2,
        microbatches=4,
        in_flight=(3.0, 1.0),
        usable=4e9,
    )
    with pytest.raises(Infeasible, match=r"2 stages of 4\.0 GB, .* at least 7\.0 GB \(5\.0 GB of states\)"):
        best_assignment(problem)


@pytest.mark.parametrize(("chosen", "alike", "listed"), [(0.0, False, ()), (1.0, False, (0, 0)), (1.0, True, ())])
def test_a_plan_lists_recomputed_layers_where_stages_choose_them(
    chosen: float, alike: bool, listed: tuple[int, ...]
) -> None:
    problem = replace(random_problem(np.random.default_rng(3)), pp=2, in_flight=(2.0, 1.0), alike=alike, usable=1e3)
    layers = {kind: replace(layer, chosen=chosen * (kind == "dense")) for kind, layer in problem.memory.layers.items()}
    problem = replace(problem, memory=replace(problem.memory, layers=layers))
    placed = best_assignment(problem).of(Plan(pp=2, dp=4))
    assert placed.recompute_layers == listed
