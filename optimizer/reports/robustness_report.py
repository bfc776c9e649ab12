"""How sure it is that the best plan is the fastest, plan by plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.reports.report import Section, Table, columns, section

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.search.why.robustness import Robustness

COLUMNS = columns("[text] | plan ~ | fastest [text] | expected regret [text]")


def robustness_section(answer: Answer, robustness: Robustness) -> Section:
    """The verdict, then every plan with its chance of being the fastest and its expected regret."""
    plans = [answer.plan, *(other.plan for other in answer.alternatives)]
    rows = [
        (str(rank), plan.summary() if plan else "", f"{standing.chance:.0%}", f"{standing.regret:.2%}")
        for rank, (plan, standing) in enumerate(zip(plans, robustness.standings, strict=True), start=1)
    ]
    return section("Brittle or broad", verdict(answer, robustness), Table(COLUMNS, rows))


def verdict(answer: Answer, robustness: Robustness) -> str:
    """Whether the best plan stays the fastest, and which plan is expected to lose least where that is another one."""
    best = robustness.standings[0]
    stated = (
        f"{robustness.shape.capitalize()}: of {robustness.draws} draws of the stack's parameters, as far apart "
        f"as its errors, the best plan is the fastest in {best.chance:.0%}."
    )
    place = robustness.steadiest
    if not place:
        return f"{stated} No plan listed has less expected regret than its {best.regret:.2%}."
    other = answer.alternatives[place - 1]
    return (
        f"{stated} Least expected regret: number {place + 1}, {other.plan.summary()}, with "
        f"{robustness.standings[place].regret:.2%} against {best.regret:.2%}."
    )
