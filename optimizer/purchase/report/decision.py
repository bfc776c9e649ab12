"""The decision in sentences: what each machine would take to win, how likely it is the best, what to find out first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.purchase.alternatives import by_vendor
from optimizer.purchase.own import own_price
from optimizer.purchase.price.catalogue import power_limit, price_row, purchase_price
from optimizer.purchase.report.units import days, dollars, hourly, megawatts, quantity
from optimizer.purchase.uncertainty.inputs import untested

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optimizer.purchase.alternatives import AlternativeDesign
    from optimizer.purchase.campaign import Campaign
    from optimizer.purchase.designs.points import Point
    from optimizer.purchase.dossier import Dossier
    from optimizer.purchase.uncertainty.break_even import BreakEven
    from optimizer.purchase.uncertainty.win_probability import OpenQuestion

QUESTIONS = 3  # told
NEGLIGIBLE = 0.005  # below which a chance is not told apart from none


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
    told = decision.questions[:QUESTIONS]
    if told:
        first, *others = [question_words(item, dossier) for item in told]
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


ALTERNATIVE_HEADINGS = (
    "machine",
    "GPUs",
    "tokens/$",
    "tokens/J",
    "cost",
    "chance",
    "cheapest at a price",
    "or an MFU",
    "or a network",
)


VENDOR_HEADINGS = ("machine", "GPUs", "software", "price", "GPU limit", "site", "time", "cost", "tokens/J")


COUNTED = frozenset(["GPUs", "tokens/$", "tokens/J", "cost", "chance", "price", "GPU limit", "site", "time"])


def vendor_cells(dossier: Dossier, machine: AlternativeDesign) -> list[str]:
    """One row of the table of one vendor: what a machine runs, asks for and takes, in the order of VENDOR_HEADINGS."""
    point, found = machine.point, machine.point.figures
    price = dollars(machine.price_now) if dossier.purchase.campaign.buy else hourly(machine.price_now)
    return [
        _named(point),
        f"{point.design.gpus:,}",
        point.answers[0].job.stack.name,
        price,
        f"{power_limit(point.design):,.0f} W",
        megawatts(found.peak_power),
        days(found.time_to_train),
        dollars(found.cost),
        f"{found.tokens_per_joule:.2f}",
    ]


def _named(point: Point) -> str:
    """The machine, and which limits its best design misses."""
    missed = ", ".join(excess.limit for excess in point.excesses)
    return point.design.title + (f" (misses the {missed})" if missed else "")


def tables(dossier: Dossier) -> list[tuple[str, Sequence[str], list[list[str]]]]:
    """The best of each machine: one table across all, one for each vendor where there are several; heading, columns and
    rows. Empty where there is one machine only, which the other tables show.
    """
    if len(dossier.alternatives) < 2:
        return []
    across = [alternative_cells(dossier, machine) for machine in dossier.alternatives]
    vendors = by_vendor(dossier.alternatives)
    found: list[tuple[str, Sequence[str], list[list[str]]]] = [
        ("across vendors" if len(vendors) > 1 else "by tokens per dollar", ALTERNATIVE_HEADINGS, across)
    ]
    for vendor, members in vendors.items():
        found.append((vendor, VENDOR_HEADINGS, [vendor_cells(dossier, machine) for machine in members]))
    return found


def alternative_cells(dossier: Dossier, machine: AlternativeDesign) -> list[str]:
    """One row of the tables of machines, in the order of ALTERNATIVE_HEADINGS."""
    point = machine.point
    return [
        _named(point),
        f"{point.design.gpus:,}",
        f"{machine.tokens_per_dollar:,.0f}",
        f"{point.figures.tokens_per_joule:.2f}",
        dollars(point.figures.cost),
        chance_of(dossier, machine),
        price_text(machine, dossier.purchase.campaign.buy),
        mfu_text(machine),
        network_text(machine),
    ]
