"""Times and utilisations of plans for people: digits where the interval allows them, else that they are not known."""

from __future__ import annotations

from dataclasses import replace
from math import exp, sqrt

from optimizer.answer.answer import Answer
from optimizer.base.units import seconds
from optimizer.job.job import Job
from optimizer.job.known import TIME
from optimizer.job.plan import Plan
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.interval import LEVEL, interval

NOT_KNOWN = "not known"
DECIDES = 0.002  # of a step, from which on a run that chooses between plans is named
# What the slowest data loader known brought each data-parallel rank, two workers reading documents from shared disks:
# 256 sequences of 4,096 in 0.9 s on 32 GH200, whose GPUs need 0.3 s [tokens/s]. Nobody measured that it was the loader.
# Source: swiss-ai/Megatron-LM, pull request 23 (2025-02-12); its workers were doubled for 1B that week (@4f71d92).
SLOW_LOADER = 256 * 4096 / 0.9 / 32
LATE = 2.0  # steps that such a loader takes for the data of one, from which on it is warned of [1]


def step_words(job: Job, plan: Plan, step_time: float) -> str:
    """A step time [s], or that it is not known.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=64, seq_len=2048, global_batch=64)
    >>> [step_words(job, Plan(tp=8, pp=8), step) for step in (10.0, 1e5)]  # 1e5 s: an MFU of 0.002 %
    ['10 s', 'not known']
    """
    return seconds(believed(job, plan, step_time)) if interval(job, plan, step_time).known else NOT_KNOWN


def mfu_words(job: Job, plan: Plan, estimate: Estimate) -> str:
    """The MFU of a plan, or that it is not known."""
    slower = believed(job, plan, estimate.step_time) / estimate.step_time
    return f"{estimate.mfu / slower:.1%}" if interval(job, plan, estimate.step_time).known else NOT_KNOWN


def price_words(job: Job, plan: Plan, estimate: Estimate) -> str:
    """MFU and step time in one line; where they are not known, between which times the step lies."""
    time = interval(job, plan, estimate.step_time)
    if time.known:
        slower = believed(job, plan, estimate.step_time) / estimate.step_time
        return f"MFU {estimate.mfu / slower:.1%}, {seconds(estimate.step_time * slower)} per step"
    factor = f"{time.high / time.low:.2g}"
    return f"step time {NOT_KNOWN}, a factor of {factor}: {seconds(time.low)} to {seconds(time.high)} at {LEVEL:.0%}"


def loader_words(job: Job, plan: Plan, step_time: float) -> str:
    """What a pretraining step [s] asks of the data loader, where one is known that takes LATE of it; "" elsewhere.

    No time of a step has a wait for data in it: benchmarks invent theirs.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=8, seq_len=2048, global_batch=64)
    >>> loader_words(job, Plan(dp=8), 10.0)
    ''
    >>> loader_words(job, Plan(dp=8), 0.1)
    'not known whether data keep up: 164,000 tokens/s a rank (shared disks gave one 36,400: 450 ms a step)'
    """
    rate = job.tokens / plan.dp / step_time
    if job.tunes or rate < LATE * SLOW_LOADER:
        return ""
    needs, slow = (f"{float(f'{value:.3g}'):,.0f}" for value in (rate, SLOW_LOADER))
    waiting = seconds(step_time * rate / SLOW_LOADER)
    return f"not known whether data keep up: {needs} tokens/s a rank (shared disks gave one {slow}: {waiting} a step)"


def believed(job: Job, plan: Plan, step_time: float) -> float:
    """A predicted step time with what the user's own runs say of it [s]; as predicted without such runs."""
    return interval(job, plan, step_time).middle


def learning_words(answer: Answer, *, always: bool = True) -> str:
    """Which run tells the most of the answer's step, and which plan to run to choose between those listed.

    "" where none tells much, and unless `always` where the step is known and the user has no runs.
    """
    job, plan, estimate = answer.job, answer.plan, answer.estimate
    if plan is None or estimate is None:
        return ""
    if not always and not job.own_runs and interval(job, plan, estimate.step_time).known:
        return ""
    from optimizer.search.why.next_run import STEPS, decides, next_run

    run, choice = next_run(job, plan, answer.knobs, estimate.step_time), decides(answer)
    parts = []
    if run:
        fewer = "" if run.job is job else f" with DP {run.plan.dp} and a batch of {run.job.global_batch:,}"
        parts.append(
            f"{STEPS} steps of this plan{fewer} on {run.job.gpus:,} GPUs ({hours(run.cost)}): "
            f"±{exp(run.before) - 1:.0%} -> ±{exp(run.after) - 1:.0%}"
        )
    if choice and choice[1] >= DECIDES:
        which = f"plan {choice[0] + 1}" if choice[0] else "this plan"
        parts.append(f"to choose, run {which}: {choice[1]:.1%} shorter steps expected")
    return "; ".join(parts)


def hours(value: float) -> str:
    """GPU-hours for people.

    >>> hours(0.456), hours(123.4), hours(45678.9)
    ('0.46 GPU-hours', '123 GPU-hours', '45,679 GPU-hours')
    """
    return f"{value:,.0f} GPU-hours" if value >= 100 else f"{value:.2g} GPU-hours"


def runs_words(job: Job, plan: Plan, step_time: float) -> str:
    """What the user's own runs changed in a step time [s]; "" without such runs."""
    count = job.own_runs.runs if job.own_runs else sum(row.quantity == TIME for row in job.stack.known)
    if not count:
        return ""
    before = interval(replace(job, stack=replace(job.stack, known=())), plan, step_time)
    after, moved = interval(job, plan, step_time), believed(job, plan, step_time) / step_time - 1.0
    widths = [sqrt(span.high / span.low) - 1.0 for span in (before, after)]
    return (
        f"your {count} run{'s' * (count > 1)}: {abs(moved):.0%} {'slower' if moved > 0 else 'faster'} than predicted "
        f"without {'them' if count > 1 else 'it'}, interval ±{widths[0]:.0%} -> ±{widths[1]:.0%}"
    )
