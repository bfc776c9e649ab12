"""How far the stack is moved: to what trials measured where their errors are more than the noise of a run."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.diagnose.failures import CRASHED, OK, OOM
from optimizer.diagnose.measured import Measured
from optimizer.job.job import Job
from optimizer.job.known import TIME
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.belief.belief import likeness
from optimizer.objectives.belief.places import Places
from optimizer.objectives.step.interval import mfu
from optimizer.trial import local_stack as module
from optimizer.trial import verdict as verdicts
from optimizer.trial.belief import Gaussian
from optimizer.trial.candidates import Candidates
from optimizer.trial.choice import Next
from optimizer.trial.local_stack import LocalStack, local_stack
from optimizer.trial.outcome import UNFINISHED, Outcome, believed, reserved_share
from optimizer.trial.report import local_rows
from optimizer.trial.verdict import Verdict

# With three parameters of time to be moved: eight take seconds.
WHOLE = load_stack("megatron-core")
JOB = Job(
    model=load_model("llama3-8b"),
    cluster=load_cluster("dgx-h100"),
    stack=replace(
        WHOLE, parameters={name: WHOLE[name] for name in ("elementwise_passes", "network_efficiency", "tp_overlap")}
    ),
    gpus=64,
    seq_len=8192,
    global_batch=64,
)
PLANS = (
    Plan(tp=2, dp=32, num_microbatches=2, sequence_parallel=True, zero_stage=1),
    Plan(tp=4, dp=16, num_microbatches=4, sequence_parallel=True, zero_stage=1),
    Plan(tp=2, pp=2, dp=16, num_microbatches=4, sequence_parallel=True, zero_stage=1),
)
TRIED = Candidates(job=JOB, plans=PLANS, knobs=(Knobs(),) * len(PLANS))
RESERVED = (TRIED.costs.reserved / JOB.usable_memory).tolist()


def trained(factor: float, memory: float | None = None) -> list[Outcome]:
    """Every plan, so many times slower than predicted; `memory` is its peak over what is predicted."""
    steps = TRIED.costs.step_time.tolist()
    return [
        Outcome(name=f"trial-{i}", index=i, status=OK, seconds=factor * step, memory=memory and memory * RESERVED[i])
        for i, step in enumerate(steps)
    ]


def moved(*outcomes: Outcome) -> LocalStack:
    local = local_stack(TRIED, outcomes, "2026-01-31")
    assert local is not None
    return local


def under(local: LocalStack) -> Candidates:
    return replace(TRIED, job=replace(JOB, stack=local.stack))


def noise() -> float:
    """What no parameter explains of the steps of these plans [1]."""
    shares = np.array([mfu(JOB, step) for step in TRIED.costs.step_time.tolist()])
    usual = replace(likeness(TIME), noises={})
    return float(usual.single(Places.around(JOB, Plans.of(PLANS), shares, TIME)).min())


def test_times_are_met_and_their_errors_told() -> None:
    factor = 0.95  # as far as the prior lets three parameters go
    local = moved(*trained(factor))
    assert local.before == pytest.approx(abs(1 - 1 / factor), rel=1e-6)
    assert local.after < 1.1 * noise() < local.before
    ratio = under(local).costs.step_time / TRIED.costs.step_time
    assert ratio == pytest.approx([factor] * 3, rel=1.1 * noise())
    assert under(local).costs.reserved == pytest.approx(TRIED.costs.reserved)  # memory is fitted apart
    assert local.moved
    assert all(abs(new - old) > 1e-3 * max(abs(old), abs(new)) for old, new in local.moved.values())
    assert (local.stack.name, local.stack.parent) == ("megatron-core-2026-01-31", "megatron-core")


def test_the_weakest_prior_stands_where_more_than_noise_is_left() -> None:
    local = moved(*trained(1.3))
    assert local.prior == 1.0
    assert noise() < local.after < local.before / 5


@pytest.mark.parametrize(("share", "moves"), [(0.99, False), (1.2, True)])
def test_nothing_moves_within_what_no_parameter_explains(share: float, moves: bool) -> None:
    assert bool(moved(*trained(1 + share * noise())).moved) is moves


def test_what_is_noise_is_told_by_the_mfu_of_each_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[float]]] = []

    def told(job: Job, plans: Plans, shares: FloatArray, quantity: str) -> float:
        asked.append((quantity, shares.tolist()))
        return 9.0

    monkeypatch.setattr(module, "_noise", told)
    assert not moved(*trained(1.3, 1.25)).moved
    steps = (1.3 * TRIED.costs.step_time).tolist()
    assert asked == [(TIME, pytest.approx([mfu(JOB, step) for step in steps])), ("memory", [1.0] * 3)]


@pytest.mark.parametrize("peak", [0.7, 1.25])
def test_measured_peaks_are_met(peak: float) -> None:
    local = moved(*trained(1.0, peak))
    now = (under(local).costs.reserved / JOB.usable_memory).tolist()
    before, after = (
        [abs(np.log(share / (peak * old))) for share, old in zip(shares, RESERVED, strict=True)]
        for shares in (RESERVED, now)
    )
    assert max(after) < 0.95 * min(before)
    assert under(local).costs.step_time == pytest.approx(TRIED.costs.step_time)


def test_a_plan_that_should_have_fitted_takes_more_memory_afterwards_and_one_that_ran_tells_nothing() -> None:
    failed = Outcome(name="trial-0", index=0, status=OOM)
    local = moved(failed)
    assert under(local).costs.reserved[0] > 1.2 * TRIED.costs.reserved[0]
    assert (local.before, local.after) == (0.0, 0.0)
    assert not moved(*trained(1.0)).moved
    assert local_stack(TRIED, [replace(failed, status=CRASHED)], "2026-01-31") is None


def test_the_report_names_what_moved_most_by_its_own_size() -> None:
    changes = {f"p{i}": (10.0**i, 10.0**i * (1 + i / 10)) for i in range(9)} | {"down": (2.0, 0.0)}
    local = LocalStack(stack=JOB.stack, prior=1.0, before=0.1, after=0.02, moved=changes)
    rows = dict(local_rows(local, "local.toml"))
    assert rows["error"] == "10.0% of the trials' steps before, 2.0% after"
    assert rows["prior"] == "as strong as 1 run for each parameter"
    assert rows["moved"].startswith("down 2 → 0, p8 1e+08 → 1.8e+08, p7 1e+07 → 1.7e+07")
    assert dict(local_rows(replace(local, prior=4.0), ""))["prior"] == "as strong as 4 runs for each parameter"
    assert "nothing" in dict(local_rows(replace(local, moved={}), ""))["moved"]


@pytest.mark.parametrize("kind", ["reserved", "allocated"])
def test_a_peak_is_compared_with_what_is_usable(kind: str) -> None:
    """Where a log has what was allocated, the model's ratio makes of it what was reserved."""
    costs = TRIED.costs
    run = Measured(files=(), program="", status=OK, steady=None, memory=40e9, memory_kind=kind, facts={})
    ratio = 1.0 if kind == "reserved" else float(costs.reserved[1] / costs.allocated[1])
    assert reserved_share(TRIED, 1, run) == pytest.approx(ratio * 40e9 / JOB.usable_memory)
    assert reserved_share(TRIED, 1, replace(run, memory=None)) is None


def test_an_error_of_half_the_spread_takes_four_fifths_of_a_measurement() -> None:
    after = Gaussian(mean=np.zeros(2), covariance=np.array([[1.0, 0.5], [0.5, 1.0]])).measured(0, 1.0, 0.5)
    assert after.mean.tolist() == pytest.approx([0.8, 0.4])
    assert after.covariance[0].tolist() == pytest.approx([0.2, 0.1])


def test_a_belief_takes_each_outcome_for_what_it_is() -> None:
    ran, failed, broken = trained(1.2)[0], *(Outcome(name="", index=i, status=s) for i, s in ((1, OOM), (2, CRASHED)))
    found = believed(TRIED, [ran, failed, broken])
    by_hand = TRIED.belief().trained(0, ran.seconds or 0.0).out_of_memory(1).crashed(2)
    assert found.seconds.mean.tolist() == by_hand.seconds.mean.tolist()
    assert found.memory.mean.tolist() == by_hand.memory.mean.tolist()
    assert found.chance.tolist() == [1.0, 0.0, 0.0]
    assert (
        believed(TRIED, [replace(ran, status=UNFINISHED)]).seconds.mean.tolist() == TRIED.belief().seconds.mean.tolist()
    )


@pytest.mark.parametrize(("win", "tokens"), [(0.5, 4e9), (2.0, 1e9), (0.0, np.inf)])
def test_a_trial_pays_from_the_tokens_on_at_which_its_win_is_its_cost(win: float, tokens: float) -> None:
    unused: Any = None
    found = Verdict(
        trials=unused,
        belief=unused,
        winner=None,
        loss=unused,
        next=None,
        outcomes=(),
        cost=2.0,
        win=win,
        tokens=1e9,
        assumed_tokens=False,
    )
    assert found.breaks_even == tokens


@pytest.mark.parametrize(("gain", "tokens"), [(0.1, 1e12), (-0.1, 1e12), (0.1, None)])
def test_what_another_trial_wins_is_a_share_of_the_whole_run(
    gain: float, tokens: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "next_trial", lambda *_, **__: Next(index=1, gain=gain))
    trials: Any = SimpleNamespace(job=JOB, candidates=TRIED, steps=30)
    outcomes = trained(1.2)[:1]
    found = verdicts.verdict(trials, outcomes, tokens)
    length = tokens or 20.0 * JOB.model.active_params
    step = 1.2 * float(TRIED.costs.step_time[0])
    whole = JOB.gpus * step * length / (JOB.global_batch * JOB.seq_len) / 3600
    assert (found.winner, found.tokens, found.assumed_tokens) == (0, length, tokens is None)
    assert found.cost == pytest.approx(JOB.gpus * (300 + 30 * float(TRIED.costs.step_time[1])) / 3600)
    assert found.win == pytest.approx(max(0.0, gain) * whole)
    assert found.pays is (gain > 0 and found.win > found.cost)
    nothing = verdicts.verdict(trials, [replace(outcomes[0], status=UNFINISHED)], tokens)
    assert (nothing.winner, nothing.loss, nothing.next, nothing.cost, nothing.win) == (None, None, None, 0.0, 0.0)
