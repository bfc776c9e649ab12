"""Which run tells the most: by law, and a choice by hand."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pytest

from optimizer.answer.answer import Alternative, Answer
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.belief.belief import error_of
from optimizer.objectives.belief.places import place
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.interval import SIDES, mfu
from optimizer.objectives.step.price import price
from optimizer.search.why import next_run as module
from optimizer.search.why.next_run import decides, next_run

PLAN = Plan(tp=2, pp=1, dp=32, num_microbatches=8, sequence_parallel=True, zero_stage=1)


@pytest.fixture
def job() -> Job:
    return Job(
        model=load_model("llama3-8b"),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=64,
        seq_len=4096,
        global_batch=256,
    )


def step(job: Job, plan: Plan) -> float:
    return float(price(job, Plans.of([plan]), Knobs()).step_time[0])


def estimate(job: Job, plan: Plan) -> Estimate:
    costs = price(job, Plans.of([plan]), Knobs())
    return costs.estimate(0, job.tokens, job.gpus, 1.0)


def test_a_run_narrows_as_much_as_the_same_run_does_once_it_is_known(job: Job) -> None:
    seconds = step(job, PLAN)
    found = next_run(job, PLAN, Knobs(), seconds)
    assert found is not None
    assert found.after < 0.85 * found.before
    assert found.before == pytest.approx(SIDES * error_of(job, PLAN, mfu(job, seconds))[1])
    its_step = step(found.job, found.plan)
    assert found.cost == pytest.approx(found.job.gpus * (300 + 20 * its_step) / 3600)
    row = place(found.job, found.plan, mfu(found.job, its_step))
    told = replace(job, stack=replace(job.stack, known=(row,)))
    assert found.after == pytest.approx(SIDES * error_of(told, PLAN, mfu(job, seconds))[1], rel=0.1)


def test_no_run_is_named_where_the_same_one_was_made(job: Job) -> None:
    seconds = step(job, PLAN)
    rows = tuple(replace(place(job, PLAN, mfu(job, seconds)), error=0.001 * number) for number in range(3))
    assert next_run(replace(job, stack=replace(job.stack, known=rows)), PLAN, Knobs(), seconds) is None


def test_fewer_gpus_where_they_tell_as_much(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs tell the same: the one on the fewest GPUs is the cheapest."""
    monkeypatch.setattr(module, "once_measured", lambda *asked: np.full(len(asked[3]), 0.01))
    found = next_run(job, PLAN, Knobs(), step(job, PLAN))
    assert found is not None
    assert found.job.gpus < job.gpus
    assert found.plan.dp * found.plan.tp == found.job.gpus
    assert found.job.global_batch == found.plan.dp * PLAN.num_microbatches
    assert found.cost < module.gpu_hours(job, step(job, PLAN), module.STEPS)


def test_of_two_plans_that_err_apart_one_decides(job: Job) -> None:
    """A plan alone decides nothing; one that is surely slower does not either."""
    other = Plan(tp=8, pp=1, dp=8, num_microbatches=32, sequence_parallel=True, zero_stage=1)
    best = estimate(job, PLAN)
    alone = Answer(status="optimal", job=job, plan=PLAN, estimate=best)
    assert decides(alone) is None

    def beside(factor: float) -> float:
        slow = replace(best, step_time=factor * best.step_time)
        second = Alternative(plan=other, estimate=slow, slower=factor - 1.0)
        both = replace(alone, alternatives=(second,))
        assert decides(replace(both, plan=None)) is decides(replace(both, estimate=None)) is None
        choice = decides(both)
        assert choice is not None
        return choice[1]

    assert beside(1.0) > beside(1.05) > beside(1.5) >= -1e-9
    assert beside(1.5) < 0.001 < beside(1.0)


@pytest.mark.parametrize(
    ("means", "covariance"),
    [
        ((0.0, 0.0), ((0.04, 0.0), (0.0, 0.01))),
        ((0.0, 0.02), ((0.01, 0.004), (0.004, 0.09))),
        ((0.03, -0.01), ((0.09, 0.01), (0.01, 0.01))),
        ((0.0, 0.0), ((0.01, 0.01), (0.01, 0.01))),
    ],
)
def test_the_gain_of_one_of_two_runs_is_that_of_the_normal_law(
    job: Job, means: tuple[float, float], covariance: tuple[tuple[float, ...], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """E min(X, Y) of two normal variables that one measurement moves, as Clark has it; errors add to log times."""
    prior = (0.01, -0.02)
    monkeypatch.setattr(module, "errors_of", lambda *_: (np.array(prior), np.array(covariance)))
    one = estimate(job, PLAN)
    steps = [replace(one, step_time=float(np.exp(mean - shift))) for mean, shift in zip(means, prior, strict=True)]
    other = Alternative(plan=replace(PLAN, zero_stage=2), estimate=steps[1], slower=0.0)
    found = decides(Answer(status="optimal", job=job, plan=PLAN, estimate=steps[0], alternatives=(other,)))
    gains = []
    for run in range(2):
        apart = abs(covariance[0][run] - covariance[1][run]) / covariance[run][run] ** 0.5
        law, more = NormalDist(), means[1] - means[0]
        least = (
            means[0] * law.cdf(more / apart) + means[1] * law.cdf(-more / apart) - apart * law.pdf(more / apart)
            if apart
            else min(means)
        )
        gains.append(min(means) - least)
    assert found is not None
    assert found[0] == int(np.argmax(gains))
    assert found[1] == pytest.approx(max(gains), rel=0.05, abs=1e-9)


@pytest.mark.parametrize(
    ("after", "gpus"),
    [
        ((8.0, 11.5, 14.0), 64),
        ((8.0, 11.0, 14.0), 32),
        ((8.0, 11.0, 11.0), 16),
        ((17.0, 17.5, 17.5), 16),
        ((17.01, 17.5, 17.5), 0),
    ],
)
def test_the_cheapest_run_that_narrows_three_quarters_of_the_most_is_named(
    job: Job, after: tuple[float, ...], gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an interval of half-width 20 a run must take 3 off."""
    monkeypatch.setattr(module, "SIDES", 2.0)
    monkeypatch.setattr(module, "error_of", lambda *_: (0.0, 10.0))
    monkeypatch.setattr(module, "once_measured", lambda *_: np.array(after) / 2)
    fewer = [(replace(job, gpus=count), replace(PLAN, dp=count // 2), 1.0) for count in (32, 16)]
    monkeypatch.setattr(module, "_smaller", lambda *_: iter(fewer))
    found = next_run(job, PLAN, Knobs(), 1.0)
    assert (found.job.gpus if found else 0) == gpus
    if found:
        assert found.plan.dp == gpus // 2
        assert found.cost == pytest.approx(gpus * (300 + 20) / 3600)
        assert (found.before, found.after) == (20.0, dict(zip((64, 32, 16), after, strict=True))[gpus])


@pytest.mark.parametrize(("chance", "runs"), [(0.5, 4), (0.49, 0)])
def test_a_run_fits_at_least_as_likely_as_not(
    job: Job, chance: float, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "chance_to_fit", lambda *_: chance)
    assert len(list(module._smaller(job, replace(PLAN, dp=16), Knobs()))) == runs


def test_experts_stay_whole_on_fewer_gpus(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """24 ranks hold all experts: 4 replicas of 6 GPUs, but no 2."""
    free = SimpleNamespace(reserved=[0.0], step_time=[1.0])
    monkeypatch.setattr(module, "price", lambda *_: free)
    plan = replace(PLAN, tp=2, cp=3, dp=16, ep=4, etp=6)
    runs = list(module._smaller(replace(job, gpus=96), plan, Knobs()))
    assert [(each.gpus, its_plan.dp, seconds) for each, its_plan, seconds in runs] == [(48, 8, 1.0), (24, 4, 1.0)]


@pytest.mark.parametrize(
    ("changes", "replicas"),
    [
        *(({}, [16, 8, 4, 2]), ({"shard": 16}, [16]), ({"shard": 8}, [16, 8]), ({"dp": 24, "tp": 1}, [12, 6, 3])),
        ({"micro_batch": 2}, [16, 8, 4, 2]),
    ],
)
def test_runs_on_fewer_gpus_have_half_the_replicas_each(
    job: Job, changes: dict[str, int], replicas: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Down to what is odd, to a sharding group, or to what does not fit."""
    monkeypatch.setattr(module, "chance_to_fit", lambda job, _: float(job.gpus >= 3))
    plan = replace(PLAN, **changes)
    sequences = plan.micro_batch * plan.num_microbatches
    runs = list(module._smaller(replace(job, gpus=plan.gpus, global_batch=plan.dp * sequences), plan, Knobs()))
    assert [(each.gpus, its_plan.dp) for each, its_plan, _ in runs] == [(plan.tp * dp, dp) for dp in replicas]
    assert all(each.global_batch == its_plan.dp * sequences for each, its_plan, _ in runs)
