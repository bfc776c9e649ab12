"""Steps that wait for their data."""

from __future__ import annotations

from optimizer.base.units import seconds as shown
from optimizer.diagnose.causes.cause import Cause, Test, exponential
from optimizer.diagnose.causes.question import Question

MOST, USUAL_WAIT = 10.0, 0.3


def seconds(question: Question, wait: float) -> float:
    """The step when it waits so long for its batch, mean over the steps [s]."""
    return question.with_stack(step_overhead=question.job.stack["step_overhead"] + wait)


CAUSE = Cause(
    name="data",
    label="data loading",
    seconds=seconds,
    healthy=lambda question: 0.0,
    worst=lambda question: MOST * question.predicted,
    settings=lambda question: question.predicted * exponential(USUAL_WAIT, MOST),
    why="30 % of a step on average, exponential (assumed): Mohan et al., arXiv 2007.06775, find steps that wait for "
    "most of their time; text needs less work than images",
    says=lambda wait: f"every step waits {shown(wait)} for its data on average",
    test=Test(
        what="20 steps on made-up data (--mock-data in Megatron-LM, the mock data module in NeMo)",
        minutes=4.0,
        shows=lambda wait: "the step falls to what is predicted",
    ),
    # Loaders fall behind and catch up: some steps find their batch ready, others stand still.
    signs={
        "motion": {"steady": 0.3, "jitter": 0.55, "wander": 0.15},
        "tail": {"even": 0.2, "skewed": 0.3, "stalls": 0.3, "standstill": 0.2},
        "floor": {"above": 0.35, "reached": 0.65},
        "loaders": {"some": 0.5, "none": 0.5},
    },
)
