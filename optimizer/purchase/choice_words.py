"""The decision in sentences: what each machine would take to win, how likely it is the best, what to find out first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.purchase.own import own_price
from optimizer.purchase.price.catalogue import price_row, purchase_price
from optimizer.purchase.uncertainty.inputs import untested
from optimizer.purchase.units import dollars, hourly, quantity

if TYPE_CHECKING:
    from optimizer.purchase.alternatives import AlternativeDesign
    from optimizer.purchase.campaign import Campaign
    from optimizer.purchase.designs.points import Point
    from optimizer.purchase.dossier import Dossier
    from optimizer.purchase.uncertainty.break_even import BreakEven
    from optimizer.purchase.uncertainty.win_probability import OpenQuestion

QUESTIONS = 3  # shown
NEGLIGIBLE = 0.005  # below which a chance is shown as none


def price_text(machine: AlternativeDesign, buy: bool) -> str:
    """The price of one GPU at which a machine is the cheapest, beside today's."""
    if machine.price is None:
        return "any price" if machine.winner else "no price"
    show = dollars if buy else hourly
    return (
        f"{'up to' if machine.winner else 'below'} {show(machine.price)} ({machine.price / machine.price_now - 1:+.0%})"
    )


def mfu_text(machine: AlternativeDesign) -> str:
    """The MFU at which a machine is the cheapest, beside the planned one."""
    planned = machine.point.figures.mfu
    if machine.mfu is None:
        return f"{'any' if machine.winner else 'none'} (planned {planned:.0%})"
    return f"{'down to' if machine.winner else 'from'} {machine.mfu:.0%} (planned {planned:.0%})"


def network_text(machine: AlternativeDesign) -> str:
    """The network with which a machine is the cheapest; "" for the winner."""
    if machine.winner:
        return ""
    return f"{machine.bandwidth * 8e-9:,.0f} Gb/s" if machine.bandwidth else "none"


def chance_of(dossier: Dossier, machine: AlternativeDesign) -> str:
    """The chance that a machine is the cheapest within the limits; "" where it was not drawn."""
    found = next((item for item in dossier.decision.probabilities if item.point is machine.point), None)
    if found is None:
        return ""
    return "<1%" if found.chance < NEGLIGIBLE else f"{found.chance:.0%}"


def probability_sentences(dossier: Dossier) -> list[str]:
    """How likely each machine is the best choice, which were never measured, and what to find out first."""
    decision = dossier.decision
    if not decision.probabilities:
        return []
    chances = ", ".join(
        f"{item.point.design.title} {'<1%' if item.chance < NEGLIGIBLE else f'{item.chance:.0%}'}"
        for item in decision.probabilities
    )
    lines = [
        f"Chance to be the cheapest within the limits, over {decision.draws:,} draws of rates, prices and failures "
        f"together: {chances}."
    ]
    foreign = [item.point for item in decision.probabilities if not fitted_on(item.point)]
    if foreign:
        names = "; ".join(
            f"{point.design.title} ({point.answers[0].job.stack.name} was fitted on "
            f"{', '.join(point.answers[0].job.stack.devices) or 'none'})"
            for point in foreign
        )
        lines.append(f"Fitted on other hardware, which widens their intervals: {names}.")
    beyond = [
        item.point.design.title for item in decision.probabilities if untested(item.point) and fitted_on(item.point)
    ]
    if beyond:
        lines.append(f"Larger or other than the runs measured, which widens their intervals: {', '.join(beyond)}.")
    unknown = [point for point in (item.point for item in decision.probabilities) if not failures_known(point)]
    if unknown:
        names = ", ".join(point.design.title for point in unknown)
        lines.append(
            f"No failure rate is published for {names}: the usual one is assumed, from a mature fleet to a young one."
        )
    asked = decision.questions[:QUESTIONS]
    if asked:
        first, *others = [question_words(item, dossier) for item in asked]
        lines.append(f"Find out first: {first}." + (f" Then: {'; '.join(others)}." if others else ""))
    else:
        lines.append("No single measurement or quote is likely to change the choice.")
    return lines


def failures_known(point: Point) -> bool:
    """Whether a failure rate of this very device is published."""
    cluster = point.design.cluster
    return own_price("failure_rate", cluster.device.name, cluster.name) is not None


def fitted_on(point: Point) -> bool:
    """Whether runs on this very device are among those that the stack was fitted to."""
    return point.design.cluster.device.name in point.answers[0].job.stack.devices


def break_even_words(change: BreakEven, campaign: Campaign) -> str:
    """From which answer on another machine is the cheapest."""
    side = "below" if change.end < change.value else "above"
    point = next((each for each in (change.now, change.then) if each.design.title == change.question.about), change.now)
    name = change.question.name
    if name == "mfu":
        value = f"an MFU of {change.value * point.figures.mfu:.1%}"
    elif name == "rent":
        value = hourly(change.value * price_row(campaign, point.design).value)
    elif name == "capex":
        value = f"{dollars(change.value * purchase_price(campaign, point.design)[0])} a GPU"
    else:
        unit = next(item.unit for item in campaign.assumptions if item.name == name)
        value = quantity(change.value, unit, name)
    return f"{side} {value} take {change.then.design.title}"


def question_words(item: OpenQuestion, dossier: Dossier) -> str:
    """One thing to find out, how often it changes the choice, what knowing it is worth, and from where on it does."""
    what = {
        "mfu": f"the rate of {item.about}, by a trial on a few nodes",
        "rent": f"a firm quote for {item.about}",
        "capex": f"a firm quote for {item.about}",
        "failure_rate": f"the failure rate of {item.about}, guaranteed",
    }.get(item.name, item.title)
    found = [
        break_even_words(change, dossier.purchase.campaign) for change in dossier.break_evens if change.question is item
    ]
    where = f": {', '.join(found)}" if found else ""
    often = f"changes the choice in {item.changes:.0%} of the cases, worth {dollars(item.worth)} on average"
    return f"{what} ({often}{where})"
