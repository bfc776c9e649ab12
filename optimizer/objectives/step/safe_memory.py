"""How sure it is that a plan fits, and how much it may be predicted to reserve at the risk that a job takes."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import exp
from statistics import NormalDist

import numpy as np

from optimizer.job.fields import FAST
from optimizer.job.job import EVEN_RISK, Job, Limits
from optimizer.job.known import MEMORY
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.belief.belief import error_of
from optimizer.objectives.step.interval import outside

NORMAL = NormalDist()
USUAL_RISK = 0.10  # of going out of memory, where nobody says otherwise


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

    usable memory x e^(z s - m), z being the deviation of a normal distribution below which the share risk_of(job) lies,
    m and s mean and standard deviation of log(reserved / predicted). At 50 % it is the usable memory itself where the
    user has no runs: the median prediction fits. It is one number for all plans of a job, so that every search and
    every proof holds with it as with a smaller GPU.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=64, seq_len=2048, global_batch=64)
    >>> safe_memory(job.with_limits(oom_risk=0.05)) < safe_memory(job) < job.usable_memory
    True
    >>> safe_memory(job.with_limits(oom_risk=0.5)) == job.usable_memory
    True
    """
    usable = job.usable_memory
    return usable * margin(job, risk_of(job)) if usable > 0 else usable


@lru_cache(maxsize=256)
def margin(job: Job, risk: float) -> float:
    """Share of the usable memory that a plan may be predicted to reserve at this risk [1]."""
    mean, spread = memory_error(job)
    return exp(NORMAL.inv_cdf(risk) * spread - mean)


def chance_to_fit(job: Job, reserved: float) -> float:
    """Probability that a plan predicted to reserve so much [B] stays within the usable memory [1].

    What it reserves over the prediction is log-normal, of the moments of memory_error.
    """
    return float(chances(job, np.array([reserved]))[0])


def chances(job: Job, reserved: FloatArray) -> FloatArray:
    """The same for many plans."""
    if job.usable_memory <= 0:
        return np.zeros(len(reserved))
    mean, spread = memory_error(job)
    deviations = (np.log(job.usable_memory / np.maximum(reserved, 1.0)) - mean) / spread
    return np.array([NORMAL.cdf(value) for value in deviations.tolist()])


def memory_error(job: Job) -> tuple[float, float]:
    """Mean and standard deviation of log(reserved / predicted) of any plan of the job [1].

    One pair for all of them, as their margin must be, whatever limits them or is preferred; intervals are those of a
    plan.
    """
    return _memory_error(replace(job, limits=Limits(), prefer=FAST))


@lru_cache(maxsize=256)
def _memory_error(job: Job) -> tuple[float, float]:
    return error_of(job, None, 1.0, MEMORY)


def reach(job: Job, needed: float) -> float:
    """Usable memory with which a plan predicted to reserve so much [B] keeps the job's risk [B]."""
    return needed / margin(job, risk_of(job))
