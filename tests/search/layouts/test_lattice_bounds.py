"""Bounds of a whole lattice: which plans are kept, and which are looked at for what fits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, cast

import numpy as np
import pytest

from optimizer.constraints.rules.every import structural
from optimizer.job.fields import EXPECTED
from optimizer.job.job import Job
from optimizer.job.plan import IntArray, Knobs
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.expected import risk_classes
from optimizer.objectives.layer.layer_costs import LayerCosts
from optimizer.search.lattice.enumerate import Space
from optimizer.search.lattice.oracle import Tuning
from optimizer.search.layouts.bounds import lattice_bounds
from optimizer.search.layouts.bounds.lattice_bounds import LatticeBounds
from optimizer.search.layouts.bounds.step_floor import step_floor
from tests.search.jobs import small_job


@cache
def lattice(fixed: bool = False) -> LatticeBounds:
    """Every plan of a job that counts what may go wrong, at any settings or at fixed ones."""
    return LatticeBounds.of(job(), [costs()], Tuning(fixed=Knobs() if fixed else None), np.inf)


@cache
def job() -> Job:
    return replace(small_job(4, hbm=7e9, fixed={"micro_batch": 1}), prefer=EXPECTED)


@cache
def costs() -> LayerCosts:
    return LayerCosts.joined(list(Space(job(), structural(job()))))


@pytest.mark.parametrize("size", [0, 40, 41])
def test_of_a_large_lattice_the_lowest_bounds_and_those_below_the_best_are_kept(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lattice is large from 41 plans on: of 80 the first 40 stay whole unless more are known of."""
    monkeypatch.setattr(lattice_bounds, "PROVEN_WHOLE", 40)
    monkeypatch.setattr(lattice_bounds, "FASTEST", 5)
    batches = [costs().take(slice(0, 40)), costs().take(slice(40, 80))]
    bounds = [step_floor(batch).bound(any_knobs=True) for batch in batches]
    for even in (0.0, float(np.sort(bounds[1])[9])):
        few = LatticeBounds.of(job(), batches, Tuning(), even, size)
        right = []
        for batch, values, whole in zip(batches, bounds, (size <= 40, False), strict=True):
            low = (values < even) | whole
            low[np.argsort(values, kind="stable")[:5]] = True
            right += batch.take(low).plans.plans()
        assert list(few.layer_costs.plans.plans()) == right
        assert few.space == 80
    assert few.bounds == pytest.approx(step_floor(few.layer_costs).bound(any_knobs=True))
    assert LatticeBounds.of(job(), batches[:1], Tuning(), 0.0, 123).space == 123


@dataclass
class Asked:
    """What fits is anything, or nothing; which plans are asked about, with which limit, is written down."""

    fits: bool
    calls: list[tuple[list[int], float]] = field(default_factory=list)

    def fitting(self, numbers: IntArray, layer_costs: LayerCosts, floor: object, limit: float) -> FloatArray:
        assert len(layer_costs) == len(numbers)
        self.calls.append((numbers.tolist(), limit))
        return np.full(len(numbers), 0.0 if self.fits else np.inf)


def test_only_plans_that_may_be_better_at_a_risk_are_asked_about() -> None:
    every, factors = lattice(), [each.factor for each in risk_classes(job())]
    assert len(factors) > 2
    assert min(factors) > 1.0
    best = float(np.sort(every.bounds)[len(every.bounds) // 2])
    anything, nothing = Asked(True), Asked(False)
    least = every.knob_bound(cast(Any, anything), best)
    assert least == pytest.approx(every.bounds.min() * min(factors))
    assert anything.calls == [
        (np.flatnonzero(every.bounds < best / factor).tolist(), best / factor) for factor in factors
    ]
    assert every.knob_bound(cast(Any, nothing), best) == best
    asked = [number for numbers, _ in nothing.calls for number in numbers]
    assert sorted(asked) == np.flatnonzero(every.bounds < best / min(factors)).tolist()
    none = Asked(True)
    assert every.knob_bound(cast(Any, none), float(every.bounds.min())) == every.bounds.min()
    assert none.calls == []


def test_plans_at_a_risk_have_the_room_that_it_leaves() -> None:
    every, numbers = lattice(), np.array([3, 1])
    for risk, asked in ((None, job().limits.oom_risk), (0.01, 0.01)):
        layer_costs, floor = every.at(numbers, risk)
        assert layer_costs.job == job().with_limits(oom_risk=asked)
        assert list(layer_costs.plans.plans()) == [costs().plans.plan(3), costs().plans.plan(1)]
        assert floor.bound().tolist() == step_floor(layer_costs).bound().tolist()


@pytest.mark.parametrize("fixed", [False, True])
def test_costs_that_are_known_of_some_plans_only_change_no_bound(fixed: bool) -> None:
    every = lattice(fixed)
    some = np.zeros(len(every.bounds), dtype=np.bool_)
    some[1::3] = True
    whole, part = every.most_hosted(np.ones_like(some)), every.most_hosted(some)
    assert part.place[some].tolist() == list(range(int(some.sum())))
    assert set(part.place[~some].tolist()) == {-1}
    for numbers in (np.flatnonzero(some), np.arange(0, len(some), 2)):
        layer_costs, floor = every.at(numbers, None)
        wide, narrow = (hosted.fitting(numbers, layer_costs, floor, np.inf) for hosted in (whole, part))
        assert wide.tolist() == narrow.tolist()
        assert np.isfinite(wide).any()
        assert np.isinf(wide).any()
        assert (wide >= every.bounds[numbers] * (1 - 1e-12)).all()


def test_another_job_is_told_the_bounds_of_a_whole_lattice_alone() -> None:
    every, other = lattice(), replace(job(), minimize="energy")
    by = every.by(other)
    assert by is not None
    assert by.bounds == pytest.approx(LatticeBounds.of(other, [costs().changed(job=other)], Tuning(), np.inf).bounds)
    assert replace(every, space=every.space + 1).by(other) is None
    assert lattice(fixed=True).by(other) is None
