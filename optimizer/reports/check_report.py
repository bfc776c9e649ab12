"""What a check of a plan found: broken rules first, then the claims, then what was not checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from optimizer.base.units import GB
from optimizer.reports.known_values import price_words
from optimizer.reports.plan_words import chance, job_title, subject
from optimizer.reports.report import Pairs, Report, notes, section
from optimizer.search.check.plan_rules import Finding
from optimizer.search.check.verification import Verification

NAMED = 5  # broken things in the headline
LISTED = 25  # of them in the table


def check_report(checked: Verification, assumed: Sequence[str] = ()) -> Report:
    """The verdict, what is broken, the price, and every rule that holds in one line."""
    job, more = checked.job, len(checked.broken) - LISTED
    counts = ", ".join(f"{name} {count:,}" for name, count in checked.agreeing.items())
    return Report(
        title=verdict(checked),
        subject=(job_title(job), subject(job)),
        tone="bad" if checked.broken else "good",
        sections=(
            section("Plan", *_price(checked)),
            section(
                "Does not hold",
                _findings(checked.broken[:LISTED]),
                f"and {more:,} more, which --json lists" if more > 0 else "",
            ),
            section("Claims that hold", _findings(finding for finding in checked.claims if finding.holds)),
            notes("Values as this version finds them", [counts]),
            notes("Rules that hold", [", ".join(finding.name for finding in checked.rules if finding.holds)]),
            notes("Not checked", [f"{place}: {reason}" for place, reason in checked.unchecked.items()]),
        ),
        assumed=tuple(assumed),
    )


def _price(checked: Verification) -> list[str]:
    if checked.plan is None or checked.estimate is None:
        return []
    estimate, usable = checked.estimate, checked.job.usable_memory
    return [
        checked.plan.summary(),
        f"{price_words(checked.job, checked.plan, estimate)}, {estimate.reserved / GB:.1f} of "
        f"{usable / GB:.1f} GB: fits with {chance(checked.job, estimate)}",
    ]


def verdict(checked: Verification) -> str:
    """The outcome in one line."""
    what = "plan" if checked.plan else "answer"
    if not checked.broken:
        counts = [(len(checked.rules), "rules"), (sum(checked.agreeing.values()), "values")]
        return f"The {what} holds: {' and '.join(f'{count:,} {name}' for count, name in counts if count)} checked"
    named, more = checked.broken[:NAMED], len(checked.broken) - NAMED
    names = ", ".join(finding.name for finding in named) + (f" and {more} more" if more > 0 else "")
    return f"The {what} does not hold: {names}"


def _findings(items: Iterable[Finding]) -> Pairs:
    return Pairs([(finding.name, finding.reason) for finding in items])
