"""Answers to jobs of few plans with one layout each are those of pricing every plan, whatever is minimised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optimizer.answer.answer import Clash
from optimizer.constraints.rules.every import structural
from optimizer.job.fields import EXPECTED, FAST
from optimizer.job.job import EVEN_RISK, Job
from optimizer.job.plan import Placement, Plan, Plans
from optimizer.job.stack import Features
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.minimised.registry import objective_of
from optimizer.objectives.step.flops import useful_flops
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.lattice.enumerate import alike, lattice
from optimizer.search.lattice.knobs import knobs_at, tuned
from optimizer.search.lattice.proof import Proof
from optimizer.search.layouts.least_memory import LeastMemory
from optimizer.search.plan import alternatives, certificate, planner, safety
from optimizer.search.plan.alternatives import estimate_of_plan, structure, value_of
from optimizer.search.plan.planner import plan, proven
from optimizer.search.plan.unproven import search
from tests.search.jobs import MIXTURE, small_job

FEW = small_job(
    2,
    features=Features(zero_stages=(0, 1)),
    fixed={"cp": 1, "micro_batch": 1, "recompute": "none", "vpp": 1, "layout": "even"},
    bubble=0.5,
)

GIVEN: dict[str, Job] = {
    "time": FEW,
    "hosted": replace(FEW, minimize="energy", prefer=EXPECTED).with_limits(hbm=12e9).with_host_memory(2e12),
    "mixture": replace(FEW, model=MIXTURE, minimize="cost", prefer=EXPECTED),
}


def every(job: Job) -> list[tuple[float, Plan]]:
    """Plans that fit with their values, the best first, of equals the first of the lattice."""
    costs = layer_costs_of(job, Plans.joined(list(lattice(job, structural(job)))))
    found = tuned(costs)
    values = [
        (float(value), place) for place, (value, fit) in enumerate(zip(found.values, found.fits, strict=True)) if fit
    ]
    for value, place in values:
        one, own = costs.plans.plan(place), knobs_at(found.knobs, place)
        assert value == pytest.approx(value_of(job, one, own, estimate_of_plan(job, one, own)), rel=1e-12)
    return [(value, costs.plans.plan(place)) for value, place in sorted(values)]


@pytest.mark.parametrize("name", GIVEN)
def test_an_answer_is_that_of_pricing_every_plan(name: str) -> None:
    job = GIVEN[name]
    (value, best), *others = every(job)
    first: dict[tuple[int, ...], tuple[float, Plan]] = {}
    for other in others:
        if structure(other[1]) != structure(best):
            first.setdefault(structure(other[1]), other)
    unproven = search(job)
    answer = proven(unproven, top=2, priced_risk=False)
    assert answer.plan is not None
    assert answer.certificate is not None
    assert answer.plan.lying(Placement()) == best.lying(Placement())
    assert [each.plan.lying(Placement()) for each in answer.alternatives] == [
        each.lying(Placement()) for _, each in [*first.values()][:2]
    ]
    slower = [each / value - 1 for each, _ in first.values()]
    assert [each.slower for each in answer.alternatives] == pytest.approx(slower[:2], rel=1e-9)
    near = tuple(sum(each / value <= 1 + share for each, _ in others) for share in (0.01, 0.05))
    assert (answer.near_ties.within_1_percent, answer.near_ties.within_5_percent) == near
    within = answer.alternatives[0].slower
    assert len(proven(unproven, top=2, within=within, priced_risk=False, read_twice=False).alternatives) == 1
    assert proven(unproven, top=2, within=within * 0.999, priced_risk=False, read_twice=False).alternatives == ()
    stated, objective = answer.certificate, objective_of(job)
    assert (stated.best, stated.lower_bound) == (pytest.approx(value), stated.best)
    assert stated.candidates == stated.space == sum(map(len, lattice(job, structural(job))))
    assert (stated.fitting, stated.even) == (len(others) + 1, np.inf)
    assert 0 < objective.rate(job) * useful_flops(job) / (job.gpus * job.peak_flops) < stated.knob_bound <= value


@pytest.mark.parametrize("name", GIVEN)
def test_what_caution_costs_is_that_of_pricing_every_plan(name: str) -> None:
    job = GIVEN[name]
    bold = job.with_limits(oom_risk=EVEN_RISK) if job.prefer == FAST else replace(job, prefer=FAST)
    answer, (value, best) = plan(job, trials=0, top=0, read_twice=False), every(bold)[0]
    assert answer.plan is not None
    assert answer.estimate is not None
    own = value_of(bold, answer.plan, answer.knobs, answer.estimate)
    assert answer.safety is not None
    if value == pytest.approx(own):
        assert answer.safety.fastest is None
    else:
        assert answer.safety.fastest is not None
        assert answer.safety.fastest.plan.lying(Placement()) == best.lying(Placement())
        assert answer.safety.fastest.slower == pytest.approx(value / own - 1)
        assert answer.safety.fastest.slower < 0


@pytest.mark.parametrize(("proven_", "candidates"), [(True, 8), (False, 0)])
def test_cp_sat_is_given_what_may_fit_and_the_best_at_its_value(
    proven_: bool, candidates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan whose leanest layout takes all the room may fit, one that takes more does not, the best does anyhow."""
    unproven, asked = search(FEW), dict[str, Any]()
    layouts = unproven.layouts
    assert layouts is not None
    assert layouts.best is not None
    assert layouts.proof is not None
    room, best = safe_memory(FEW), np.flatnonzero(alike(layouts.proof.plans, layouts.best.plan))[0]
    needed = np.where(np.arange(8) % 2 == best % 2, np.nextafter(room, np.inf), room)

    def prove(*args: Any, **options: Any) -> Proof:
        asked.update(options, values=args[3])
        return Proof(proven=proven_, bound=0.0, ties=(options["hint"],))

    monkeypatch.setattr(certificate, "prove", prove)
    monkeypatch.setattr(LeastMemory, "bounds", lambda *_, **__: needed)
    given = replace(layouts, proof=replace(layouts.proof, fits=np.ones(8, dtype=np.bool_)))
    found = certificate.certify(
        FEW, unproven.rules, unproven.swept, given, np.inf, seed=0, time_limit=None, read_twice=True
    )
    assert (found.candidates, asked["hint"], asked["values"][best]) == (candidates, best, layouts.best.value)
    assert asked["fits"].tolist() == [place == best or place % 2 != best % 2 for place in range(8)]


def test_runners_up_are_placed_that_the_search_has_not_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    placed: list[Plan] = []
    monkeypatch.setattr(alternatives, "place", lambda job, plans, *_, **__: placed.extend(plans.plans()) or ())
    found = search(FEW.without_pin("layout"))
    proven(found, top=2, priced_risk=False, read_twice=False)
    assert placed
    assert found.layouts is not None
    some = dict.fromkeys(placed[1:])
    placed.clear()
    layouts = replace(found.layouts, placed=some)
    proven(replace(found, layouts=layouts), top=2, priced_risk=False, read_twice=False)
    assert len(placed) == 1
    assert some.keys().isdisjoint(placed)


def test_what_caution_costs_is_not_said_of_a_search_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    found = search(FEW)
    assert found.layouts is not None
    assert proven(found, top=0, read_twice=False).safety is not None
    for changes in ({"complete": False}, {"best": None}):
        cut = replace(found.layouts, **changes)  # type: ignore[arg-type]
        monkeypatch.setattr(safety, "as_given", lambda swept, cut=cut: cut)
        assert proven(found, top=0, read_twice=False).safety is None


def test_a_plan_on_paper_that_is_hardly_better_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    found = search(FEW)
    assert found.layouts is not None
    assert found.layouts.best is not None
    assert found.plan is not None
    assert found.estimate is not None
    border = value_of(safety.on_paper(FEW), found.plan, found.knobs, found.estimate) * (1 - safety.SAME)
    for value, better in ((border, False), (np.nextafter(border, 0.0), True)):
        layouts = replace(found.layouts, best=replace(found.layouts.best, value=value))
        monkeypatch.setattr(safety, "as_given", lambda swept, layouts=layouts: layouts)
        said = proven(found, top=0, read_twice=False).safety
        assert said is not None
        assert (said.fastest is not None) is better


def test_why_there_is_no_plan_is_said_unless_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    clash = Clash(rule="memory", reason="too little")
    monkeypatch.setattr(planner, "conflict", lambda *_, **__: (clash,))
    none = FEW.with_limits(hbm=3e9)
    assert (plan(none).status, plan(none).conflict) == ("infeasible", (clash,))
    assert plan(none, explained=False).conflict == proven(search(none), explained=False).conflict == ()
    assert proven(search(none)).conflict == (clash,)
