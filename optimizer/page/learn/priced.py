"""The questions of both acts, answered by the calibrated cost model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import log

from optimizer.answer.answer import Answer
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.step.estimate import Estimate
from optimizer.page.learn.contexts import LARGE, job_of
from optimizer.page.learn.once import once
from optimizer.page.learn.textbook.data_parallel import COUNTS, SEQUENCE
from optimizer.page.learn.textbook.design import GPUS, Design
from optimizer.studies.scaling import ScalingPoint, data_parallel_point
from optimizer.studies.strategies import NECESSARY, broken_rules

FAMILY = ("gpt3-1.3b", "gpt3-2.7b", "gpt3-5b", "gpt3-6.7b", "gpt3-13b", "gpt3-20b", "gpt3-40b", "llama2-70b", "gpt3")


@dataclass(frozen=True, kw_only=True)
class Priced:
    """A design of Act II as the cost model sees it; without an estimate, `reasons` say why it cannot be built."""

    job: Job
    plan: Plan
    estimate: Estimate | None = None
    reasons: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether its memory is predicted to fit."""
        return self.estimate is not None and self.estimate.reserved <= self.job.usable_memory


def nearest(billions: float) -> str:
    """The preset of a dense model with the nearest number of parameters, by ratio.

    >>> nearest(7), nearest(30), nearest(175)
    ('gpt3-6.7b', 'gpt3-40b', 'gpt3')
    """
    from optimizer.catalog import load_model

    return min(FAMILY, key=lambda name: abs(log(load_model(name).params / (billions * 1e9))))


@lru_cache(maxsize=256)
def data_parallel(model: str, batch: int) -> tuple[ScalingPoint, ...]:
    """Data parallelism alone on 8 to 1,024 H100, `batch` sequences of 2,048 tokens on each: the least ZeRO stage that
    fits, with its fastest micro-batch.

    >>> [round(100 * point.estimate.mfu) for point in data_parallel("gpt3-6.7b", 32) if point.estimate][::7]
    [57, 56]
    """
    from optimizer.catalog import load_model

    job = replace(job_of(LARGE), model=load_model(model), seq_len=SEQUENCE)
    return tuple(data_parallel_point(replace(job, gpus=count, global_batch=batch * count)) for count in COUNTS)


@lru_cache(maxsize=256)
def designed(design: Design) -> Priced:
    """A design with micro-batches of one sequence, m of them in each replica.

    >>> found = designed(Design(tp=8, pp=4, microbatches=8))
    >>> found.job.global_batch, found.fits
    (256, True)
    """
    from optimizer.objectives.step.price import price
    from optimizer.search.plan.alternatives import estimate_of

    job = replace(job_of(LARGE), gpus=GPUS, global_batch=max(1, design.dp) * design.microbatches)
    plan = Plan(
        tp=design.tp,
        pp=design.pp,
        dp=max(1, design.dp),
        num_microbatches=design.microbatches,
        sequence_parallel=design.tp > 1,
    )
    broken = broken_rules(job, plan)
    reasons = tuple(broken[rule] for rule in NECESSARY if rule in broken)
    if reasons:
        return Priced(job=job, plan=plan, reasons=reasons)
    return Priced(job=job, plan=plan, estimate=estimate_of(job, price(job, Plans.of([plan]), Knobs()), 0))


@once
def best(context: str = LARGE) -> Answer:
    """The proven best plan of a context's job, without trials on its knobs."""
    from optimizer.search.plan.planner import plan

    return plan(job_of(context), top=1, trials=0, priced_risk=False)
