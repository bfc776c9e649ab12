"""What a check of a plan found: broken rules first, then the claims, then what was not checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.reports.plan_report import grid, notes, subject, title
from optimizer.units import GB, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Group, RenderableType
    from rich.table import Table

    from optimizer.search.why.verification import Finding, Verification

NAMED = 5  # broken things in the headline


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
        title("Plan"),
        Text(f" {found.plan.summary()}"),
        Text(
            f" MFU {found.estimate.mfu:.1%}, {seconds(found.estimate.step_time)} per step, "
            f"{found.estimate.reserved / GB:.1f} of {found.job.usable_memory / GB:.1f} GB"
        ),
    ]
    if found.broken:
        parts += [title("Does not hold"), findings(found.broken)]
    holding = [finding for finding in found.findings if finding.holds]
    claims = [finding for finding in holding if finding.name.startswith(("claim", "certificate"))]
    if claims:
        parts += [title("Claims that hold"), findings(claims)]
    names = ", ".join(finding.name for finding in holding if finding not in claims)
    parts += notes("Rules that hold", [names]) + notes("Not checked", found.unchecked) + notes("Assumed", assumed)
    return Group(*parts)


def verdict(found: Verification) -> str:
    """The outcome in one line."""
    if not found.broken:
        return f"The plan holds: {len(found.findings)} checks, none broken"
    named, more = found.broken[:NAMED], len(found.broken) - NAMED
    names = ", ".join(finding.name for finding in named) + (f" and {more} more" if more > 0 else "")
    return f"The plan does not hold: {names}"


def findings(items: Iterable[Finding]) -> Table:
    """Name and reason of each finding."""
    table = grid("left", "left", expand="1")
    for finding in items:
        table.add_row(finding.name, finding.reason)
    return table
