"""The decision in sentences: what each machine would take to win, how likely it is the best, what to find out first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.purchase.catalogue import price_row, purchase_price
from optimizer.purchase.report.units import dollars, hourly, quantity
from optimizer.purchase.uncertainty import untested

if TYPE_CHECKING:
    from optimizer.purchase.campaign import Campaign
    from optimizer.purchase.dossier import Dossier
    from optimizer.purchase.odds import Question
    from optimizer.purchase.points import Point
    from optimizer.purchase.rivals import Rival
    from optimizer.purchase.turning import Turn

QUESTIONS = 3  # told
NEGLIGIBLE = 0.005  # below which a chance is not told apart from none


def price_text(rival: Rival, buy: bool) -> str:
    """The price of one GPU at which a machine is the cheapest, beside today's."""
    if rival.price is None:
        return "no price"
    show = dollars if buy else hourly
    return f"{'up to' if rival.winner else 'below'} {show(rival.price)} ({rival.price / rival.price_now - 1:+.0%})"


def mfu_text(rival: Rival) -> str:
    """The MFU at which a machine is the cheapest, beside the planned one."""
    planned = rival.point.figures.mfu
    if rival.mfu is None:
        return f"none (planned {planned:.0%})"
    return f"{'down to' if rival.winner else 'from'} {rival.mfu:.0%} (planned {planned:.0%})"


def network_text(rival: Rival) -> str:
    """The network with which a machine is the cheapest; "" for the winner."""
    if rival.winner:
        return ""
    return f"{rival.bandwidth * 8e-9:,.0f} Gb/s" if rival.bandwidth else "none"


def chance_of(dossier: Dossier, rival: Rival) -> str:
    """The chance that a machine is the cheapest within the limits; "" where it was not drawn."""
    found = next((item for item in dossier.verdict.odds if item.point is rival.point), None)
    if found is None:
        return ""
    return "<1%" if found.chance < NEGLIGIBLE else f"{found.chance:.0%}"


def odds_sentences(dossier: Dossier) -> list[str]:
    """How likely each machine is the best choice, which were never measured, and what to find out first."""
    verdict = dossier.verdict
    if not verdict.odds:
        return []
    chances = ", ".join(
        f"{item.point.design.title} {'<1%' if item.chance < NEGLIGIBLE else f'{item.chance:.0%}'}"
        for item in verdict.odds
    )
    lines = [
        f"Chance to be the cheapest within the limits, over {verdict.draws:,} draws of rates, prices and failures "
        f"together: {chances}."
    ]
    foreign = [item.point for item in verdict.odds if not fitted_on(item.point)]
    if foreign:
        names = "; ".join(
            f"{point.design.title} ({point.answers[0].job.stack.name} was fitted on "
            f"{', '.join(point.answers[0].job.stack.devices) or 'none'})"
            for point in foreign
        )
        lines.append(f"Fitted on other hardware, which widens their intervals: {names}.")
    beyond = [item.point.design.title for item in verdict.odds if untested(item.point) and fitted_on(item.point)]
    if beyond:
        lines.append(f"Larger or other than the runs measured, which widens their intervals: {', '.join(beyond)}.")
    told = verdict.questions[:QUESTIONS]
    if told:
        first, *others = [question_words(item, dossier) for item in told]
        lines.append(f"Find out first: {first}." + (f" Then: {'; '.join(others)}." if others else ""))
    else:
        lines.append("No single measurement or quote is likely to change the choice.")
    return lines


def fitted_on(point: Point) -> bool:
    """Whether runs on this very device are among those that the stack was fitted to."""
    return point.design.cluster.device.name in point.answers[0].job.stack.devices


def turn_words(turn: Turn, campaign: Campaign) -> str:
    """From which answer on another machine is the cheapest."""
    side = "below" if turn.end < turn.value else "above"
    point = next((each for each in (turn.now, turn.then) if each.design.title == turn.question.about), turn.now)
    name = turn.question.name
    if name == "mfu":
        value = f"an MFU of {turn.value * point.figures.mfu:.1%}"
    elif name == "rent":
        value = hourly(turn.value * price_row(campaign, point.design).value)
    elif name == "capex":
        value = f"{dollars(turn.value * purchase_price(campaign, point.design)[0])} a GPU"
    else:
        unit = next(item.unit for item in campaign.assumptions if item.name == name)
        value = quantity(turn.value, unit, name)
    return f"{side} {value} take {turn.then.design.title}"


def question_words(item: Question, dossier: Dossier) -> str:
    """One thing to find out, how often it changes the choice, what knowing it is worth, and from where on it does."""
    what = {
        "mfu": f"the rate of {item.about}, by a trial on a few nodes",
        "rent": f"a firm quote for {item.about}",
        "capex": f"a firm quote for {item.about}",
        "failure_rate": f"the failure rate of {item.about}, guaranteed",
    }.get(item.name, item.title)
    found = [turn_words(turn, dossier.purchase.campaign) for turn in dossier.turns if turn.question is item]
    turning = f": {', '.join(found)}" if found else ""
    often = f"changes the choice in {item.changes:.0%} of the cases, worth {dollars(item.worth)} on average"
    return f"{what} ({often}{turning})"


RIVAL_HEADINGS = (
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


def rival_cells(dossier: Dossier, rival: Rival) -> list[str]:
    """One row of the tables of machines, in the order of RIVAL_HEADINGS."""
    point = rival.point
    return [
        point.design.title,
        f"{point.design.gpus:,}",
        f"{rival.tokens_per_dollar:,.0f}",
        f"{point.figures.tokens_per_joule:.2f}",
        dollars(point.figures.cost),
        chance_of(dossier, rival),
        price_text(rival, dossier.purchase.campaign.buy),
        mfu_text(rival),
        network_text(rival),
    ]
