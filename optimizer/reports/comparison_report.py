"""Why not your plan: both side by side, every second and byte that sets them apart, or the rules in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.base.units import GB, seconds
from optimizer.objectives.minimised.registry import objective
from optimizer.reports.plan_words import show_gigabytes
from optimizer.reports.report import Heading, Pairs, Section, Table, columns, section
from optimizer.reports.terms import label

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from optimizer.search.why.comparison import Comparison, Difference

NOTICEABLE = 0.0005  # share of the whole below which a difference is left out
PLANS = columns(" | plan ~ | step [text] | MFU [text] | memory [text]")
DIFFERENCES = columns(" | [text] | [text] | [text] | [bar]")


def comparison_section(comparison: Comparison) -> Section:
    """The verdict in a sentence, then the terms or the rules."""
    ours, theirs = comparison.our_estimate, comparison.estimate
    rules = [
        row
        for clash in comparison.broken
        for row in ((clash.rule, clash.reason), *([("", clash.remedy)] if clash.remedy else []))
    ]
    heading = f"Why not {comparison.pins}?"
    if comparison.plan is None or theirs is None:
        return section(heading, verdict(comparison), Pairs(rules))
    return section(
        heading,
        verdict(comparison),
        Pairs(rules),
        Table(PLANS, plans(comparison)),
        Heading("seconds per step, ours against yours"),
        differences(comparison.time, ours.step_time, theirs.step_time, seconds),
        Heading("memory of the fullest GPU, ours against yours"),
        differences(comparison.memory, ours.reserved, theirs.reserved, show_gigabytes),
    )


def verdict(comparison: Comparison) -> str:
    """The comparison in one sentence: what it costs most, what it gains most, or what it breaks."""
    words = objective(comparison.minimize)
    if comparison.verdict == "infeasible":
        names = ", ".join(clash.rule for clash in comparison.broken)
        least = comparison.estimate
        tail = f"; such a plan of least memory reserves {least.reserved / GB:.1f} GB and is shown" if least else ""
        return f"No plan with these pins satisfies every rule ({names}){tail}."
    if comparison.verdict == "same":
        return f"The best plan with these pins is as {words.good} as ours."
    more = [item for item in comparison.time if item.more > 0]
    less = [item for item in comparison.time if item.more < 0]
    costs = f"costs {_worst(more)}" if more else ""
    gains = f"saves {_worst(less)}" if less else ""
    why = " and ".join(part for part in (costs, gains) if part)
    if comparison.verdict == "faster":
        return (
            f"The best plan with these pins is {-comparison.slower:.2%} {words.better}: it {why}. "
            "The pins reach where the search did not look, or undo a pin of the job."
        )
    return f"The best plan with these pins is {comparison.slower:.2%} {words.worse}: it {why}."


def plans(comparison: Comparison) -> list[tuple[str, ...]]:
    """Both plans with step time, MFU and memory, under PLANS."""
    both = (
        ("ours", comparison.ours, comparison.our_estimate),
        ("yours", comparison.plan, comparison.estimate),
    )
    return [
        (name, plan.summary(), seconds(one.step_time), f"{one.mfu:.1%}", show_gigabytes(one.reserved))
        for name, plan, one in both
        if plan and one
    ]


def differences(terms: Sequence[Difference], ours: float, theirs: float, write: Callable[[float], str]) -> Table:
    """One row per term that differs: both values, the difference and its bar; the last row adds up."""
    largest = max((abs(item.more) for item in terms), default=0.0)
    rows = [
        (label(item.term), write(item.ours), write(item.theirs), signed(item.more, write), abs(item.more) / largest)
        for item in terms
        if abs(item.more) > NOTICEABLE * ours
    ]
    whole = ("all terms", write(ours), write(theirs), signed(theirs - ours, write), None)
    return Table(DIFFERENCES, [*rows, whole], strong=[len(rows)])


def signed(value: float, write: Callable[[float], str]) -> str:
    """A difference with its sign.

    >>> signed(-0.25, seconds), signed(0.5, seconds)
    ('-250 ms', '+500 ms')
    """
    return f"{'-' if value < 0 else '+'}{write(abs(value))}"


def _worst(items: Sequence[Difference], count: int = 2) -> str:
    return ", ".join(f"{seconds(abs(item.more))} of {label(item.term)}" for item in items[:count])
