"""Times and utilisations of plans for people: digits where the interval allows them, else that they are not known."""

from __future__ import annotations

from optimizer.base.units import seconds
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.interval import LEVEL, interval

NOT_KNOWN = "not known"


def step_words(job: Job, plan: Plan, step_time: float) -> str:
    """A step time [s], or that it is not known.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=64, seq_len=2048, global_batch=64)
    >>> [step_words(job, Plan(tp=8, pp=8), step) for step in (10.0, 1e5)]  # 1e5 s: an MFU of 0.002 %
    ['10 s', 'not known']
    """
    return seconds(step_time) if interval(job, plan, step_time).known else NOT_KNOWN


def mfu_words(job: Job, plan: Plan, estimate: Estimate) -> str:
    """The MFU of a plan, or that it is not known."""
    return f"{estimate.mfu:.1%}" if interval(job, plan, estimate.step_time).known else NOT_KNOWN


def price_words(job: Job, plan: Plan, estimate: Estimate) -> str:
    """MFU and step time in one line; where they are not known, between which times the step lies."""
    time = interval(job, plan, estimate.step_time)
    if time.known:
        return f"MFU {estimate.mfu:.1%}, {seconds(estimate.step_time)} per step"
    return f"step time {NOT_KNOWN}: {seconds(time.low)} to {seconds(time.high)} at {LEVEL:.0%}"
