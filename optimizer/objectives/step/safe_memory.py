"""How sure it is that a plan fits, and how much it may be predicted to reserve at the risk that a job takes."""

from __future__ import annotations

from math import exp
from statistics import NormalDist

import numpy as np

from optimizer.job.job import EVEN_RISK, Job
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.step.interval import LEVEL, memory_width, outside

NORMAL = NormalDist()
USUAL_RISK = 0.10  # of going out of memory, where nobody says otherwise
SIDES = NORMAL.inv_cdf((1.0 + LEVEL) / 2.0)  # standard deviations on either side that hold the intervals' share


def risk_of(job: Job) -> float:
    """The largest chance of going out of memory that the plans of a job may take [1].

    What was asked for, else USUAL_RISK; an MoE model outside of the runs that its stack was fitted to takes EVEN_RISK,
    for nobody measured the memory of one like it and its margin would be a guess.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> found = [Job(model=load_model(name), cluster=load_cluster("dgx-h800"), stack=load_stack("megatron-core"),
    ...     gpus=512, seq_len=2048, global_batch=512) for name in ("gpt3", "deepseek-v3")]
    >>> [risk_of(job) for job in found], risk_of(found[1].with_limits(oom_risk=0.05))
    ([0.1, 0.5], 0.05)
    """
    if job.limits.oom_risk is not None:
        return job.limits.oom_risk
    return EVEN_RISK if job.model.experts and outside(job) else USUAL_RISK


def safe_memory(job: Job) -> float:
    """The most that a plan may be predicted to reserve, so that it goes out of memory at no more than the job's risk
    [B].

    usable memory x e^(z s), z being the deviation of a normal distribution below which the share risk_of(job) lies, and
    s the standard deviation of the logarithm of what is reserved. At 50 % it is the usable memory itself: the median
    prediction fits. It is one number for all plans of a job, so that every search and every proof holds with it as with
    a smaller GPU.

    >>> from optimizer.catalog import load_cluster, load_model
    >>> from optimizer.job.stack import Stack
    >>> measured = Stack(name="mine", intervals={"memory_extrapolated": 0.1645})
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=measured, gpus=64, seq_len=2048,
    ...     global_batch=64)
    >>> round(safe_memory(job) / job.usable_memory, 3), round(exp(-1.2816 * 0.1), 3)
    (0.88, 0.88)
    >>> safe_memory(job.with_limits(oom_risk=0.5)) == job.usable_memory
    True
    """
    usable = job.usable_memory
    return usable * margin(job, risk_of(job)) if usable > 0 else usable


def margin(job: Job, risk: float) -> float:
    """Share of the usable memory that a plan may be predicted to reserve at this risk [1]."""
    return exp(NORMAL.inv_cdf(risk) * spread(job)) if risk != 0.5 else 1.0


def chance_to_fit(job: Job, reserved: float) -> float:
    """Probability that a plan predicted to reserve so much [B] stays within the usable memory [1].

    The interval of the memory holds LEVEL of a log-normal distribution around the prediction.
    """
    return float(chances(job, np.array([reserved]))[0])


def chances(job: Job, reserved: FloatArray) -> FloatArray:
    """The same for many plans."""
    if job.usable_memory <= 0:
        return np.zeros(len(reserved))
    deviations = np.log(job.usable_memory / np.maximum(reserved, 1.0)) / spread(job)
    return np.array([NORMAL.cdf(value) for value in deviations.tolist()])


def spread(job: Job) -> float:
    """Standard deviation of the logarithm of what is reserved [1]."""
    return memory_width(job) / SIDES


def reach(job: Job, needed: float) -> float:
    """Usable memory with which a plan predicted to reserve so much [B] keeps the job's risk [B]."""
    return needed / margin(job, risk_of(job))
