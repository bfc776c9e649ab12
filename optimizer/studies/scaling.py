"""How a job scales over GPU counts: plain data parallelism against the best plan at each count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.constraints.space import divisors
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.price import price
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.plan.alternatives import estimate_of

MODES = ("strong", "weak")
SERIES = ("data parallel", "best plan")
Planner = Callable[[Job], Answer]


@dataclass(frozen=True, kw_only=True)
class ScalingPoint:
    """A job at one number of GPUs in one series."""

    series: str
    gpus: int
    global_batch: int
    tokens: int  # of a step
    plan: Plan | None = None  # None where there is none; `note` says why
    estimate: Estimate | None = None  # the price of the plan
    fits: bool = False  # whether its memory suffices
    note: str = ""  # what is to be reported with it

    @property
    def tokens_per_second(self) -> float:
        """Throughput of all GPUs [tokens/s]; 0 without a plan."""
        return self.tokens / self.estimate.step_time if self.estimate else 0.0


@dataclass(frozen=True, kw_only=True)
class ScalingStudy:
    """Points of both series, in the order of the GPU counts. Strong: one batch; weak: batch grows with the GPUs."""

    job: Job
    mode: str
    points: tuple[ScalingPoint, ...]

    def series(self, name: str) -> tuple[ScalingPoint, ...]:
        """The points of one series."""
        return tuple(point for point in self.points if point.series == name)

    def speedup(self, point: ScalingPoint) -> float:
        """Throughput over that of the first point of its series that has one [1]."""
        return point.tokens_per_second / self._first(point).tokens_per_second if point.estimate else 0.0

    def efficiency(self, point: ScalingPoint) -> float:
        """Speedup over the growth in GPUs since the first point of its series [1]."""
        return self.speedup(point) * self._first(point).gpus / point.gpus if point.estimate else 0.0

    def _first(self, point: ScalingPoint) -> ScalingPoint:
        return next(other for other in self.series(point.series) if other.estimate)


def scaling(job: Job, counts: Sequence[int], mode: str = "strong", planner: Planner | None = None) -> ScalingStudy:
    """Study the job at each GPU count; for weak scaling its batch is that of the first count.

    `planner` finds the best plan of a job: by default the search without trials on the knobs.
    Raises InputError for an empty, unsorted or impossible list of counts or an unknown mode.
    """
    if mode not in MODES:
        raise InputError(f"unknown scaling mode {mode!r}; use one of {', '.join(MODES)}")
    if not counts or list(counts) != sorted(set(counts)):
        raise InputError(f"GPU counts must rise, as in 8,64,512, but got {', '.join(map(str, counts)) or 'none'}")
    jobs = [job_at(job, count, counts[0], mode) for count in counts]
    if planner is None:
        from optimizer.search.plan.planner import plan

        planner = partial(plan, top=1, trials=0, priced_risk=False)
    points = []
    for one in jobs:
        answer = planner(one)
        fits = answer.plan is not None and answer.estimate is not None
        note = "" if fits else f"no plan: {', '.join(clash.rule for clash in answer.conflict) or answer.status}"
        best = _point(one, SERIES[1], answer.plan, answer.estimate, fits=fits, note=note)
        points += [data_parallel_point(one), best]
    return ScalingStudy(job=jobs[0], mode=mode, points=tuple(points))


def job_at(job: Job, gpus: int, first: int, mode: str) -> Job:
    """The job on another number of GPUs. Raises InputError when a weakly scaled batch is no whole number.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> where = {"cluster": load_cluster("h100"), "stack": load_stack("megatron-core")}
    >>> job = Job(model=load_model("llama2-7b"), **where, gpus=8, seq_len=2048, global_batch=256)
    >>> job_at(job, 64, 8, "weak").global_batch, job_at(job, 64, 8, "strong").global_batch
    (2048, 256)
    """
    if mode == "strong":
        return replace(job, gpus=gpus)
    if job.global_batch * gpus % first:
        raise InputError(
            f"weak scaling from a batch of {job.global_batch} on {first} GPUs gives no whole number of sequences "
            f"on {gpus}; choose a batch that {first} divides"
        )
    return replace(job, gpus=gpus, global_batch=job.global_batch * gpus // first)


def data_parallel_point(job: Job) -> ScalingPoint:
    """Data parallelism alone: the least ZeRO stage that fits, with its fastest micro-batch and recomputation.

    Where nothing fits, the plan that needs the least memory, marked so.
    """
    plans = _data_parallel_plans(job)
    if not plans:
        return _point(job, SERIES[0], note=f"{job.global_batch:,} sequences do not divide over {job.gpus:,} replicas")
    costs = price(job, Plans.of(plans), Knobs())
    fits = costs.reserved <= safe_memory(job)
    if fits.any():
        stages = np.array([plan.zero_stage for plan in plans])
        allowed = fits & (stages == stages[fits].min())
        index = int(np.argmin(np.where(allowed, costs.step_time, np.inf)))
    else:
        index = int(np.argmin(costs.reserved))
    return _point(job, SERIES[0], plans[index], estimate_of(job, costs, index), fits=bool(fits[index]))


def _data_parallel_plans(job: Job) -> list[Plan]:
    share, rest = divmod(job.global_batch, job.gpus)
    if rest:
        return []
    sizes = [size for size in divisors(share) if size <= job.largest_micro_batch]
    features = job.stack.features
    return [
        Plan(dp=job.gpus, micro_batch=size, num_microbatches=share // size, zero_stage=stage, recompute=recompute)
        for stage, size, recompute in product(sorted(features.zero_stages), sizes, features.recompute)
    ]


def _point(
    job: Job,
    series: str,
    plan: Plan | None = None,
    estimate: Estimate | None = None,
    *,
    fits: bool = False,
    note: str = "",
) -> ScalingPoint:
    if estimate and not fits:
        note = f"does not fit: {estimate.reserved / 1e9:,.0f} of {safe_memory(job) / 1e9:.0f} GB"
    return ScalingPoint(
        series=series,
        gpus=job.gpus,
        global_batch=job.global_batch,
        tokens=job.tokens,
        plan=plan,
        estimate=estimate,
        fits=fits,
        note=note,
    )
