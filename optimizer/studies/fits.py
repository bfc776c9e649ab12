"""Which ways of training a model fit: methods by length of context, the longest one, the smallest card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from optimizer.base.errors import InputError
from optimizer.catalog.hardware import device_names, load_device
from optimizer.constraints.rules.every import structural
from optimizer.constraints.space import divisors
from optimizer.job.job import Job
from optimizer.job.method import WAYS
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.step.price import price
from optimizer.objectives.step.safe_memory import chance_to_fit, safe_memory
from optimizer.search.infeasible.methods import by_way, switched_jobs

LENGTHS = (2048, 8192, 32_768, 131_072)
STEP = 1024  # the longest context is a multiple of it [tokens]
MOST_LENGTH = 1024 * STEP
CARDS = ("NVIDIA", "AMD")  # whose devices are looked through for the smallest that does


@dataclass(frozen=True, kw_only=True)
class Fit:
    """One method at one length."""

    job: Job  # with the method, the length and the switches of the software
    plan: Plan  # the fastest that fits; where none does, the one that needs least memory
    reserved: float  # by every GPU, predicted [B]
    chance: float  # that the plan fits [1]
    step_time: float  # of the plan [s]
    fits: bool  # whether the chance is within the job's risk
    card: str = ""  # the device of least memory that does, "" where none does
    switched: str = ""  # the option of a switch that the plan takes, "" where it takes the software as it is

    @property
    def tokens_per_second(self) -> float:
        """Of all GPUs [tokens/s]."""
        return self.job.tokens / self.step_time


@dataclass(frozen=True, kw_only=True)
class FitsStudy:
    """A job's methods, each at every length; `longest` by method, 0 where not even STEP fits [tokens]."""

    job: Job
    fits: tuple[Fit, ...]
    longest: dict[tuple[str, str], int]


def method_words(train: str, optimizer: str) -> str:
    """A method as people say it.

    >>> method_words("full", "adamw-8bit"), method_words("lora:64", "")
    ('full, adamw-8bit', 'lora:64')
    """
    return ", ".join(filter(None, (train, optimizer)))


def fits(job: Job, lengths: Sequence[int] = LENGTHS, methods: Sequence[tuple[str, str]] = WAYS) -> FitsStudy:
    """Every method at every length, under data parallelism with every sharding, micro-batch and recomputation.

    The chance to fit, and the risk that is taken, are those of the job. Raises InputError for a batch that the GPUs do
    not divide, and for pins that leave no such plan.
    """
    if job.global_batch % job.gpus:
        raise InputError(f"{job.global_batch:,} sequences do not divide over {job.gpus:,} GPUs; give --global-batch")
    rows, longest = [], {}
    for train, optimizer in methods:
        chosen = by_way(job, train, optimizer)
        longest[train, optimizer] = longest_context(chosen)
        for length in sorted(set(lengths)):
            at = replace(chosen, seq_len=length)
            rows.append(replace(best_fit(at), card=smallest_card(at)))
    return FitsStudy(job=job, fits=tuple(rows), longest=longest)


def best_fit(job: Job) -> Fit:
    """The fastest plan of data parallelism alone that fits, else the one that needs least memory.

    The software's switches are as they are where some plan fits so.
    """
    as_it_is, *others = (_best_fit(each, option) for option, each in _switched(job))
    return min((as_it_is, *others), key=lambda fit: (not fit.fits, fit is not as_it_is and fit.fits, fit.reserved))


def _switched(job: Job) -> list[tuple[str, Job]]:
    """The job as it is, and with each switch that its software leaves open."""
    return [("", job), *switched_jobs(job)]


def _best_fit(job: Job, switched: str) -> Fit:
    plans = _allowed(job)
    costs = price(job, Plans.of(plans), Knobs())
    within = costs.reserved <= safe_memory(job)
    index = int(np.argmin(np.where(within, costs.step_time, np.inf) if within.any() else costs.reserved))
    reserved = float(costs.reserved[index])
    return Fit(
        job=job,
        plan=plans[index],
        reserved=reserved,
        chance=chance_to_fit(job, reserved),
        step_time=float(costs.step_time[index]),
        fits=bool(within[index]),
        switched=switched,
    )


def longest_context(job: Job) -> int:
    """The longest context, in multiples of STEP, at which some plan fits [tokens]; memory grows with the length."""
    low, high = 0, MOST_LENGTH // STEP + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _least(job, middle * STEP) else (low, middle)
    return low * STEP


def smallest_card(job: Job) -> str:
    """The device of least memory on which so many GPUs do it, the earlier of two with as much; "" where none does."""
    devices = [device for device in map(load_device, device_names()) if device.vendor in CARDS]
    able = [device for device in devices if job.dtype in device.peak_flops]
    cards = sorted(able, key=lambda device: (device.memory, device.release))
    low, high = -1, len(cards)
    while high - low > 1:
        middle = (low + high) // 2
        cluster = replace(job.cluster, device=cards[middle])
        low, high = (low, middle) if _least(replace(job, cluster=cluster), job.seq_len) else (middle, high)
    return cards[high].name if high < len(cards) else ""


def _least(job: Job, length: int) -> bool:
    """Whether some plan fits at this length: those of the smallest micro-batch need least."""
    return any(_least_fits(each) for _, each in _switched(replace(job, seq_len=length)))


def _least_fits(at: Job) -> bool:
    plans = _allowed(at)
    least = min(plan.micro_batch for plan in plans)
    plans = [plan for plan in plans if plan.micro_batch == least]
    return bool((price(at, Plans.of(plans), Knobs()).reserved <= safe_memory(at)).any())


def _allowed(job: Job) -> list[Plan]:
    """The plans that every rule but memory allows. Raises InputError where pins leave none."""
    plans = _plans(job)
    of_plans = Plans.of(plans)
    allowed = np.logical_and.reduce([rule.check(job, of_plans) for rule in structural(job)])
    if not allowed.any():
        raise InputError("no plan of data parallelism alone obeys the rules and pins; `optimize` searches the others")
    return [plan for plan, keep in zip(plans, allowed, strict=True) if keep]


def _plans(job: Job) -> list[Plan]:
    """Every plan of data parallelism alone; inputs of recomputed layers lie on the host too, where they can."""
    share, features = job.global_batch // job.gpus, job.stack.features
    sizes = [size for size in divisors(share) if size <= job.largest_micro_batch]
    stages = sorted(features.zero_stages) if job.gpus > 1 else [min(features.zero_stages)]
    return [
        Plan(
            dp=job.gpus,
            micro_batch=size,
            num_microbatches=share // size,
            zero_stage=stage,
            recompute=recompute,
            activation_offload=hosted,
        )
        for stage, size, recompute in product(stages, sizes, features.recompute)
        for hosted in (0, 100)[: 1 + (features.hosted_checkpoints and recompute == "full")]
    ]
