"""CP-SAT over whole lattices: the optimum that numpy finds, the rules as numpy reads them, and what it is given."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, example, given, settings

from optimizer.base.errors import OptimizerError
from optimizer.constraints.posted import allowed
from optimizer.constraints.program import Program, Solution
from optimizer.constraints.rules.batch import Batch
from optimizer.constraints.rules.every import structural
from optimizer.constraints.rules.gpu_product import GpuProduct
from optimizer.constraints.rules.heads import Heads
from optimizer.constraints.rules.memory import Memory
from optimizer.job.job import Job
from optimizer.job.plan import FIELDS, Plans
from optimizer.job.stack import Features
from optimizer.objectives.step.price import price
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.lattice import oracle
from optimizer.search.lattice.enumerate import Space, alike, lattice
from optimizer.search.lattice.proof import core, program_of, prove
from optimizer.search.layouts import candidates, one_layout
from optimizer.search.layouts.bounds import lattice_bounds
from optimizer.search.plan.planner import plan
from tests.search.jobs import MIXTURE, ZERO_BUBBLE, jobs, small_job
from tests.thorough import cases

ANY_SCHEDULE = Features(schedules=("1f1b", "interleaved", *ZERO_BUBBLE), zero_stages=(0, 1))
JOBS = {
    "dense": small_job(8),
    "moe": small_job(8, model=MIXTURE),
    "zero-bubble": small_job(8, features=ANY_SCHEDULE, bubble=0.3),
    "pinned": small_job(16, fixed={"pp": 4}, ranges={"tp": (2, 8)}, choices={"recompute": ("none", "full")}),
    "layers": small_job(8, bubble=0.3, fixed={"layers_per_stage": "2,4,4,2"}),
}


def whole(job: Job) -> Plans:
    """Every plan that satisfies the structural rules, none for an impossible job."""
    parts = list(lattice(job, structural(job)))
    return Plans.joined(parts) if parts else Plans.of(())


@settings(max_examples=cases(150, sample=10), deadline=None)
@given(jobs())
@example(JOBS["moe"])
@example(JOBS["zero-bubble"])
@example(JOBS["pinned"])
@example(JOBS["dense"].with_limits(hbm=2.5e9))
def test_the_optimum_over_the_whole_lattice_is_that_of_numpy(job: Job) -> None:
    plans = whole(job)
    assume(len(plans))
    costs = price(job, plans)
    fits = costs.reserved <= safe_memory(job)
    proof = prove(job, (*structural(job), Memory()), plans, costs.step_time)
    assert proof.proven
    told = prove(job, (*structural(job), Memory()), plans, costs.step_time, fits=fits)
    assert told.proven
    assert told.bound == pytest.approx(proof.bound, rel=1e-7)
    assert (told.point >= 0) == fits.any()
    assert told.point < 0 or fits[told.point]
    if not fits.any():
        assert proof.point == -1
        assert proof.bound == np.inf
        return
    best = int(np.argmin(np.where(fits, costs.step_time, np.inf)))
    assert fits[proof.point]
    assert best in proof.ties
    assert proof.bound == pytest.approx(costs.step_time[best], rel=1e-7)
    assert proof.bound <= costs.step_time[best] * (1 + 1e-12)


@settings(max_examples=cases(50, sample=6), deadline=None)
@given(jobs())
def test_what_was_posted_reads_like_the_checks_on_plans_that_break_rules_too(job: Job) -> None:
    every = Plans.joined(list(lattice(job, [GpuProduct(), Batch()])) or [Plans.of(())])
    assume(len(every))
    plans = every.take(np.arange(0, len(every), max(1, len(every) // 2000)))
    rules = structural(job)
    found = allowed(program_of(job, rules, plans), {name: getattr(plans, name).astype(int) for name in FIELDS})
    for rule in rules:
        assert np.array_equal(found[rule.name], rule.check(job, plans)), rule.name


@dataclass(frozen=True, kw_only=True)
class Misread(Heads):
    """A rule that tells CP-SAT another thing than it checks."""

    def post(self, job: Job, program: Program, literal: int) -> None:
        program.restrict("tp", [1], literal)


def test_a_rule_that_cp_sat_reads_otherwise_is_a_bug_that_is_told() -> None:
    plans = whole(JOBS["dense"])
    assert len(np.unique(plans.tp)) > 1
    with pytest.raises(OptimizerError, match="read the rule heads differently"):
        prove(JOBS["dense"], [Misread()], plans, np.ones(len(plans)))


@pytest.mark.parametrize("name", JOBS)
def test_the_certificate_of_a_small_job_is_about_every_plan(name: str) -> None:
    job = JOBS[name]
    certificate = plan(job, trials=0).certificate
    assert certificate is not None
    assert certificate.proven
    assert certificate.held_all
    assert certificate.candidates == certificate.space == len(whole(job))
    assert f"CP-SAT held all {certificate.space:,} plans" in certificate.method


@pytest.mark.parametrize("name", JOBS)
def test_a_lattice_that_is_too_large_to_hold_gives_the_same_plan(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held = plan(JOBS[name], trials=0)
    for module, constants in (
        (oracle, ("PROVEN_WHOLE", "FASTEST")),
        (candidates, ("PROVEN_WHOLE", "FASTEST")),
        (lattice_bounds, ("PROVEN_WHOLE", "FASTEST")),
        (one_layout, ("FASTEST",)),
    ):
        for constant in constants:
            monkeypatch.setattr(module, constant, 10)
    leading = plan(JOBS[name], trials=0)
    assert leading.certificate is not None
    assert leading.plan == held.plan
    assert not leading.certificate.held_all
    assert leading.certificate.candidates < leading.certificate.space
    assert "candidates" in leading.certificate.method


@pytest.mark.parametrize("name", ["dense", "moe", "zero-bubble", "pinned"])
def test_no_cost_that_cp_sat_is_given_claims_more_than_the_even_split_shows(name: str) -> None:
    """A plan that fits evenly split may be rated below that, never above, unless something better was found."""
    job = JOBS[name]
    plans = whole(job)
    even = price(job, plans)
    laid = candidates.lay_out(job, Space(job, structural(job)))
    fits = even.reserved <= safe_memory(job)
    assert laid.best is not None
    assert len(laid.proof.plans) == len(plans)
    assert np.all(laid.proof.fits[fits])
    assert np.all(laid.proof.values[fits] <= even.step_time[fits] * (1 + 1e-8))
    assert np.all(laid.proof.values[laid.proof.fits] >= laid.best.value * (1 - 1e-8))
    assert laid.proof.values[alike(laid.proof.plans, laid.best.plan)] == pytest.approx(laid.best.value)


def test_the_core_of_rules_that_clash_names_some_of_them_only() -> None:
    """Eight GPUs under tp = 3: no plan satisfies the rules named, and where one satisfies all none is named."""
    job = small_job(8, fixed={"tp": 3}, max_micro_batch=2, max_vpp=2)
    rules = structural(job)
    points = Plans.joined(list(lattice(job, [])))
    names = core(job, rules, points)
    assert "gpu-product" in names
    assert len(names) < len(rules)
    clashing = [rule for rule in rules if rule.name in names]
    assert not np.logical_and.reduce([rule.check(job, points) for rule in clashing]).any()
    assert core(JOBS["dense"], structural(JOBS["dense"]), whole(JOBS["dense"])) == ()


@pytest.mark.parametrize(
    ("status", "bound", "proven", "least"),
    [("INFEASIBLE", 0.0, True, np.inf), ("UNKNOWN", 5e7, False, 1.0), ("UNKNOWN", -1.0, False, 0.0)],
)
def test_a_solver_that_is_cut_short_leaves_its_bound(
    status: str, bound: float, proven: bool, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the unit of the values, of which the least is 1e8 of the solver's steps."""
    monkeypatch.setattr(Program, "solve", lambda *_, **__: Solution(status=status, values=None, bound=bound))
    plans = whole(JOBS["pinned"])
    found = prove(JOBS["pinned"], structural(JOBS["pinned"]), plans, np.linspace(2.0, 3.0, len(plans)))
    assert (found.proven, found.point, found.ties) == (proven, -1, ())
    assert found.bound == pytest.approx(least)


def test_plans_a_step_of_the_solver_apart_are_ties() -> None:
    """The least value is 1e8 of its steps, of one each here."""
    plans = whole(JOBS["pinned"])
    found = prove(JOBS["pinned"], structural(JOBS["pinned"]), plans, 1e8 + np.arange(len(plans))[::-1])
    last = len(plans) - 1
    assert (found.point, found.ties, found.bound) == (last, (last - 1, last), 1e8)
