"""The micro-batch of a measured run that names none: the fastest that fits, as its engineers would have found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.step.price import price

LARGEST = 256  # samples: no run that we know has more in a micro-batch


def in_usual_micro_batches(job: Job, plan: Plan, assumed: list[str]) -> Plan:
    """The plan, given in micro-batches of one sample, in those with which it is fastest and fits, noted in `assumed`.

    Powers of two that divide the samples of a data-parallel rank, with enough micro-batches for an interleaved
    schedule; one sample where none fits.
    """
    samples = plan.num_microbatches
    candidates = [
        replace(plan, micro_batch=size, num_microbatches=samples // size)
        for size in (2**power for power in range(LARGEST.bit_length()))
        if samples % size == 0 and (plan.vpp == 1 or samples // size % plan.pp == 0)
    ] or [plan]
    costs = price(job, Plans.of(candidates))
    seconds = np.where(costs.reserved <= job.usable_memory, costs.step_time, np.inf)
    best = candidates[int(np.argmin(seconds))]
    assumed.append(f"micro_batch {best.micro_batch}")
    return best
