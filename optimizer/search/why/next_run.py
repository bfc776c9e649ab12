"""Which run to make next: the cheapest that tells how long the answer's step is, and the plan that decides the most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.belief.belief import error_of, errors_of, once_measured
from optimizer.objectives.step.interval import SIDES, mfu
from optimizer.objectives.step.price import price
from optimizer.objectives.step.safe_memory import chance_to_fit

STEPS = 20  # of a run
STARTUP = 300.0  # to start processes, build the model and compile kernels [s] (assumed)
ENOUGH = 0.75  # of what the most telling run narrows: the cheapest that narrows so much is taken
LEAST = 0.15  # share of the interval that a run must take off to be worth it
EVEN = 0.5  # chance to fit of a run that is made to learn
NODES = 31  # of the quadrature


@dataclass(frozen=True, kw_only=True)
class NextRun:
    """One run of STEPS steps."""

    job: Job  # On how many GPUs, with which batch
    plan: Plan  # Of it
    cost: float  # What it takes, its start included [GPU-hours]
    before: float  # Half-width in log of the interval of the answer's step without it [1]
    after: float  # The same with it [1]


def gpu_hours(job: Job, step_time: float, steps: int) -> float:
    """What a short run costs, its start included [h].

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"), gpus=8,
    ...     seq_len=2048, global_batch=8)
    >>> gpu_hours(job, 7.5, 20)
    1.0
    """
    return job.gpus * (STARTUP + steps * step_time) / 3600.0


def next_run(job: Job, plan: Plan, knobs: Knobs, step_time: float) -> NextRun | None:
    """The cheapest run that tells nearly as much of a plan's step time [s] as any; None where none tells much.

    It is the plan itself, on all of its GPUs or with fewer replicas of the model.
    """
    share = mfu(job, step_time)
    runs = [(job, plan, step_time), *_smaller(job, plan, knobs)]
    places = [(each, its_plan, mfu(each, seconds)) for each, its_plan, seconds in runs]
    before = SIDES * error_of(job, plan, share)[1]
    after = SIDES * once_measured(job, plan, share, places)
    if before - after.min() < LEAST * before:
        return None
    enough = before - after >= ENOUGH * (before - after.min())
    costs = np.array([gpu_hours(each, seconds, STEPS) for each, _, seconds in runs])
    chosen = int(np.where(enough, costs, np.inf).argmin())
    return NextRun(
        job=runs[chosen][0], plan=runs[chosen][1], cost=float(costs[chosen]), before=before, after=float(after[chosen])
    )


def _smaller(job: Job, plan: Plan, knobs: Knobs) -> Iterator[tuple[Job, Plan, float]]:
    """The plan with a half, a quarter, ... of its replicas where that fits, and its predicted step [s]."""
    dp = plan.dp
    while dp % 2 == 0:
        dp //= 2
        fewer = replace(plan, dp=dp)
        whole = (plan.tp * plan.cp * dp) % (plan.ep * plan.etp) == 0 and not (plan.shard and dp % plan.shard)
        if not whole:
            return
        batch = dp * plan.micro_batch * plan.num_microbatches
        try:
            on_fewer = replace(job, gpus=job.gpus * dp // plan.dp, global_batch=batch)
        except InputError:
            return
        costs = price(on_fewer, Plans.of([fewer]), knobs)
        if chance_to_fit(on_fewer, float(costs.reserved[0])) < EVEN:
            return
        yield on_fewer, fewer, float(costs.step_time[0])


def decides(answer: Answer) -> tuple[int, float] | None:
    """Which of the plans listed decides the most between them once it is measured, 0 being the best, and the gain [1].

    The gain is how much shorter the step of the plan chosen afterwards is expected to be: min_i m_i -
    E min_i (m_i + c_ij z / sqrt(c_jj)), with the means m and the covariance c of the logs of the step times and z
    normal; plan j has the largest. None where there is one plan alone.

    Source: Frazier, Powell and Dayanik, The knowledge-gradient policy for correlated normal beliefs, INFORMS J. on
    Computing 21 (2009), equations 11 to 13.
    """
    if answer.plan is None or answer.estimate is None or not answer.alternatives:
        return None
    listed = [(answer.plan, answer.estimate), *((other.plan, other.estimate) for other in answer.alternatives)]
    steps = np.array([estimate.step_time for _, estimate in listed])
    shares = np.array([mfu(answer.job, step) for step in steps.tolist()])
    errors, covariance = errors_of(answer.job, Plans.of([plan for plan, _ in listed]), shares)
    mean = np.log(steps) + errors
    points, weights = np.polynomial.hermite_e.hermegauss(NODES)
    moved = covariance / np.sqrt(np.diag(covariance))  # of plan i, by one deviation of plan j
    best = (mean[:, None, None] + moved[:, :, None] * points).min(axis=0) @ (weights / weights.sum())
    gains = mean.min() - best
    return int(gains.argmax()), float(gains.max())
