"""What trials cost, may win and decide, by numbers that can be reckoned; what a log makes of a trial."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from optimizer.catalog.offers import quote
from optimizer.diagnose.failures import CRASHED, OK, OOM
from optimizer.trial.belief import Belief, Gaussian
from optimizer.trial.choice import Next
from optimizer.trial.folder import Trials
from optimizer.trial.outcome import UNFINISHED, WAITING, Outcome, _measured
from optimizer.trial.report import (
    candidate_dict,
    decision_rows,
    expected_wins,
    headline,
    money_rows,
    outcomes_table,
    pays_words,
    started_dict,
    trials_table,
    verdict_dict,
)
from optimizer.trial.verdict import Verdict
from tests.trial.test_local_stack import JOB, TRIED

STEPS, GB = TRIED.costs.step_time.tolist(), 1e9
TRIALS = Trials(folder=Path("trials"), candidates=TRIED, chosen=(0, 2), steps=20, places={})


def belief(spread: float = 0.1) -> Belief:
    def one(mean: np.ndarray) -> Gaussian:
        return Gaussian(mean=mean, covariance=spread**2 * np.eye(3))

    return Belief.untried(one(np.log(np.array(STEPS))), one(np.full(3, -5.0)))


def verdict(**changes: Any) -> Verdict:
    seen = (
        Outcome(name="trial-01", index=0, status=OK, seconds=1.1 * STEPS[0], memory_bytes=41.25 * GB),
        Outcome(name="trial-02", index=2, status=OOM, words=("line 7",)),
        Outcome(name="trial-03", index=1, status=WAITING),
    )
    usual: dict[str, Any] = {
        **{"trials": TRIALS, "outcomes": seen, "belief": belief().trained(0, 1.1 * STEPS[0]), "winner": 0},
        **{"loss": 0.0123, "next": Next(index=1, gain=0.05), "cost": 8.0, "win": 4.0, "tokens": 2e9},
        **{"assumed_tokens": False},
    }
    return Verdict(**{**usual, **changes})


def cost(step: float, steps: int = 20) -> float:
    """64 GPUs for five minutes of starting and the steps [h]."""
    return 64 * (300 + steps * step) / 3600


def test_what_trials_cost() -> None:
    table, costs = trials_table(TRIALS, belief()), TRIED.costs
    assert [row[0] for row in table.rows] == ["trial-01", "trial-02"]
    assert [row[3] for row in table.rows] == [f"{costs.reserved[index] / 1e9:.1f} GB" for index in (0, 2)]
    assert [row[4] for row in table.rows] == ["100%", "100%"]
    whole = cost(STEPS[0]) + cost(STEPS[2])
    offer = quote("h100", "on_demand", 2.0 / 3600, row="--price")
    assert dict(money_rows(TRIALS, belief(), offer))["cost"].startswith(
        f"{whole:.2g} GPU-hours, {2 * whole:,.0f} USD at"
    )
    rows = dict(money_rows(TRIALS, belief(0.07), None))
    assert (rows["cost"], rows["unsure by"].split()[0]) == (f"{whole:.2g} GPU-hours", "7.0%")
    assert rows["chosen among"].startswith("3 plans of the lattice")
    found = started_dict(TRIALS, belief(), ["a"])
    assert found["cost_gpu_hours"] == pytest.approx(whole)
    assert [trial["name"] for trial in found["trials"]] == ["trial-01", "trial-02"]
    assert candidate_dict(TRIALS, belief(), 1)["predicted_step_time_s"] == STEPS[1]


def test_the_first_trial_of_the_first_plan_wins_nothing_and_more_do() -> None:
    wins = expected_wins(TRIALS, belief())
    assert len(wins) == 2
    assert wins[0] == 0.0 < wins[1]
    words = dict(money_rows(TRIALS, belief(), None))["shorter steps"]
    assert words.startswith(f"0.0% with 1, {wins[1]:.1%} with 2:")


def test_outcomes_stand_beside_what_was_predicted() -> None:
    rows = outcomes_table(verdict()).rows
    assert [(row[0], row[4], row[5]) for row in rows] == [
        ("trial-01", "41.2 GB", "ran"),
        ("trial-02", "—", "out of memory"),
        ("trial-03", "—", "not run yet"),
    ]
    assert str(rows[0][3]).endswith("(+10.0%)")
    assert [row[3] for row in rows[1:]] == ["—", "—"]


def test_decisions_are_told() -> None:
    found = dict(decision_rows(verdict()))
    assert found["winner"].startswith(f"trial-01: {TRIED.plans[0].summary()}, ")
    assert found["still lost"] == "1.2% of a step, expected over 3 plans"
    assert found["not yet"].startswith("trial-03: bash trials/run.sh")
    assert found["next"] == f"{TRIED.plans[1].summary()}: fits with 100%, 5.0% shorter expected"
    assert headline(verdict()).startswith("trial-01 wins, ")
    assert headline(verdict()).endswith("1.2% may be left")
    nothing = verdict(winner=None, next=None, outcomes=verdict().outcomes[2:])
    assert headline(nothing) == "no trial has trained yet"
    assert list(dict(decision_rows(nothing))) == ["not yet"]
    assert dict(decision_rows(verdict(next=None)))["next"] == "every candidate was tried"


@pytest.mark.parametrize(
    ("win", "words"),
    [
        (4.0, "no: 8 GPU-hours for 4 GPU-hours expected over 2e+09 tokens; it would from 4e+09 tokens on"),
        (8.0, "no: 8 GPU-hours for 8 GPU-hours expected over 2e+09 tokens; it would from 2e+09 tokens on"),
        (0.0, "no: 8 GPU-hours for 0 GPU-hours expected over 2e+09 tokens"),
        (1e-6, "no: 8 GPU-hours for 1e-06 GPU-hours expected over 2e+09 tokens"),
        (16.0, "yes: 8 GPU-hours for 16 GPU-hours expected over 2e+09 tokens; `optimize trial next trials` writes it"),
    ],
)
def test_another_trial_pays_where_it_saves_more_than_it_costs(win: float, words: str) -> None:
    assert pays_words(verdict(win=win)) == words


def test_a_verdict_for_programs_names_the_winner_and_the_next() -> None:
    found = verdict_dict(verdict(), None, "")
    assert (found["winner"]["name"], found["expected_loss"], found["stack"]) == ("trial-01", 0.0123, None)
    assert found["next"]["predicted_step_time_s"] == STEPS[1]
    assert (found["next"]["expected_gain"], found["next"]["win_gpu_hours"], found["next"]["pays"]) == (0.05, 4.0, False)
    assert [row["remarks"] for row in found["trials"]] == [[], ["line 7"], []]
    empty = verdict_dict(verdict(winner=None, next=None), None, "")
    assert (empty["winner"], empty["next"]) == (None, None)


ENDED, LATE = "exit code 1; remove", "stopped, since it took too long; remove"


@pytest.mark.parametrize(
    ("status", "steps", "code", "becomes", "words"),
    [
        (OK, 5, 0, OK, []),
        (OK, 1, 0, OK, []),
        (OK, 5, None, OK, ["its runner has no exit code yet: 5 steady steps"]),
        (OK, 4, None, UNFINISHED, []),
        (OK, 4, 1, CRASHED, [ENDED]),
        (OK, 0, 0, CRASHED, ["exit code 0; remove"]),
        (OK, 5, 1, OK, [ENDED]),
        (OK, 5, 124, OK, [LATE]),
        (OK, 4, 124, CRASHED, [LATE]),
        (CRASHED, 5, 1, OK, []),
        (CRASHED, 4, 1, CRASHED, []),
        (OOM, 9, 1, OOM, []),
    ],
)
@pytest.mark.parametrize("each", [1, 10])
def test_five_steady_steps_make_a_result(
    status: str, steps: int, code: int | None, becomes: str, words: list[str], each: int
) -> None:
    """Whether each has a line or a line is the mean of ten; one that ended well needs one alone."""
    steady = SimpleNamespace(steps_used=steps, steps_each=each, spread=0.02) if steps else None
    run: Any = SimpleNamespace(
        **{
            "steady": steady,
            "failure": "",
            "status": status,
            "step_time": 2.5,
            "memory": 40 * GB,
            "warnings": ["mind"],
        },
        memory_kind="reserved",
    )
    found = _measured(TRIALS, "trial-01", 0, code, run)
    assert (found.status, found.steps, found.seconds) == (becomes, steps, 2.5 if becomes == OK else None)
    assert found.memory == (pytest.approx(40 * GB / JOB.usable_memory) if becomes == OK else None)
    assert (found.memory_bytes, found.spread) == (40 * GB, 0.02 if steps else 0.0)
    told = [word for word in found.words if word != "mind"]
    assert [word.startswith(start) for word, start in zip(told, words, strict=True)] == [True] * len(words)
    assert ("mind" in found.words) is (becomes == OK)
    failed = _measured(TRIALS, "trial-01", 0, code, replace_run(run, failure="line 7"))
    assert failed.words[0] == "line 7"


def replace_run(run: Any, **changes: Any) -> Any:
    return SimpleNamespace(**{**vars(run), **changes})


def test_a_trial_that_has_a_result_is_done() -> None:
    outcome = verdict().outcomes[0]
    assert [replace(outcome, status=status).done for status in (OK, OOM, CRASHED, UNFINISHED, WAITING)] == [
        *[True] * 3,
        *[False] * 2,
    ]
