"""The lab's questions, answered by the calibrated cost model: its two contexts, designs, and their best plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache, wraps
from math import log
from threading import Lock
from typing import ParamSpec, TypeVar

from optimizer.answer.answer import Answer
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.step.estimate import Estimate
from optimizer.page.learn.content_files import table
from optimizer.page.learn.textbook import COUNTS, GPUS, SEQUENCE, LabDesign
from optimizer.studies.scaling import Point, data_parallel_point
from optimizer.studies.strategies import NECESSARY, broken_rules

SMALL, LARGE = CONTEXTS = ("data parallel", "3-D parallel")
FAMILY = ("gpt3-1.3b", "gpt3-2.7b", "gpt3-5b", "gpt3-6.7b", "gpt3-13b", "gpt3-20b", "gpt3-40b", "llama2-70b", "gpt3")
Given = ParamSpec("Given")
Result = TypeVar("Result")


def once(work: Callable[Given, Result]) -> Callable[Given, Result]:
    """The same function, which remembers its result for each set of arguments; who asks meanwhile waits.

    >>> calls = []
    >>> double = once(lambda value: calls.append(value) or 2 * value)
    >>> double(2), double(2), calls
    (4, 4, [2])
    """
    remembering, busy = cache(work), Lock()

    @wraps(work)
    def result(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        with busy:
            return remembering(*args, **kwargs)  # type: ignore[arg-type]

    return result


def title(context: str) -> str:
    """What the switch shows of a context."""
    return str(next(each["title"] for each in table("lab.toml")["context"] if each["name"] == context))


@cache
def job_of(context: str) -> Job:
    """The job of a context, on DGX H100 with the default software.

    >>> job_of(LARGE).gpus, job_of(SMALL).model.name
    (1024, 'gpt3-6.7b')
    """
    from optimizer.catalog import load_cluster, load_model, load_stack

    numbers = next(each for each in table("lab.toml")["context"] if each["name"] == context)
    return Job(
        model=load_model(numbers["model"]),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        **{name: numbers[name] for name in ("gpus", "seq_len", "global_batch")},
    )


@dataclass(frozen=True, kw_only=True)
class PricedDesign:
    """A design of Act II as the cost model sees it."""

    job: Job  # the lab's job with the batch of the design
    plan: Plan  # the design as a plan
    estimate: Estimate | None = None  # its price, None where it cannot be built
    reasons: tuple[str, ...] = ()  # why it cannot

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
def data_parallel(model: str, batch: int) -> tuple[Point, ...]:
    """Data parallelism alone on 8 to 1,024 H100, `batch` sequences of 2,048 tokens on each: the least ZeRO stage that
    fits, with its fastest micro-batch.

    >>> [round(100 * point.estimate.mfu) for point in data_parallel("gpt3-6.7b", 32) if point.estimate][::7]
    [57, 56]
    """
    from optimizer.catalog import load_model

    job = replace(job_of(LARGE), model=load_model(model), seq_len=SEQUENCE)
    return tuple(data_parallel_point(replace(job, gpus=count, global_batch=batch * count)) for count in COUNTS)


@lru_cache(maxsize=256)
def designed(design: LabDesign) -> PricedDesign:
    """A design with micro-batches of one sequence, m of them in each replica.

    >>> design = designed(LabDesign(tp=8, pp=4, microbatches=8))
    >>> design.job.global_batch, design.fits
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
        return PricedDesign(job=job, plan=plan, reasons=reasons)
    return PricedDesign(job=job, plan=plan, estimate=estimate_of(job, price(job, Plans.of([plan]), Knobs()), 0))


@once
def best(context: str = LARGE) -> Answer:
    """The proven best plan of a context's job, without trials on its knobs."""
    from optimizer.search.plan.planner import plan

    return plan(job_of(context), top=1, trials=0, priced_risk=False)
