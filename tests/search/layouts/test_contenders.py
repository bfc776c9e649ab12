"""What is kept of a large lattice while it is priced is all that a search for layouts needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from optimizer.constraints.rules.every import structural
from optimizer.job.fields import FIELDS
from optimizer.job.job import Job
from optimizer.objectives.layer.layer_costs import LayerCosts
from optimizer.objectives.minimised.registry import objective_of
from optimizer.search.lattice import enumerate as lattices
from optimizer.search.lattice.deadline import Deadline
from optimizer.search.lattice.enumerate import Space
from optimizer.search.lattice.oracle import Tuning, fold
from optimizer.search.layouts import candidates, contenders
from optimizer.search.layouts.bounds import lattice_bounds
from optimizer.search.layouts.bounds.lattice_bounds import LatticeBounds
from optimizer.search.layouts.contenders import Contenders
from optimizer.search.plan.planner import plan
from optimizer.search.plan.safety import on_paper
from tests.search.jobs import DENSE, MIXTURE, small_job
from tests.thorough import sampled

FEW = 30  # plans of a lattice from which on it is large, so that small jobs have some


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (contenders, candidates, lattice_bounds):
        monkeypatch.setattr(module, "PROVEN_WHOLE", FEW)
        monkeypatch.setattr(module, "FASTEST", FEW)


def jobs() -> Iterator[Job]:
    for prefer in FIELDS["prefer"].choices:
        yield replace(small_job(16), prefer=prefer)
        yield replace(small_job(12, model=replace(DENSE, layers=11), hbm=6e9), prefer=prefer)
        yield replace(small_job(8, model=MIXTURE, hbm=8e9), prefer=prefer)


@pytest.mark.parametrize("job", sampled(jobs(), 2))
def test_answers_are_those_of_a_search_that_prices_all_plans_again(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[Deadline] = []
    monkeypatch.setattr(Space, "until", counted(Space.until, walked))
    short = plan(job).to_dict()
    once = len(walked)
    monkeypatch.setattr(Contenders, "batches", lambda self, space, job, value, deadline: space.until(deadline))
    long = plan(job).to_dict()
    assert {**short, "search_s": None} == {**long, "search_s": None}
    assert 2 * once < len(walked)


def counted(until: Callable[..., Iterator[LayerCosts]], walked: list[Deadline]) -> Callable[..., Iterator[LayerCosts]]:
    def counting(self: Space, deadline: Deadline) -> Iterator[LayerCosts]:
        walked.append(deadline)
        return until(self, deadline)

    return counting


@pytest.mark.parametrize("job", sampled(jobs(), 2))
def test_no_plan_below_the_best_is_missing(job: Job) -> None:
    space, kept = Space(job, structural(job)), Contenders(job=job, tuning=Tuning())
    fold(job, space, seen=kept.add)
    every = LatticeBounds.of(job, space, Tuning(), np.inf, 1).layer_costs
    (few,) = kept.batches(space, job, kept.below)
    assert FEW <= len(few) < len(every)
    left = set(few.plans.plans())
    for asked in (job, on_paper(job)) if job.prefer == FIELDS["prefer"].default else (job,):
        lattice = LatticeBounds.of(asked, space_of(space, asked), Tuning(), np.inf, 1)
        assert set(lattice.layer_costs.plans.take(np.flatnonzero(lattice.bounds < kept.below)).plans()) <= left


def space_of(space: Space, job: Job) -> Iterator[LayerCosts]:
    return (replace(layer_costs, job=job) for layer_costs in space)


def test_where_much_is_left_all_plans_are_priced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    job = small_job(16)
    monkeypatch.setattr(contenders, "MOST_PRICED_ONCE", FEW - 1)
    space, kept = Space(job, structural(job)), Contenders(job=job, tuning=Tuning())
    fold(job, space, seen=kept.add)
    assert len(next(iter(kept.batches(space, job, kept.below)))) == kept.size
    kept.add(next(iter(space)), kept.below)
    assert not kept.parts
    assert not kept._waiting
    assert kept.size < lattices.MOST_PRICED_ONCE


def test_another_job_or_a_worse_plan_is_told_all_plans() -> None:
    job = small_job(16)
    space, kept = Space(job, structural(job)), Contenders(job=job, tuning=Tuning())
    fold(job, space, seen=kept.add)
    for asked, value in ((job.with_limits(oom_risk=0.01), kept.below), (job, 1.01 * kept.below)):
        assert sum(map(len, kept.batches(space, asked, value))) == kept.size


def test_a_lattice_is_large_from_one_plan_more_on_and_a_plan_as_good_as_the_best_is_left_out() -> None:
    """Of 30 and 30 plans the 30 lowest by either bound are kept, and those below the best even split."""
    job = replace(small_job(16), prefer="expected")
    space = Space(job, structural(job))
    first, second = (next(iter(space)).take(slice(start, start + FEW)) for start in (0, FEW))
    kept = Contenders(job=job, tuning=Tuning())
    kept.add(first, np.inf)
    assert (kept.size, kept.parts) == (FEW, [])
    both = LayerCosts.joined([first, second])
    bounds = LatticeBounds.of(job, [both], Tuning(), np.inf).bounds
    paper = bounds / objective_of(job).weight(job, both.plans)
    best = float(np.sort(paper)[FEW + 8])
    kept.add(second, best)
    assert (kept.size, kept.below) == (2 * FEW, best)
    low = np.minimum(bounds, paper) < best
    for each in (bounds, paper):
        low[np.argsort(each, kind="stable")[:FEW]] = True
    assert not low.all()
    for asked in (job, on_paper(job)):
        (few,) = kept.batches(space, asked, best)
        assert few.job == asked
        assert list(few.plans.plans()) == list(both.take(low).plans.plans())
    assert sum(map(len, kept.batches(space, replace(job, minimize="energy"), best))) > 2 * FEW
