"""One node that computes slower than the others, for which all wait."""

from __future__ import annotations

from optimizer.diagnose.causes.cause import Cause, Test, exponential
from optimizer.diagnose.causes.question import Question
from optimizer.objectives.step.formula import COMPUTE, STREAM
from optimizer.objectives.step.time_terms import burning

MOST, USUAL_SLOWDOWN = 3.0, 0.15


def seconds(question: Question, slower: float) -> float:
    """The step when one node computes `slower` times longer, minus one: predicted + slower x computation [s].

    Computation is the slowest stage's, on every micro-batch; its wait for the other stages stays, since they are as
    fast as before.
    """
    terms = question.terms
    return question.predicted + slower * sum(terms[name] for name in (*burning(COMPUTE), *burning(STREAM)))


def absent(question: Question) -> str:
    """Why no node can be slower than another, "" where one can."""
    return "the run has one node" if question.job.gpus <= question.job.cluster.gpus_per_node else ""


CAUSE = Cause(
    name="straggler",
    label="one slow node",
    seconds=seconds,
    healthy=lambda question: 0.0,
    worst=lambda question: MOST,
    settings=lambda question: exponential(USUAL_SLOWDOWN, MOST),
    why="15 % on average, exponential (assumed): slow hosts of Jiang et al., arXiv 2402.15627, section 6.3, are about "
    "10 % slower, throttled ones more",
    says=lambda slower: f"one node computes {slower:.0%} longer than the others",
    test=Test(
        what="the same matrix product timed on every node, or the times of every rank in the log "
        "(--timing-log-option all in Megatron-LM)",
        minutes=2.0,
        shows=lambda slower: f"one node takes about {slower:.0%} longer than the rest",
    ),
    # Heat and contention on one host come and go within tens of seconds to hours (Wu et al., arXiv 2410.12588); some
    # hosts are always slower (Jiang et al., arXiv 2402.15627, section 6.3).
    signs={
        "motion": {"steady": 0.45, "jitter": 0.12, "wander": 0.43},
        "floor": {"above": 0.85, "reached": 0.15},
        "tail": {"even": 0.6, "skewed": 0.25, "stalls": 0.12, "standstill": 0.03},
        "trend": {"flat": 0.84, "rises": 0.1, "falls": 0.06},
    },
    absent=absent,
)
