"""What a check of a plan found: broken rules first, then the claims, then what was not checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.base.units import GB, seconds
from optimizer.reports.plan_report import chance, grid, notes, subject, title

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Group, RenderableType
    from rich.table import Table

    from optimizer.search.check.plan_rules import Finding
    from optimizer.search.check.verification import Verification

NAMED = 5  # broken things in the headline
LISTED = 25  # of them in the table


def check_report(found: Verification, assumed: Sequence[str] = ()) -> Group:
    """The verdict, what is broken, the price, and every rule that holds in one line."""
    from rich.console import Group
    from rich.text import Text

    colour = "red" if found.broken else "green"
    parts: list[RenderableType] = [
        Text(verdict(found), style=f"bold {colour}"),
        Text(
            f"{found.job.model.title or found.job.model.name} on {found.job.gpus:,} × {found.job.cluster.device.name}"
        ),
        Text(subject(found.job)),
    ]
    if found.plan and found.estimate:
        parts += [
            title("Plan"),
            Text(f" {found.plan.summary()}"),
            Text(
                f" MFU {found.estimate.mfu:.1%}, {seconds(found.estimate.step_time)} per step, "
                f"{found.estimate.reserved / GB:.1f} of {found.job.usable_memory / GB:.1f} GB: "
                f"fits with {chance(found.job, found.estimate)}"
            ),
        ]
    if found.broken:
        parts += [title("Does not hold"), findings(found.broken[:LISTED])]
        if len(found.broken) > LISTED:
            parts += [Text(f" and {len(found.broken) - LISTED:,} more, which --json lists")]
    if claims := [finding for finding in found.claims if finding.holds]:
        parts += [title("Claims that hold"), findings(claims)]
    if found.agreeing:
        counts = ", ".join(f"{name} {count:,}" for name, count in found.agreeing.items())
        parts += notes("Values as this version finds them", [counts])
    names = [", ".join(finding.name for finding in found.rules if finding.holds)]
    unchecked = [f"{place}: {reason}" for place, reason in found.unchecked.items()]
    parts += notes("Rules that hold", [*filter(None, names)]) + notes("Not checked", unchecked)
    return Group(*parts, *notes("Assumed", assumed))


def verdict(found: Verification) -> str:
    """The outcome in one line."""
    what = "plan" if found.plan else "answer"
    if not found.broken:
        values = sum(found.agreeing.values())
        counts = [(len(found.rules), "rules"), (values, "values")]
        checked = " and ".join(f"{count:,} {name}" for count, name in counts if count)
        return f"The {what} holds: {checked} checked"
    named, more = found.broken[:NAMED], len(found.broken) - NAMED
    names = ", ".join(finding.name for finding in named) + (f" and {more} more" if more > 0 else "")
    return f"The {what} does not hold: {names}"


def findings(items: Iterable[Finding]) -> Table:
    """Name and reason of each finding."""
    table = grid("left", "left", expand="1")
    for finding in items:
        table.add_row(finding.name, finding.reason)
    return table
