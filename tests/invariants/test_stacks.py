"""Every stack's answers are finite, add up and keep their rules, with plans free or pinned, on numbers of any kind."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from math import isfinite

import pytest

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_model, load_stack, stack_names
from optimizer.job.job import Job, Limits
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.plan.planner import plan
from tests.thorough import cases

FIXES: tuple[Mapping[str, int | str], ...] = (
    {},
    {"pp": 2, "tp": 2},
    {"zero_stage": 0},
    {"zero_stage": 2},
    {"zero_stage": 3, "shard": 4},
    {"schedule": "zero-bubble", "pp": 2},
    {"recompute": "full"},
)


def asked(stack: str, model: str = "llama3.2-1b", gpus: int = 8, **fixed: int | str) -> Job:
    """A small job of sequences of 2,048 tokens, two for each GPU."""
    return Job(
        model=load_model(model),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack(stack),
        gpus=gpus,
        seq_len=2048,
        global_batch=2 * gpus,
        limits=Limits(fixed=fixed),
    )


def held(found: Answer) -> None:
    """The answer's figures are finite, its terms add up, and its degrees multiply to the job's numbers."""
    if found.plan is None or found.estimate is None or found.certificate is None:
        assert found.status == "infeasible"
        return
    estimate, job = found.estimate, found.job
    assert all(isfinite(value) and value >= 0 for value in (*estimate.time.values(), *estimate.memory.values()))
    assert sum(estimate.time.values()) == pytest.approx(estimate.step_time, rel=1e-9)
    assert sum(estimate.memory.values()) == pytest.approx(estimate.reserved, rel=1e-9)
    assert estimate.reserved <= safe_memory(job) * (1 + 1e-9)
    assert 0 < estimate.mfu <= estimate.hfu < 1
    assert found.certificate.lower_bound <= estimate.step_time * (1 + 1e-9)
    assert found.plan.gpus == job.gpus
    assert found.plan.dp * found.plan.micro_batch * found.plan.num_microbatches == job.global_batch


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("number", "stack"), [*enumerate(stack_names())])
def test_a_plan_holds_however_it_is_pinned(number: int, stack: str) -> None:
    turn = number % len(FIXES)  # each stack has one of them
    for fixed in (FIXES[turn:] + FIXES[:turn])[: cases(len(FIXES), sample=1)]:
        with suppress(InputError):  # a stack without this mode of recomputation says so
            held(plan(asked(stack, **fixed), top=0, priced_risk=False, explained=False))


@pytest.mark.parametrize(("model", "gpus"), [("gpt3-125m", 1), ("llama3.2-1b", 7), ("grok-1", 1), ("gemma3-1b", 12)])
def test_odd_numbers_of_gpus_and_models_that_cannot_fit_are_answered(model: str, gpus: int) -> None:
    found = plan(asked("megatron-core", model, gpus), top=0, priced_risk=False)
    held(found)
    assert (found.plan is None) == bool(found.conflict)
