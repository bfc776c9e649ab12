"""How the plans of an answer stand when the parameters are drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.answer.answer import Answer
from optimizer.job.plan import Plans
from optimizer.job.stack import PARAMETERS, PRIOR_SPREAD
from optimizer.objectives.step.interval import SIDES, interval
from optimizer.objectives.step.price import price
from optimizer.reports.why_report import robustness_words
from optimizer.search.why.robustness import Robustness, Standing, _spread, moved, robustness


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
