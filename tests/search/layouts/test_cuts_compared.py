"""Cuts of layers into virtual stages that are compared are all of those that their definitions say, and no others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise, product
from math import inf
from typing import Any

import numpy as np
import pytest

from optimizer.base.errors import InputError
from optimizer.job.plan import virtual_stages
from optimizer.job.stack import ALL_LAYERS, BY_STAGE, BY_VIRTUAL_STAGE, Features
from optimizer.objectives.pipeline.stages import Runs
from optimizer.search.layouts.problem import (
    LayoutProblem,
    cuts_searched,
    firsts,
    partly_recomputed_limits,
    recomputing_searched,
    runs_of,
    virtual_stage_limits,
)
from optimizer.search.layouts.solve import shapes
from optimizer.search.layouts.solve.least import least_slowest, most_layers
from optimizer.search.layouts.solve.shapes import every, few_cuts, graded, near_cuts, nearly_even
from tests.search.jobs import small_job
from tests.search.layouts.problems import Layer, costs

Limits = tuple[tuple[int, int], ...]
Counts = tuple[int, ...]


def problem_of(pp: int, vpp: int, layers: int, *, mtp: int = 0, moe: int = 0, **rest: Any) -> LayoutProblem:
    """Layers of which the last ones are mixtures, each of which takes a second and half of it to recompute."""
    layer: Layer = {"forward": 0.5, "backward": 0.5, "recompute": 0.5, "chosen": 1.0}
    kinds: dict[str, Layer] = {"embedding": {}, "dense": layer, "moe": layer, "mtp": {}, "head": {"forward": 0.25}}
    runs = (("embedding", 1), ("dense", layers - moe), ("moe", moe), ("mtp", mtp), ("head", 1))
    return LayoutProblem(
        **costs(kinds),
        sequence=tuple(run for run in runs if run[1]),
        pp=pp,
        vpp=vpp,
        microbatches=pp,
        in_flight=(1.0,) * pp,
        usable=inf,
        **rest,
    )


def test_what_a_problem_does_not_say_is_not_there() -> None:
    problem = problem_of(2, 1, 4)
    assert float(problem.pipeline(np.asarray(3.0), np.asarray(5.0))) == 2 * 3.0 + 2.0
    assert problem.whole == 4.25
    seconds = {"per_step": 7.0, "reduced": 3.0, "gathered": 2.0, "cover_backward": 9.0, "cover_forward": 9.0}
    assert float(problem.once(lambda name: np.array(seconds[name]))) == 7.0
    assert (problem.more, problem.even, problem.alike, problem.alternates) == (0, False, False, False)
    assert problem.host_memory_per_gpu == inf
    assert problem.hosted_price == 0.0


def test_as_much_as_may_be_lies_on_the_host() -> None:
    problem = problem_of(2, 1, 4, more=2500)
    layer = replace(problem.memory.layers["dense"], static=4.0, state=8.0)
    problem = replace(problem, memory=replace(problem.memory, layers={**problem.memory.layers, "dense": layer}))
    most = problem.at_most_offload
    assert (most.memory.offload, most.memory.layers["dense"].static, most.more) == (0.25, 2.0, 0)
    assert replace(most, memory=problem.memory, more=2500) == problem
    assert most.at_most_offload is most


def within(limits: Limits, total: int) -> set[Counts]:
    (low, high), *others = limits
    if not others:
        return {(total,)} if low <= total <= high else set()
    some = range(low, min(high, total) + 1)
    return {(n, *rest) for n in some for rest in within(tuple(others), total - n)}


@pytest.mark.parametrize("seed", range(12))
def test_every_way_within_the_limits_is_listed_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to as many as are few, and none where a stage has no number of layers that it may hold."""
    rng = np.random.default_rng(seed)
    least = rng.integers(0, 3, 4)
    limits = tuple(zip(least.tolist(), (least + rng.integers(-1 if seed < 4 else 0, 3, 4)).tolist(), strict=True))
    for total in range(16):
        right = sorted(within(limits, total))
        for few in (len(right), len(right) - 1) if right else (0,):
            monkeypatch.setattr(shapes, "FEW", few)
            found = every.__wrapped__(limits, total)
            assert (found is None) == (len(right) > few)
            assert found is None or (found.shape[1], [*map(tuple, found.tolist())]) == (4, right)


@pytest.mark.parametrize(
    ("limits", "total"), [(((0, 2), (0, 3), (1, 2), (0, 3), (0, 2), (1, 2)), n) for n in (7, 8, 9)]
)
def test_nearly_even_cuts_are_within_a_layer_of_each_other_inside(limits: Limits, total: int) -> None:
    """And those with one more follow each other, the first after the last."""
    free = (limits[0], *((0, total),) * (len(limits) - 3), *limits[-2:])
    right = set()
    for counts in within(free, total):
        more = [count > min(counts[1:-2]) for count in counts[1:-2]]
        begins = sum(b and not a for a, b in pairwise((more[-1], *more)))
        if max(counts[1:-2]) - min(counts[1:-2]) <= 1 and begins <= 1:
            right.add(counts)
    found = [counts for counts in map(tuple, nearly_even(limits, total).tolist()) if min(counts) >= 0]
    assert sorted(found) == sorted(right)


@pytest.mark.parametrize(("pp", "vpp", "mtp"), [(2, 3, 0), (3, 2, 0), (3, 2, 1), (2, 4, 1), (4, 2, 1)])
@pytest.mark.parametrize("few", [0, 100_000])
def test_shapes_are_all_cuts_or_those_of_three_sorts(
    pp: int, vpp: int, mtp: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the limits, once each, with MTP layers on the last virtual stage or, where that has no layers, before it.

    Between the ends no virtual stage is empty. What each holds is what its layers are.
    """
    monkeypatch.setattr(shapes, "FEW", few)
    monkeypatch.setattr(shapes, "every", every.__wrapped__)
    problem = problem_of(pp, vpp, 11, mtp=mtp, moe=7)
    limits = tuple(virtual_stage_limits(problem))
    some = within(limits, 11)
    if not few:
        sorts = (*nearly_even(limits, 11).tolist(), *(counts.tolist() for counts in graded(limits, 11, pp)))
        some &= {virtual_stages((), 11, pp, vpp), *map(tuple, sorts)}
    right = [
        (counts, ahead)
        for counts, ahead in product(some, range(1 + bool(mtp and pp > 2)))
        if not (ahead and counts[-1])
        if all(n or len(counts) - 1 - stage == ahead > 0 for stage, n in enumerate(counts[1:-1], start=1))
    ]
    found = shapes._shapes.__wrapped__(problem.sequence, pp, limits)
    assert sorted(zip(map(tuple, found.counts.tolist()), found.ahead.tolist(), strict=True)) == sorted(right)
    for row in range(0, len(found), len(found) // 6 + 1):
        counts = found.counts[row].tolist()
        runs = runs_of(problem, counts, int(found.ahead[row]))
        for kind, number in found.by_kind.items():
            assert number[row].tolist() == [dict(stage).get(kind, 0) for stage in runs]
            held = [sum(number[row, stage::pp].tolist()) for stage in range(pp)]
            assert found.stages[kind][row].tolist() == held
            assert held in found.numbers[:, row].tolist()
        names = ["dense"] * 4 + ["moe"] * 7
        starts = [sum(counts[:virtual]) for virtual in range(len(counts))]
        for layers in (0, 1, 3):
            first = found.first(layers)
            for stage in range(pp):
                here = [
                    name
                    for virtual in range(stage, pp * vpp, pp)
                    for name in names[starts[virtual] : starts[virtual] + min(layers, counts[virtual])]
                ]
                assert {kind: number[row, stage] for kind, number in first.items() if number[row, stage]} == Counter(
                    here
                )


@pytest.mark.parametrize(("pp", "layers"), [(2, 7), (4, 9), (5, 12), (3, 3)])
def test_near_cuts_give_up_the_layers_that_are_too_many_from_each_stage_on(
    pp: int, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of(pp, 1, layers, moe=1)
    _, slowest = least_slowest(problem)
    all_of_them = few_cuts(problem, slowest)
    assert all_of_them is not None
    assert sorted(map(tuple, near_cuts(problem).counts.tolist())) == sorted(map(tuple, all_of_them.counts.tolist()))
    monkeypatch.setattr(shapes, "few_cuts", lambda *_: None)
    most, right = most_layers(problem, slowest).tolist(), set()
    for start in range(pp):
        counts = list(most)
        for stage in (*range(start, pp), *range(start)) * max(most):
            counts[stage] -= sum(counts) > layers and counts[stage] > layers // pp
        right |= {tuple(counts)} if sum(counts) == layers else set()
    assert sorted(map(tuple, near_cuts(problem).counts.tolist())) == sorted(right)


@pytest.mark.parametrize(
    ("problem", "limits", "partly"),
    [
        (problem_of(1, 1, 5), [(0, 5)], None),
        (problem_of(2, 1, 5), [(0, 5)] * 2, None),
        (problem_of(4, 1, 5), [(0, 5), (1, 5), (1, 5), (0, 5)], None),
        (problem_of(4, 1, 5, mtp=1), [(0, 5)] * 4, None),
        (problem_of(4, 1, 8, even=True), [(2, 2)] * 4, None),
        (problem_of(2, 2, 8, even=True), [(2, 2)] * 4, None),
        (problem_of(2, 2, 8), [(1, 3), (1, 3), (1, 3), (0, 3)], [(1, 3), (2, 3), (1, 3), (0, 3)]),
        (
            problem_of(2, 3, 20),
            [*[(2, 5)] * 4, (1, 5), (0, 5)],
            [(2, 5), *[(3, 5)] * 3, (1, 5), (0, 5)],
        ),
        (
            problem_of(3, 2, 7, mtp=1),
            [(0, 3)] * 6,
            [(0, 3), *[(1, 3)] * 2, *[(0, 3)] * 3],
        ),
    ],
)
def test_virtual_stages_hold_about_their_share(
    problem: LayoutProblem, limits: list[tuple[int, int]], partly: list[tuple[int, int]] | None
) -> None:
    assert virtual_stage_limits(problem) == limits
    assert partly_recomputed_limits(problem) == (partly or limits)


@pytest.mark.parametrize("sequence", [(1, 2, 1), (3, 3), (0, 5), (2, 1, 1, 3), (4,)])
@pytest.mark.parametrize("mtp", [0, 2])
def test_what_virtual_stages_hold_is_the_model_in_order(sequence: tuple[int, ...], mtp: int) -> None:
    kinds = [("dense", "moe")[place % 2] for place in range(len(sequence))]
    runs: Runs = tuple((kind, n) for kind, n in zip(kinds, sequence, strict=True) if n)
    ends: Runs = (("mtp", mtp),) * bool(mtp) + (("head", 1),)
    problem = replace(problem_of(3, 1, 5), sequence=(("embedding", 1), *runs, *ends))
    names = [kind for kind, n in runs for _ in range(n)]
    for counts, ahead in product(product(range(len(names) + 1), repeat=3), range(2)):
        if sum(counts) != len(names):
            continue
        held = runs_of(problem, counts, ahead)
        assert len(held) == 3
        start = 0
        for stage, n in enumerate(counts):
            layers = Counter(names[start : start + n])
            first = [("embedding", 1)] * (stage == 0)
            last = [("mtp", mtp)] * (bool(mtp) and stage == 2 - ahead) + [("head", 1)] * (stage == 2)
            assert held[stage][: len(first)] == tuple(first)
            assert held[stage][len(first) : len(held[stage]) - len(last)] == tuple(layers.items())
            assert held[stage][len(held[stage]) - len(last) :] == tuple(last)
            start += n


@pytest.mark.parametrize(
    ("runs", "numbers"),
    [
        ((("dense", 7),), (7,)),
        ((("dense", 1), ("moe", 1)), (1, 2)),
        ((("dense", 2), ("moe", 3), ("dense", 9)), (1, 2, 3, 14)),
    ],
)
def test_memory_is_least_with_all_layers_or_with_those_of_a_kind(runs: Runs, numbers: tuple[int, ...]) -> None:
    assert firsts((("embedding", 1), *runs, ("mtp", 2), ("head", 1))) == numbers


@pytest.mark.parametrize("alternates", [False, True])
@pytest.mark.parametrize("microbatches", [1, 2, 3, 4, 5, 6, 12])
def test_the_slowest_stage_is_that_of_the_least_pipeline(microbatches: int, alternates: bool) -> None:
    """The time of a stage from which on no pipeline is as short."""
    problem = replace(problem_of(3, 1, 9), microbatches=microbatches, alternates=alternates, seconds=0.5, filled=0.5)

    def least(slowest: float) -> float:
        if not alternates:
            return float(problem.pipeline(np.asarray(slowest), np.asarray(problem.whole)))
        rest = (microbatches - 1 - 3) * slowest + 2 * problem.whole if microbatches > 4 else 0.0
        return max(microbatches * slowest, rest)

    assert problem.whole == 3 * 0.5 + 9 + 0.25
    for at_most in (11.0, 17.0, 30.0, 70.0):
        slowest = problem.slowest_within(at_most)
        assert least(slowest + 1e-9) > at_most
        assert slowest <= 0 or microbatches == 1 or least(slowest - 1e-9) <= at_most


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"in_flight": (1.0, 1.0)}, "in_flight needs one value for each of 3 stages, but got 2"),
        ({"pp": 8, "in_flight": (1.0,) * 8}, None),
        ({"pp": 9, "in_flight": (1.0,) * 9}, "6 layers cannot fill 9 x 1 virtual stages"),
        ({"vpp": 3}, "6 layers cannot fill 3 x 3 virtual stages"),
        ({"even": True}, None),
        ({"even": True, "vpp": 2}, None),
        ({"pp": 4, "in_flight": (1.0,) * 4, "even": True}, "6 layers are not a multiple of pp x vpp = 4 x 1"),
        (
            {"even": True, "vpp": 2, "sequence": (("dense", 9),)},
            "9 layers are not a multiple of pp x vpp = 3 x 2",
        ),
        ({"sequence": (("dense", 6), ("other", 1))}, "'other' has no bytes"),
    ],
)
def test_problems_that_cannot_be_are_refused(change: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert replace(problem_of(3, 1, 6), **change).layers == 6
        return
    with pytest.raises(InputError, match=message):
        replace(problem_of(3, 1, 6), **change)


VIRTUAL = "virtual stages hold as many layers each"
ENDS = "only the ends may hold less"


@pytest.mark.parametrize(
    ("limits", "features", "said"),
    [
        ({}, {}, VIRTUAL),
        ({"max_vpp": 1}, {}, ""),
        ({"max_vpp": 2}, {}, VIRTUAL),
        ({"fixed": {"vpp": 1}}, {}, ""),
        ({"fixed": {"vpp": 2}}, {}, VIRTUAL),
        ({"fixed": {"pp": 1}}, {}, ""),
        ({"fixed": {"pp": 2}}, {}, VIRTUAL),
        ({}, {"max_vpp": 1}, ""),
        ({}, {"max_vpp": 2}, VIRTUAL),
        ({}, {"schedules": ("1f1b",)}, ""),
        ({}, {"recompute_by": BY_VIRTUAL_STAGE}, ENDS),
        ({}, {"uneven_stages": False}, "differ in what is recomputed, and in no more"),
        ({"fixed": {"layers_per_stage": "6,6"}}, {}, "(layers_per_stage=6,6); under full recomputation"),
        ({"fixed": {"layers_per_stage": "6,6", "recompute_layers": "1,1"}}, {}, "recompute_layers=1,1)."),
    ],
)
def test_what_cuts_are_left_out_is_said(limits: dict[str, Any], features: dict[str, Any], said: str) -> None:
    words = cuts_searched(small_job(8, features=Features(**{"recompute_by": BY_STAGE} | features), **limits))
    assert said in words
    assert bool(words) == bool(said)
    assert (ENDS in words) == (said == ENDS)


@pytest.mark.parametrize(
    ("by", "recompute", "fixed", "said"),
    [
        (BY_STAGE, ("none", "full"), {}, ""),
        (BY_VIRTUAL_STAGE, ("none", "full"), {}, "test recomputes equally many layers on every virtual stage, and so"),
        (ALL_LAYERS, ("none", "full"), {}, "test recomputes all layers or none, and so do the layouts searched."),
        (ALL_LAYERS, ("none",), {}, ""),
        (ALL_LAYERS, ("none", "full"), {"recompute": "full"}, ""),
        (ALL_LAYERS, ("none", "full"), {"layers_per_stage": "6,6"}, ""),
    ],
)
def test_what_recomputing_is_left_out_is_said(
    by: str, recompute: tuple[str, ...], fixed: dict[str, str], said: str
) -> None:
    words = recomputing_searched(small_job(8, features=Features(recompute_by=by, recompute=recompute), fixed=fixed))
    assert words.startswith(said)
    assert bool(words) == bool(said)
