"""The words and numbers of an answer, ready for a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from optimizer.answer.answer import Alternative, Answer
from optimizer.base.units import DAY, GB, seconds
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.interval import LEVEL, interval
from optimizer.reports.plan_report import (
    chance,
    convention_words,
    interval_words,
    knobs_text,
    layout_rows,
    mfu_span,
    safety_words,
    show_gigabytes,
    simpler_words,
)
from optimizer.reports.plan_words import plan_words
from optimizer.reports.report import Tile

NAMES = ("tp", "cp", "ep", "etp", "pp", "vpp", "dp", "micro_batch")


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A run of so many `tokens`, and by which price its GPUs are rented.

    charged: wall time with failures [s] and cost [USD], None where no price is known, of so many seconds of steps.
    """

    tokens: float
    price: str
    charged: Callable[[float], tuple[float, float | None]]


@dataclass(frozen=True, kw_only=True)
class RunnerUp:
    """One row of the plans of another structure; `pins` name it as --fix and the address do."""

    rank: int
    plan: str
    step: str
    mfu: str
    memory: str
    fits: str
    slower: str
    pins: str


def tiles(job: Job, plan: Plan, estimate: Estimate, budget: Budget | None = None) -> tuple[Tile, ...]:
    """The numbers that decide, each with its interval or its conditions."""
    time = interval(job, plan, estimate.step_time)
    memory = interval(job, plan, estimate.reserved, "memory")
    rate = job.tokens / estimate.step_time
    found = [
        Tile(name="MFU", value=f"{estimate.mfu:.1%}", about=f"{mfu_span(job, plan, estimate)}"),
        Tile(
            name="Step",
            value=seconds(estimate.step_time),
            about=f"{seconds(time.low)} to {seconds(time.high)} at {LEVEL:.0%}",
        ),
        Tile(
            name="Tokens per second",
            value=f"{rate:,.0f}",
            about=f"{estimate.tokens_per_s_per_gpu:,.0f} per GPU",
        ),
        Tile(
            name="Chance to fit",
            value=chance(job, estimate),
            about=f"{estimate.reserved / GB:.1f} GB ({memory.low / GB:.1f} to {memory.high / GB:.1f}) of "
            f"{job.usable_memory / GB:.1f}",
        ),
    ]
    if budget:
        wall, cost = budget.charged(budget.tokens / rate)
        about = "no price is known" if cost is None else f"{dollars(cost)}, {budget.price}"
        name = f"Run of {count(budget.tokens)} tokens"
        found.append(Tile(name=name, value=f"{wall / DAY:,.1f} days", about=f"{about}; with failures"))
    return tuple(found)


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


def plan_rows(answer: Answer, plan: Plan, estimate: Estimate) -> list[tuple[str, str]]:
    """The plan: parallelism, in short and in words, micro-batches, layers, knobs, what MFU counts, interval, safety."""
    job = answer.job
    return [
        ("parallelism", plan.summary()),
        ("in words", plan_words(plan)),
        ("micro-batches", f"{plan.num_microbatches:,} of {plan.micro_batch} per step, {plan.schedule} schedule"),
        *layout_rows(job, plan),
        ("knobs", knobs_text(job, answer.knobs)),
        ("MFU counts", convention_words(job, estimate)),
        ("interval", interval_words(job, plan, estimate)),
        ("safety", safety_words(job, estimate, answer.safety)),
        *([("simpler", simpler_words(job, plan, answer.knobs, estimate, answer.simpler))] if answer.simpler else []),
        (
            "bracket",
            f"{seconds(estimate.all_hidden)} if all overlappable communication hides, "
            f"{seconds(estimate.none_hidden)} if none does",
        ),
    ]


def runner_up(job: Job, rank: int, other: Alternative) -> RunnerUp:
    """One runner-up as a row."""
    return RunnerUp(
        rank=rank,
        plan=other.plan.summary(),
        step=seconds(other.estimate.step_time),
        mfu=f"{other.estimate.mfu:.1%}",
        memory=show_gigabytes(other.estimate.reserved),
        fits=chance(job, other.estimate),
        slower=f"+{other.slower:.1%}",
        pins=pins_of_plan(other.plan),
    )


def pins_of_plan(plan: Plan) -> str:
    """The degrees of a plan as pins; those of one are left out, but for tp and pp.

    >>> pins_of_plan(Plan(tp=8, pp=4, vpp=12, dp=32, micro_batch=3))
    'tp=8,pp=4,vpp=12,micro_batch=3'
    """
    values: Mapping[str, int] = {name: getattr(plan, name) for name in NAMES if name != "dp"}
    return ",".join(f"{name}={value}" for name, value in values.items() if value > 1 or name in ("tp", "pp"))


def stack_words(job: Job) -> str:
    """How well the software's own runs are predicted."""
    stack = job.stack
    if not stack.runs:
        return f"{stack.name} is not fitted to measured runs; the intervals are those of the other stacks."
    left = stack.residuals.get("left_out_median")
    error = f"; step times of runs left out of the fit are missed by {left:.1%} at the median" if left else ""
    return f"{stack.name} is fitted to {stack.runs:,} measured runs on {', '.join(stack.devices)}{error}."
