"""Why not your plan: both side by side, every second and byte that sets them apart, or the rules in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.base.units import GB, seconds
from optimizer.objectives.minimised.registry import objective
from optimizer.reports.plan_report import grid, show_gigabytes, title
from optimizer.reports.terms import bar, label

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Group, RenderableType
    from rich.table import Table

    from optimizer.answer.answer import Clash
    from optimizer.search.why.comparison import Comparison, Difference

BAR = 20
NOTICEABLE = 0.0005  # share of the whole below which a difference is left out


def comparison_report(comparison: Comparison) -> Group:
    """The verdict in a sentence, then the terms or the rules."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [title(f"Why not {comparison.pins}?"), Text(f" {verdict(comparison)}")]
    if comparison.broken:
        parts.append(rules(comparison.broken))
    if comparison.plan and comparison.estimate:
        ours, theirs = comparison.our_estimate, comparison.estimate
        parts += [
            plans(comparison),
            Text("\n seconds per step, ours against yours", style="dim"),
            differences(comparison.time, ours.step_time, theirs.step_time, seconds),
            Text("\n memory of the fullest GPU, ours against yours", style="dim"),
            differences(comparison.memory, ours.reserved, theirs.reserved, show_gigabytes),
        ]
    return Group(*parts)


def verdict(comparison: Comparison) -> str:
    """The comparison in one sentence: what it costs most, what it gains most, or what it breaks."""
    words = objective(comparison.minimize)
    if comparison.verdict == "infeasible":
        names = ", ".join(clash.rule for clash in comparison.broken)
        lean = comparison.estimate
        tail = f"; the leanest such plan reserves {lean.reserved / GB:.1f} GB and is shown" if lean else ""
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


def plans(comparison: Comparison) -> Table:
    """Both plans with step time, MFU and memory."""
    table = grid("left", "left", "right", "right", "right", expand="1")
    table.add_row("", "plan", "step", "MFU", "memory", style="dim")
    for name, plan, estimate in (
        ("ours", comparison.ours, comparison.our_estimate),
        ("yours", comparison.plan, comparison.estimate),
    ):
        if plan and estimate:
            memory = show_gigabytes(estimate.reserved)
            table.add_row(name, plan.summary(), seconds(estimate.step_time), f"{estimate.mfu:.1%}", memory)
    return table


def differences(terms: Sequence[Difference], ours: float, theirs: float, write: Callable[[float], str]) -> Table:
    """One row per term that differs: both values, the difference and its bar; the last row adds up."""
    table = grid("left", "right", "right", "right", "left")
    largest = max((abs(item.more) for item in terms), default=0.0)
    for item in terms:
        if abs(item.more) > NOTICEABLE * ours:
            name = label(item.term)
            table.add_row(
                name, write(item.ours), write(item.theirs), signed(item.more, write), bar(abs(item.more) / largest, BAR)
            )
    table.add_row("all terms", write(ours), write(theirs), signed(theirs - ours, write), "", style="bold")
    return table


def rules(broken: Sequence[Clash]) -> Table:
    """The rules in the way, with numbers and what would be enough."""
    table = grid("left", "left", expand="1")
    for clash in broken:
        table.add_row(clash.rule, clash.reason)
        if clash.remedy:
            table.add_row("", clash.remedy)
    return table


def signed(value: float, write: Callable[[float], str]) -> str:
    """A difference with its sign.

    >>> signed(-0.25, seconds), signed(0.5, seconds)
    ('-250 ms', '+500 ms')
    """
    return f"{'-' if value < 0 else '+'}{write(abs(value))}"


def _worst(items: Sequence[Difference], count: int = 2) -> str:
    return ", ".join(f"{seconds(abs(item.more))} of {label(item.term)}" for item in items[:count])
