"""Experts of a mixture that get more tokens than others."""

from __future__ import annotations

from dataclasses import replace

from optimizer.calibration.predict import with_parameters
from optimizer.diagnose.causes.cause import Cause, Test, log_uniform
from optimizer.diagnose.causes.question import Question

MOST, USUAL_MOST = 8.0, 4.0


def seconds(question: Question, imbalance: float) -> float:
    """The step when the busiest expert rank gets this many times the mean [s]."""
    stack = with_parameters(question.job.stack, {"expert_imbalance": imbalance})
    features = replace(stack.features, balanced_experts=False)
    return question.seconds(replace(question.job, stack=replace(stack, features=features)))


def absent(question: Question) -> str:
    """Why routing cannot matter, "" where it can."""
    if question.job.model.experts is None:
        return "the model has no experts"
    return "every rank holds all experts" if question.plan.ep == 1 else ""


CAUSE = Cause(
    name="routing",
    label="routing imbalance",
    seconds=seconds,
    healthy=lambda question: question.job.stack.imbalance,
    worst=lambda question: MOST,
    settings=lambda question: log_uniform(question.job.stack.imbalance, USUAL_MOST),
    why="any factor up to 4 as likely as the next (assumed): real routing of Qwen3-235B takes 1.15 to 1.25 x the time "
    "of even routing (best_practice/qwen3 of the ModelZoo), that of an untrained router far more",
    says=lambda imbalance: f"the busiest expert rank gets {imbalance:.2g} x the mean number of tokens",
    test=Test(
        what="20 steps with routing forced to be even (--moe-router-force-load-balancing in Megatron-LM)",
        minutes=5.0,
        shows=lambda imbalance: "the step falls to what is predicted",
    ),
    # Every batch is routed differently, and balancing losses even the load out over the first thousands of steps.
    signs={
        "motion": {"steady": 0.35, "jitter": 0.45, "wander": 0.2},
        "tail": {"even": 0.6, "skewed": 0.28, "stalls": 0.1, "standstill": 0.02},
        "trend": {"flat": 0.5, "rises": 0.05, "falls": 0.45},
    },
    absent=absent,
)
