"""How the plans of an answer stand when the parameters are drawn."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from optimizer.answer.answer import Alternative, Answer
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.job.stack import PARAMETERS, PRIOR_SPREAD
from optimizer.objectives.step.interval import SIDES, interval
from optimizer.objectives.step.price import price
from optimizer.reports.why_report import robustness_words
from optimizer.search.plan.alternatives import estimate_of_plan, value_of
from optimizer.search.why import robustness as module
from optimizer.search.why.robustness import Robustness, Standing, _spread, moved, robustness
from tests.search.jobs import small_job


def test_chances_add_up_and_regrets_are_those_of_prices(gpt3_answer: Answer) -> None:
    """Drawn and priced again one plan at a time."""
    found = robustness(gpt3_answer, draws=24)
    assert found is not None
    assert sum(standing.chance for standing in found.standings) == pytest.approx(1.0)
    plans = [(gpt3_answer.plan, gpt3_answer.knobs), *((other.plan, other.knobs) for other in gpt3_answer.alternatives)]
    draws = np.random.default_rng(0).standard_normal((24, len(PARAMETERS))) * found.spread
    times = np.array(
        [
            [
                float(price(moved(gpt3_answer.job, draw), Plans.of([plan]), knobs).step_time[0])
                for plan, knobs in plans
                if plan
            ]
            for draw in draws
        ]
    )
    regrets = (times / times.min(axis=1, keepdims=True) - 1).mean(axis=0)
    chances = np.bincount(times.argmin(axis=1), minlength=len(plans)) / 24
    assert [standing.regret for standing in found.standings] == pytest.approx(regrets.tolist())
    assert [standing.chance for standing in found.standings] == pytest.approx(chances.tolist())


def test_the_best_plan_varies_about_as_much_as_its_interval(gpt3_answer: Answer) -> None:
    found = robustness(gpt3_answer)
    assert found is not None
    assert gpt3_answer.plan is not None
    assert gpt3_answer.estimate is not None
    assert 0 < found.spread <= PRIOR_SPREAD
    draws = np.random.default_rng(5).standard_normal((64, len(PARAMETERS))) * found.spread
    one = Plans.of([gpt3_answer.plan])
    times = [float(price(moved(gpt3_answer.job, draw), one, gpt3_answer.knobs).step_time[0]) for draw in draws]
    span = interval(gpt3_answer.job, gpt3_answer.plan, gpt3_answer.estimate.step_time)
    asked = float(np.log(span.high / span.low)) / 2 / SIDES
    assert float(np.std(np.log(times))) == pytest.approx(asked, rel=0.5)


def test_no_move_is_the_job_itself_and_none_leaves_the_bounds(gpt3_answer: Answer) -> None:
    job, none = gpt3_answer.job, np.zeros(len(PARAMETERS))
    same = moved(job, none)
    assert all(same.stack[name] == pytest.approx(job.stack[name]) for name in PARAMETERS)
    further = moved(job, none + 0.1).stack
    for name, parameter in PARAMETERS.items():
        assert parameter.place(further[name]) == pytest.approx(min(1.0, parameter.place(job.stack[name]) + 0.1))
    for end in (-9.0, 9.0):
        far = moved(job, none + end).stack
        assert all(
            PARAMETERS[name].low * (1 - 1e-9) <= far[name] <= PARAMETERS[name].high * (1 + 1e-9) for name in PARAMETERS
        )


def test_the_plan_with_the_least_expected_regret_is_named(gpt3_answer: Answer) -> None:
    found = Robustness(
        draws=64,
        spread=0.1,
        standings=(Standing(chance=0.4, regret=0.02), Standing(chance=0.6, regret=0.01)),
    )
    assert (found.steadiest, found.shape) == (1, "brittle")
    assert "Least expected regret: number 2" in robustness_words(gpt3_answer, found)
    assert "against 2.00%" in robustness_words(gpt3_answer, found)
    tied = replace(found, standings=(Standing(chance=0.5, regret=0.01),) * 2)
    assert (tied.steadiest, tied.shape) == (0, "broad")
    assert robustness(replace(gpt3_answer, plan=None)) is None


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_the_spread_is_found_in_few_steps(power: float) -> None:
    """What varies as a power is a line of logarithms, of which the secant method meets the root at once."""
    asked: list[float] = []

    def varies(spread: float) -> float:
        asked.append(spread)
        return 3.0 * spread**power

    assert _spread(varies, 0.01) == pytest.approx((0.01 / 3.0) ** (1 / power))
    assert len(asked) <= (3 if power == 1.0 else 4)
    assert _spread(varies, 3.0 * PRIOR_SPREAD**power) == PRIOR_SPREAD


def test_the_spread_is_met_to_a_tenth_and_no_wider_than_the_prior() -> None:
    """What grows ever faster takes some steps; what falls would be met beyond the prior."""
    asked: list[float] = []

    def varies(spread: float) -> float:
        asked.append(spread)
        return spread + 1000.0 * spread**3

    assert varies(_spread(varies, 0.05)) == pytest.approx(0.05, rel=0.1)
    assert len(asked) <= 7
    assert _spread(lambda spread: 0.3 / spread, 1.0) == PRIOR_SPREAD


PLANS = (Plan(tp=2, dp=4, num_microbatches=12), Plan(tp=1, dp=8, num_microbatches=6, recompute="full"))


@pytest.fixture
def rivals() -> Answer:
    """Two plans of a small job that costs dollars, each at its own settings."""
    job = replace(small_job(8), minimize="cost")
    (first, own), (second, others) = zip(PLANS, (Knobs(), Knobs(offload=0.5)), strict=True)
    rival = Alternative(plan=second, knobs=others, estimate=estimate_of_plan(job, second, others), slower=0.1)
    best = estimate_of_plan(job, first, own)
    return Answer(status="optimal", job=job, plan=first, knobs=own, estimate=best, alternatives=(rival,), seed=3)


def test_chances_and_regrets_are_those_of_what_is_minimised(rivals: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_spread", lambda *_: 0.3)
    found = robustness(rivals, draws=3)
    assert found is not None
    moves = np.random.default_rng(3).standard_normal((3, len(PARAMETERS))) * 0.3
    every = [(PLANS[0], Knobs()), (PLANS[1], Knobs(offload=0.5))]
    dollars = np.array(
        [
            [value_of(job, plan, knobs, estimate_of_plan(job, plan, knobs)) for plan, knobs in every]
            for job in (moved(rivals.job, move) for move in moves)
        ]
    )
    least = dollars.min(axis=1, keepdims=True)
    assert [each.regret for each in found.standings] == pytest.approx((dollars / least - 1).mean(axis=0).tolist())
    assert [each.chance for each in found.standings] == (dollars == least).mean(axis=0).tolist()


@pytest.mark.parametrize("width", [0.01, 0.03])
def test_the_best_plan_varies_as_much_as_it_is_sure(
    rivals: Answer, width: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interval of SIDES standard deviations on either side, met to a tenth."""
    sure = SimpleNamespace(low=np.exp(-SIDES * width), high=np.exp(SIDES * width))
    monkeypatch.setattr(module, "interval", lambda *_: sure)
    found = robustness(rivals, draws=2)
    assert found is not None
    moves = np.random.default_rng(3).standard_normal((2, len(PARAMETERS))) * found.spread
    jobs = [moved(rivals.job, move) for move in moves]
    dollars = [value_of(job, PLANS[0], Knobs(), estimate_of_plan(job, PLANS[0], Knobs())) for job in jobs]
    assert float(np.std(np.log(dollars))) == pytest.approx(width, rel=0.1)
    assert (found.draws, len(found.standings)) == (2, 2)
