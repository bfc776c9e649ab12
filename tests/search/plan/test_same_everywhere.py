"""The planner, the studies, what binds and the check all give one answer to one job, and its runners-up are as told."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest
from click.testing import CliRunner

from optimizer.answer.answer import Answer
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.cli import cli
from optimizer.job.job import Job
from optimizer.job.plan import Plans
from optimizer.objectives.step.price import price
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.plan.alternatives import structure
from optimizer.search.plan.best import best_plan
from optimizer.search.plan.planner import plan
from optimizer.search.why import what_binds
from optimizer.search.why.resilience import losses
from optimizer.studies.scaling import SERIES, scaling
from tests.search.jobs import DENSE, LATENT, MIXED, SHARED, small_job
from tests.thorough import sampled

JOBS = {
    "dense": small_job(8),
    "virtual stages": small_job(8, model=replace(DENSE, layers=16), fixed={"vpp": 2, "pp": 4}, bubble=1.0),
    "leading": small_job(8, model=replace(DENSE, experts=SHARED, layers=9), hbm=9e9),
    "prediction": small_job(16, model=replace(DENSE, experts=replace(MIXED, first_dense_layers=3), mtp_layers=1)),
    "latent": small_job(8, model=LATENT, hbm=5e9),
    "host": small_job(1, hbm=10e9),
}


def asked(model: str, gpus: int, batch: int, seq_len: int = 4096) -> Job:
    return Job(
        model=load_model(model),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=gpus,
        seq_len=seq_len,
        global_batch=batch,
    )


@pytest.mark.parametrize("name", sampled(JOBS, 2))
def test_one_job_has_one_answer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What binds is asked for its base alone, none of its variations."""
    monkeypatch.setattr(what_binds, "variations", lambda job, plan: ())
    job = JOBS[name]
    answer, found = plan(job, top=1, read_twice=False), best_plan(job)
    assert answer.plan is not None
    assert found is not None
    assert (found.plan, found.knobs, found.estimate) == (answer.plan, answer.knobs, answer.estimate)
    binding = what_binds.sensitivity(job)
    assert binding is not None
    assert (binding.base.plan, binding.base.knobs) == (answer.plan, answer.knobs)
    assert binding.base.estimate == answer.estimate
    (point,) = scaling(job, [job.gpus]).series(SERIES[1])
    assert (point.plan, point.estimate) == (answer.plan, answer.estimate)


def test_a_loss_is_of_the_planner_s_answer() -> None:
    job = JOBS["prediction"]
    answer, (loss,) = plan(job, top=0, read_twice=False), losses(job, [1])
    assert (loss.before.plan, loss.before.knobs, loss.before.estimate) == (answer.plan, answer.knobs, answer.estimate)
    assert loss.best is not None
    again = plan(loss.best.job, top=0, read_twice=False)
    assert (loss.best.plan, loss.best.estimate) == (again.plan, again.estimate)


PROVEN_WHOLE = {
    "gpt3": asked("gpt3", 1024, 1536, 2048),
    "deepseek-v3": asked("deepseek-v3", 2048, 15360).with_limits(max_micro_batch=2),  # more plans than are kept
    "host": asked("llama3-8b", 8, 64).with_limits(hbm=22e9, oom_risk=0.5),
    "infeasible": asked("llama3-70b", 2, 8),
}


@cache
def answer_of(name: str) -> Answer:
    return plan(PROVEN_WHOLE[name])


@pytest.mark.parametrize("name", PROVEN_WHOLE)
def test_the_check_holds(name: str) -> None:
    answer = answer_of(name)
    assert answer.status == ("infeasible" if name == "infeasible" else "optimal")
    if name == "host":
        assert 0 < answer.knobs.offload < 1
    result = CliRunner().invoke(cli, ["check", "-", "--json"], input=json.dumps(answer.to_dict()))
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["holds"], found["broken"]) == (True, [])


@pytest.mark.parametrize("name", ["gpt3", "deepseek-v3", "host"])
def test_runners_up_are_distinct_sorted_and_cost_what_is_printed_at_their_own_knobs(name: str) -> None:
    answer = answer_of(name)
    assert answer.plan is not None
    assert answer.estimate is not None
    assert answer.alternatives
    structures = [structure(answer.plan), *(structure(other.plan) for other in answer.alternatives)]
    assert len(set(structures)) == len(structures)
    times = [answer.estimate.step_time, *(other.estimate.step_time for other in answer.alternatives)]
    assert times == sorted(times)
    for other in answer.to_dict()["alternatives"]:
        assert other["slower"] == pytest.approx(other["estimate"]["step_time_s"] / times[0] - 1)
    for other in answer.alternatives:
        costs = price(answer.job, Plans.of([other.plan]), other.knobs)
        assert other.estimate.step_time == pytest.approx(float(costs.step_time[0]), rel=1e-12)
        assert other.estimate.reserved == float(costs.reserved[0]) <= safe_memory(answer.job)
    assert len({other.knobs for other in answer.alternatives} | {answer.knobs}) > 1
