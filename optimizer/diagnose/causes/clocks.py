"""All GPUs at lower clocks than they should run: a power cap, or heat."""

from __future__ import annotations

from optimizer.diagnose.causes.cause import Cause, Test, exponential
from optimizer.diagnose.causes.question import Question

SLOWEST, USUAL_LOSS = 0.4, 0.15


def seconds(question: Question, share: float) -> float:
    """The step with matrix products and attention at this share of their rate [s]; HBM and links have other clocks."""
    stack = question.job.stack
    return question.with_stack(
        gemm_efficiency=share * stack["gemm_efficiency"], attention_efficiency=share * stack["attention_efficiency"]
    )


CAUSE = Cause(
    name="clocks",
    label="GPU clocks",
    seconds=seconds,
    healthy=lambda question: 1.0,
    worst=lambda question: SLOWEST,
    settings=lambda question: 1.0 - exponential(USUAL_LOSS, 1.0 - SLOWEST),
    why="15 % lost on average, exponential (assumed): capped or hot GPUs run between their base and boost clocks, and "
    "the usual throttling is in the stack already",
    says=lambda share: f"all GPUs run at {share:.0%} of the clocks that they should hold",
    test=Test(
        what="nvidia-smi --query-gpu=clocks.sm,power.draw,clocks_event_reasons.active --format=csv on every node "
        "while it trains (rocm-smi -c on AMD)",
        minutes=1.0,
        shows=lambda share: f"SM clocks of all GPUs at about {share:.0%} of those in the vendor's benchmark",
    ),
    # A cap is steady; heat builds up over the first minutes.
    signs={
        "motion": {"steady": 0.75, "jitter": 0.07, "wander": 0.18},
        "trend": {"flat": 0.7, "rises": 0.28, "falls": 0.02},
    },
)
