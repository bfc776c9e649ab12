"""Sentences and tables of comparisons, checks and sensitivities, on values made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.answer.answer import Clash
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan
from optimizer.objectives.step.estimate import Estimate
from optimizer.reports.check_report import check_report
from optimizer.reports.render.screen import screen_text
from optimizer.reports.report import Block, Report, Section, section
from optimizer.reports.sensitivity_report import loss_table, moves, sensitivity_report, tornado
from optimizer.reports.why_report import comparison_section, verdict
from optimizer.search.check.plan_rules import Finding
from optimizer.search.check.verification import Verification
from optimizer.search.lattice.oracle import Sweep
from optimizer.search.plan.best import Best
from optimizer.search.why.comparison import Comparison
from optimizer.search.why.resilience import Loss
from optimizer.search.why.what_binds import Basin, Effect, Ring, Sensitivity, Variation

NOTHING = Sweep(points=None, best=-1, space=0, fitting=0, complete=True, ideal=0.0, knob_bound=0.0)


def text(shown: Report | Section | Block) -> str:
    if not isinstance(shown, Report):
        shown = Report(title="", sections=(shown if isinstance(shown, Section) else section("", shown),))
    return screen_text(shown, width=120, colour=False)


@pytest.fixture
def comparison(gpt3_plan: Plan, estimate: Estimate) -> Comparison:
    """Theirs takes 5.5 s: 0.75 s more of TP communication, 0.25 s less bubble."""
    time = {**estimate.time, "tp_communication": 1.5, "bubble": 0.0}
    slower = replace(estimate, time=time, step_time=5.5, mfu=0.438)
    return Comparison(
        pins="tp=4",
        verdict="slower",
        ours=gpt3_plan,
        our_estimate=estimate,
        plan=gpt3_plan,
        estimate=slower,
        slower=0.1,
    )


def test_a_slower_plan_is_explained_by_its_largest_terms(gpt3_job: Job, comparison: Comparison) -> None:
    words = "The best plan with these pins is 10.00% slower: it costs 750 ms of TP communication and saves 250 ms of"
    assert verdict(comparison).startswith(words)
    shown = text(comparison_section(gpt3_job, comparison))
    assert "+750 ms" in shown
    assert "-250 ms" in shown
    assert "all terms" in shown
    assert "matrix products" not in shown.split("seconds per step")[1].split("memory")[0]


def test_broken_rules_are_listed_with_what_is_enough(gpt3_job: Job, comparison: Comparison) -> None:
    clash = Clash(rule="bubble", reason="the bubble must be at most 0.1", relaxation="bubble 10.0% -> 12.5%")
    broken = replace(comparison, verdict="infeasible", plan=None, estimate=None, broken=(clash,))
    shown = text(comparison_section(gpt3_job, broken))
    for part in ("No plan with these pins satisfies every rule (bubble).", "at most 0.1", "enough: bubble 10.0% -> 12"):
        assert part in shown


def test_a_faster_plan_is_said_to_lie_outside(comparison: Comparison, estimate: Estimate) -> None:
    faster = replace(comparison, verdict="faster", estimate=replace(estimate, step_time=4.5), slower=-0.1)
    assert "10.00% faster" in verdict(faster)
    assert "where the search did not look" in verdict(faster)


def test_a_check_shows_what_is_broken_first(gpt3_job: Job, gpt3_plan: Plan, estimate: Estimate) -> None:
    many = tuple(Finding(name=f"rule {number}", holds=False, reason=f"reason {number}") for number in range(7))
    good = Finding(name="heads", holds=True, reason="")
    bound = Finding(name="certificate of bf16: bound", holds=True, reason="none is faster")
    found = Verification(
        job=gpt3_job,
        plan=gpt3_plan,
        estimate=estimate,
        rules=(good, *many),
        claims=(bound,),
        agreeing={"estimate": 39, "status": 1},
        unchecked={"search_s": "seconds there"},
    )
    shown = text(check_report(found))
    headline, body = shown.split("\n", 1)
    assert headline == "The plan does not hold: rule 0, rule 1, rule 2, rule 3, rule 4 and 2 more"
    assert body.index("reason 6") < body.index("Claims that hold") < body.index("Rules that hold")
    assert "search_s: seconds there" in body
    holds = text(check_report(replace(found, rules=(good,))))
    assert holds.startswith("The plan holds: 1 rules and 40 values checked")
    none = text(check_report(replace(found, rules=(), plan=None, estimate=None)))
    assert none.startswith("The answer holds: 40 values checked")
    crowd = tuple(Finding(name=f"estimate.x{number}", holds=False, reason="") for number in range(99))
    assert "74 more" in text(check_report(replace(found, rules=(), claims=crowd)))


def test_the_tornado_scales_to_its_largest_effect(gpt3_job: Job, gpt3_plan: Plan, estimate: Estimate) -> None:
    best = Best(job=gpt3_job, plan=gpt3_plan, knobs=Knobs(), estimate=estimate, swept=NOTHING)

    def effect(name: str, gain: float, found: Best | None = best, changed: tuple[str, ...] = ()) -> Effect:
        variation = Variation(name=name, change="1 -> 2", kind="hardware", job=gpt3_job)
        return Effect(variation=variation, best=found, gain=gain, changed=changed)

    effects = (effect("gone", -1.0, None), effect("NIC x2", 0.5, changed=("vpp 6 -> 12",)), effect("HBM", 0.0))
    rows = text(tornado(effects)).strip("\n").splitlines()
    assert [row.count("█") for row in rows] == [36, 18, 0]
    assert moves(effects) == ["gone: no plan fits", "NIC x2: vpp 6 -> 12"]
    basin = Basin(rings=(Ring(share=0.02, plans=4, structures=0, values={"vpp": ("6", "12")}),))
    shown = text(sensitivity_report(Sensitivity(base=best, effects=effects, basin=basin)))
    assert "a sharp peak" in shown
    assert "vpp 6, 12" in shown
    assert "+50.00%" in shown


def test_losses_say_when_the_shape_cannot_stay(gpt3_job: Job, gpt3_plan: Plan, estimate: Estimate) -> None:
    before = Best(job=gpt3_job, plan=gpt3_plan, knobs=Knobs(), estimate=estimate, swept=NOTHING)
    after = replace(before, job=replace(gpt3_job, gpus=896), estimate=replace(estimate, step_time=6.25))
    loss = Loss(nodes=1, gpus=1016, before=before, same_shape=None, best=after)
    assert loss.loss(after) == pytest.approx(0.2)
    shown = text(loss_table([loss, replace(loss, same_shape=after), replace(loss, best=None)]))
    for part in ("cannot be kept", "-20.0%", "the same", "no plan found"):
        assert part in shown
