"""Fixtures shared by tests of several folders, and how hypothesis runs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any

import pytest
from hypothesis import settings

from optimizer.answer.answer import Alternative, Answer, Certificate, Clash, NearTies
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job, Limits
from optimizer.job.plan import Knobs, Plan
from optimizer.objectives.step.estimate import Estimate
from tests.browser import chromium_here
from tests.thorough import cases

# Own presets and defaults of whoever runs the tests change no test.
_EMPTY = tempfile.TemporaryDirectory()
os.environ["XDG_CONFIG_HOME"] = _EMPTY.name
os.environ.pop("OPTIMIZE_PRESETS", None)

# The same examples on every run: a failure seen once is seen again.
settings.register_profile("gate", deadline=None, derandomize=True, database=None, max_examples=cases(100, sample=40))
settings.load_profile("gate")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One browser for every test of pages."""
    with chromium_here("axe_core_python") as found:
        yield found


@pytest.fixture(scope="session")
def gpt3_job() -> Job:
    """GPT-3 175B on 1,024 H100, 1,536 sequences of 2,048 tokens."""
    return Job(
        model=load_model("gpt3"),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=1024,
        seq_len=2048,
        global_batch=1536,
        limits=Limits(hbm=80e9),
    )


@pytest.fixture
def gpt3_plan() -> Plan:
    """A plan for `gpt3_job`: 8 x 8 x 16 = 1,024 GPUs, 16 x 1 x 96 = 1,536 sequences."""
    return Plan(
        tp=8,
        pp=8,
        vpp=6,
        dp=16,
        micro_batch=1,
        num_microbatches=96,
        sequence_parallel=True,
        zero_stage=1,
        recompute="selective",
        schedule="interleaved",
    )


@pytest.fixture
def estimate() -> Estimate:
    """A made-up estimate whose terms add up: 5 s of time, 40 GB of memory."""
    return Estimate(
        step_time=5.0,
        mfu=0.482,
        hfu=0.5,
        flops_per_gpu=477e12,
        tokens_per_s_per_gpu=614.4,
        bubble_fraction=7 / 583,
        time={"gemm": 4.0, "tp_communication": 0.75, "bubble": 0.25, "cp_communication": 0.0},
        memory={"weights": 5e9, "optimizer": 15e9, "activations": 18e9, "context": 2e9},
        reserved=40e9,
        allocated=38e9,
        all_hidden=4.5,
        none_hidden=5.5,
    )


@pytest.fixture
def gpt3_answer(gpt3_job: Job, gpt3_plan: Plan, estimate: Estimate) -> Answer:
    """A proven answer with one runner-up, made by hand so that no search is needed."""
    return Answer(
        status="optimal",
        job=gpt3_job,
        plan=gpt3_plan,
        knobs=Knobs(),
        estimate=estimate,
        certificate=Certificate(proven=True, lower_bound=5.0, best=5.0, space=12345, method="by exhaustion"),
        alternatives=(Alternative(plan=Plan(tp=4, pp=16, dp=16, num_microbatches=96), estimate=estimate, slower=0.02),),
        near_ties=NearTies(within_1_percent=3, within_5_percent=21),
        flags=("the MFU exceeds anything measured",),
        search_s={"total": 0.5},
    )


@pytest.fixture
def infeasible_answer(gpt3_job: Job) -> Answer:
    """A proof that there is no plan."""
    clash = Clash(rule="memory", reason="the smallest plan needs 410 GB of 80 GB", relaxation="48 GPUs instead of 8")
    return Answer(status="infeasible", job=gpt3_job, conflict=(clash,))


@cache
def _answers() -> Callable[..., Answer]:
    """The planner, which keeps what it has answered."""
    from optimizer.search.plan.planner import plan

    kept = lru_cache(maxsize=64)(plan)
    return lambda job, **options: (plan if options.get("known") else kept)(job, **options)


@pytest.fixture
def planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what is done with an answer: one job under the same options is planned once in all of them."""
    from optimizer.search.plan import planner

    monkeypatch.setattr(planner, "plan", _answers())


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what is done with a `Robustness`: of 8 draws of the parameters, which take an eighth of the time."""
    from optimizer.search.why.robustness import robustness

    monkeypatch.setattr(robustness, "__defaults__", (8,))


@pytest.fixture
def with_answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer | BaseException], list[dict[str, Any]]]:
    """Let the planner return this answer (or raise); the list receives what it was asked."""

    def install(outcome: Answer | BaseException) -> list[dict[str, Any]]:
        from optimizer.search.plan import planner

        asked: list[dict[str, Any]] = []

        def plan(job: Job, **options: Any) -> Answer:
            asked.append({"job": job, **options})
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        monkeypatch.setattr(planner, "plan", plan)
        return asked

    return install
