"""The numbers of a plan that decide, each in a frame with its interval or its conditions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from optimizer.base.units import DAY, GB, seconds
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.interval import LEVEL, interval
from optimizer.reports.known_values import NOT_KNOWN, mfu_words, step_words
from optimizer.reports.plan_words import chance, mfu_span
from optimizer.reports.report import Tile


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A run of so many tokens, and what it is charged."""

    tokens: float  # Tokens of the run
    price: str  # By which price its GPUs are rented
    # Wall time with failures [s] and cost [USD] of so many seconds of steps; the cost is None where no price is known
    charged: Callable[[float], tuple[float, float | None]]


def tiles(job: Job, plan: Plan, estimate: Estimate, budget: Budget | None = None) -> tuple[Tile, ...]:
    """MFU, step, rate and chance to fit, and of a budget the run."""
    time = interval(job, plan, estimate.step_time)
    memory = interval(job, plan, estimate.reserved, "memory")
    rate = job.tokens / time.middle
    step = f"{seconds(time.low)} to {seconds(time.high)} at {LEVEL:.0%}"
    reserved = f"{memory.middle / GB:.1f} GB ({memory.low / GB:.1f} to {memory.high / GB:.1f}) of "
    rates = (f"{rate:,.0f}", f"{rate / job.gpus:,.0f} per GPU")
    if not time.known:
        rates = (NOT_KNOWN, f"{job.tokens / time.high:,.0f} to {job.tokens / time.low:,.0f} at {LEVEL:.0%}")
    decisive = (
        ("MFU", mfu_words(job, plan, estimate), mfu_span(job, plan, estimate)),
        ("Step", step_words(job, plan, estimate.step_time), step),
        ("Tokens per second", *rates),
        ("Chance to fit", chance(job, estimate), f"{reserved}{job.usable_memory / GB:.1f}"),
        *([_run(budget, rate)] if budget and time.known else []),
    )
    return tuple(Tile(name=name, value=value, about=about) for name, value, about in decisive)


def _run(budget: Budget, rate: float) -> tuple[str, str, str]:
    wall, cost = budget.charged(budget.tokens / rate)
    about = "no price is known" if cost is None else f"{dollars(cost)}, {budget.price}"
    return f"Run of {count(budget.tokens)} tokens", f"{wall / DAY:,.1f} days", f"{about}; with failures"


def count(value: float) -> str:
    """A large number for people.

    >>> count(3e11), count(1.5e12), count(5000)
    ('300 billion', '1.5 trillion', '5,000')
    """
    for word, size in (("trillion", 1e12), ("billion", 1e9), ("million", 1e6)):
        if value >= size:
            return f"{value / size:,.4g} {word}"
    return f"{value:,.0f}"


def dollars(value: float) -> str:
    """An amount of money.

    >>> dollars(1_234_567), dollars(8_500)
    ('1.23 million USD', '8,500 USD')
    """
    return f"{value / 1e6:,.3g} million USD" if value >= 1e6 else f"{value:,.0f} USD"
