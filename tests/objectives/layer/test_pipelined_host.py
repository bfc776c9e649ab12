"""The wait of a pipeline between nodes for the host of its collectives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.layer.layer_costs import SPANNED, pipelined_wait
from tests.objectives.questions import job

RATE = 1e-4
ACROSS = Plan(tp=8, pp=4, dp=2, num_microbatches=8)


def slow(rate: float = RATE) -> Job:
    question = job("gpt3")
    parameters = {**question.stack.parameters, "pipelined_collective": rate}
    return replace(question, stack=replace(question.stack, parameters=parameters))


def wait(question: Job, plan: Plan, busy: float = 1e-3, collectives: float = 10.0) -> float:
    host = np.array([5e-4])
    found = pipelined_wait(question, Plans.of([plan]), np.array([busy]), host, np.array([collectives]))
    return float(np.ravel(found)[0])


def test_the_wait_by_hand() -> None:
    """0.5 ms of launches and 10 collectives x 8 ranks x 0.1 ms, against 1 ms of work: 7.5 ms."""
    assert wait(slow(), ACROSS) == pytest.approx(7.5e-3)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(tp=8, dp=8, num_microbatches=8),
        Plan(tp=1, pp=4, dp=16, num_microbatches=8),
        Plan(tp=4, pp=2, num_microbatches=8),
    ],
    ids=["no pipeline", "no tensor parallelism", "one node"],
)
def test_inside_a_node_nothing_waits(plan: Plan) -> None:
    assert wait(slow(), plan) == 0.0


def test_a_group_of_several_nodes_waits_without_a_pipeline_too() -> None:
    """10 collectives x 16 ranks x 0.1 ms, a share of it, whatever the work."""
    spanning = Plan(tp=16, dp=4, num_microbatches=8)
    assert wait(slow(), spanning) == wait(slow(), spanning, busy=1.0) == pytest.approx(16e-3 * SPANNED)
    assert wait(slow(), replace(spanning, tp=8, dp=8)) == 0.0
    assert wait(slow(), spanning) < wait(slow(), replace(spanning, dp=2, pp=2))


def test_work_hides_the_wait_and_ranks_and_collectives_lengthen_it() -> None:
    assert wait(slow(), ACROSS, busy=1.0) == 0.0
    assert wait(slow(), replace(ACROSS, tp=4, dp=4)) < wait(slow(), ACROSS) < wait(slow(), ACROSS, collectives=11.0)
    assert wait(slow(0.0), ACROSS) == 0.0
