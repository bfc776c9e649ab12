"""What a purchase comes to, in sentences for people who sign it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from optimizer.base.units import DAY
from optimizer.catalog.offers import OLD
from optimizer.purchase.choice_words import probability_sentences
from optimizer.purchase.designs.front import binding_limits, smallest_excess
from optimizer.purchase.price.catalogue import fabric_of, price_row
from optimizer.purchase.rows import bottleneck
from optimizer.purchase.running_words import checkpoint_sentence, spares_sentence, staged_sentences
from optimizer.purchase.units import (
    between,
    days,
    dollars,
    gigabytes,
    hourly,
    megawatt_hours,
    megawatts,
    quantity,
    tonnes,
)

if TYPE_CHECKING:
    from datetime import date

    from optimizer.catalog.offers import Offer
    from optimizer.purchase.campaign import Campaign
    from optimizer.purchase.designs.inverse import Fewest, Parity, RentOrBuy
    from optimizer.purchase.designs.points import Excess, Point
    from optimizer.purchase.dossier import Dossier
    from optimizer.purchase.ranges import Range


def question(campaign: Campaign) -> str:
    """What was asked, in one sentence."""
    runs = " and ".join(
        f"{run.model.title or run.model.name} on {run.tokens / 1e12:g} trillion tokens" for run in campaign.runs
    )
    bounds = campaign.bounds
    limits = [f"within {days(bounds.deadline)}"] * (bounds.deadline < float("inf"))
    limits += [f"for at most {dollars(bounds.budget)}"] * (bounds.budget < float("inf"))
    limits += [f"on at most {megawatts(bounds.power)}"] * (bounds.power < float("inf"))
    limits += [f"in at most {bounds.racks:,.0f} racks"] * (bounds.racks < float("inf"))
    how = "bought machines" if campaign.buy else "rented machines"
    return f"Train {runs}" + (", " + ", ".join(limits) if limits else "") + f", on {how}."


def summary(dossier: Dossier) -> list[str]:
    """The executive summary: what to take, what it costs, what else there is, what could go wrong."""
    purchase = dossier.purchase
    if not dossier.advised:
        return [*staged_sentences(dossier), *infeasible(dossier)]
    best = dossier.advised
    ranges = dossier.range_of(best)
    lines = [
        *staged_sentences(dossier),
        f"Take {name(best)}. Training ends after {between(ranges['time_to_train'], days)} and costs "
        f"{between(ranges['cost'], dollars)}; it uses {between(ranges['energy'], megawatt_hours)} and draws up to "
        f"{megawatts(best.figures.peak_power)} at the site.",
        *_capital(best),
        *_contract(dossier),
        *_dates(dossier, best),
        *_confidence(purchase.campaign, ranges),
        *probability_sentences(dossier),
        *_others(dossier, best),
        f"The machines train {best.figures.goodput:.0%} of the time; failures, restarts and checkpoints take the rest. "
        f"While they train they reach {best.figures.mfu:.0%} of their peak (MFU); "
        f"the largest loss is {bottleneck(best)}.",
        checkpoint_sentence(best),
        *filter(None, [spares_sentence(dossier)]),
    ]
    widest = [swing for swing in dossier.swings if swing.uncertain][:3]
    lines.append(
        "What moves the cost most: "
        + "; ".join(
            f"{swing.title} ({quantity(swing.low, swing.unit, swing.name)} to "
            f"{quantity(swing.high, swing.unit, swing.name)}): "
            f"{dollars(min(swing.results['cost']))} to {dollars(max(swing.results['cost']))}"
            for swing in widest
        )
        + "."
    )
    lines.append(
        f"Designs examined: {len(purchase.points) + len(purchase.rejected):,}; within every limit: "
        f"{len(purchase.feasible):,}; of those beaten by none in time, cost and energy together: "
        f"{len(purchase.front):,}."
    )
    return lines


def infeasible(dossier: Dossier) -> list[str]:
    """Why nothing meets the limits, which of them is to blame, and what comes nearest."""
    purchase = dossier.purchase
    if not purchase.points:
        reasons = sorted({item.reason for item in purchase.rejected})
        return ["No design has a plan at all: " + "; ".join(reasons[:3]) + "."]
    lines = ["No design meets every limit."]
    for limit, alone in binding_limits(purchase.points).items():
        least = smallest_excess(purchase.points, limit)
        count = sum(any(excess.limit == limit for excess in point.excesses) for point in purchase.points)
        rest = f"; it alone stops {alone:,}" if alone else ""
        lines.append(
            f"{limit[:1].upper()}{limit[1:]}: {count:,} of {len(purchase.points):,} designs miss it, by at least "
            f"{least.share:.0%} ({_limit(least)}){rest}."
        )
    for point in purchase.nearest:
        broken = ", ".join(f"{excess.limit} {_limit(excess)}" for excess in point.excesses)
        lines.append(
            f"Nearest with {point.design.title}: {name(point)}, {days(point.figures.time_to_train)}, "
            f"{dollars(point.figures.cost)}, {megawatts(point.figures.peak_power)}; beyond the {broken}."
        )
    return lines


def vendor_questions(dossier: Dossier) -> list[str]:
    """What to ask the vendor for, with the number that makes it worth asking."""
    best = dossier.advised
    if not best:
        return []
    lines = [
        f"Acceptance test: at least {0.95 * best.figures.mfu:.0%} MFU on {best.design.gpus:,} GPUs with this plan."
    ]
    for swing in dossier.swings:
        at_low, at_high = swing.results["cost"]
        if swing.name == "failure_rate":
            lines.append(
                f"A guaranteed failure rate: {quantity(swing.high, swing.unit, swing.name)} per 8-GPU node instead of "
                f"{quantity(swing.low, swing.unit, swing.name)} costs {dollars(at_high - at_low)} more."
            )
        if swing.name == "nic":
            slow, fast = swing.results["time_to_train"]
            lines.append(
                f"Network: {quantity(swing.high, swing.unit)} per GPU would save "
                f"{days(best.figures.time_to_train - fast)}, {quantity(swing.low, swing.unit)} would cost "
                f"{days(slow - best.figures.time_to_train)}."
            )
    lines.append(_network(dossier.purchase.campaign, best))
    lines += [parity_sentence(parity) for parity in dossier.parities if parity.device is not best][:3]
    lines.append(f"Room for {best.figures.racks:,} racks and {megawatts(best.figures.peak_power)}, cooling included.")
    return lines


def parity_sentence(parity: Parity) -> str:
    """At which rent a device becomes the cheapest choice."""
    change = parity.price / parity.now - 1.0
    verb = "stays cheapest up to" if change >= 0 else "would be cheapest below"
    return (
        f"{parity.device.design.title} ({parity.device.design.gpus:,} GPUs) {verb} {hourly(parity.price)} per GPU, "
        f"{abs(change):.0%} {'above' if change >= 0 else 'below'} today's {hourly(parity.now)}; "
        f"the alternative is {parity.alternative.design.gpus:,} {parity.alternative.design.title}."
    )


def rent_or_buy_sentence(item: RentOrBuy) -> str:
    """When buying pays."""
    if item.time == float("inf"):
        return f"{name(item.point)}: owning never costs less than renting."
    if item.time > item.lifetime:
        return (
            f"{name(item.point)}: rent. At this rent, buying for {dollars(item.capex)} would not pay within the "
            f"machines' life of {days(item.lifetime)}."
        )
    return (
        f"{name(item.point)}: buying for {dollars(item.capex)} beats renting after {days(item.time)} of continuous "
        f"use, within a life of {days(item.lifetime)}."
    )


def fewest_sentence(item: Fewest) -> str:
    """How few GPUs of one kind meet a deadline."""
    if item.point:
        found = item.point
        return (
            f"{item.title}: {found.design.gpus:,} GPUs end in {days(found.figures.time_to_train)} for "
            f"{dollars(found.figures.cost)} ({item.tried} counts tried)."
        )
    fastest = (
        f"; the fastest tried, {item.fastest.design.gpus:,}, takes {days(item.fastest.figures.time_to_train)}"
        if item.fastest
        else ""
    )
    return f"{item.title}: no count tried ends within {days(item.deadline)}{fastest}."


def name(point: Point) -> str:
    """A design as people say it."""
    return f"{point.design.label().replace(' ', ' × ', 1)}"


def _capital(best: Point) -> list[str]:
    """What bought machines cost at once, beside the run's share of it."""
    found = best.figures
    if not found.capex:
        return []
    return [
        f"The machines with their network cost {dollars(found.capex)}; the cost above is this run's share of their "
        f"life, with {dollars(found.running * found.time_to_train)} to run them. "
        "A budget is held against that share."
    ]


def _contract(dossier: Dossier) -> list[str]:
    """Which row of the price book the cost comes from, and what a contract that outlasts the run really costs."""
    campaign, best = dossier.purchase.campaign, dossier.advised
    if best is None:
        return []
    offer = price_row(campaign, best.design)
    lines = [f"To order: {best.figures.lot.words()}; price: {offer.title()} ({offer.row})."]
    if offer.term == "spot":
        lines.append("Spot: the provider may take the GPUs back at any time; time and cost hold no such interruption.")
    for point in dossier.shown if not campaign.buy else ():
        found, offer = point.figures, price_row(campaign, point.design)
        if offer.commitment > found.time_to_train:
            lines.append(
                f"{name(point)} is priced at a rate that binds for {days(offer.commitment)} ({offer.title()}); the run "
                f"uses {found.time_to_train / offer.commitment:.0%} of a contract for {dollars(found.committed)}. "
                "Its cost here holds only if the rest is used or sold."
            )
    return lines


def _dates(dossier: Dossier, best: Point) -> list[str]:
    """When each run of a portfolio starts and ends, one after the other."""
    runs, ends = dossier.purchase.campaign.runs, best.figures.ends
    if len(runs) < 2:
        return []
    starts = (max(run.start, end) for run, end in zip(runs, (0.0, *ends[:-1]), strict=True))
    parts = [
        f"{run.model.title or run.model.name} from day {start / DAY:,.0f} to day {end / DAY:,.0f}"
        + (f" (by day {run.by / DAY:,.0f})" if run.by < float("inf") else "")
        for run, start, end in zip(runs, starts, ends, strict=True)
    ]
    return ["One after the other: " + "; ".join(parts) + "."]


def old(offer: Offer, today: date) -> str:
    """How old a price is, where it is too old to rely on; "" otherwise."""
    age = offer.age(today)
    return f"{age:,} days old" if age is not None and age > OLD else ""


def _network(campaign: Campaign, best: Point) -> str:
    """The parts of the network, and what they cost."""
    parts = fabric_of(best.design, best.figures.paid_gpus).words()
    if campaign.buy:
        return f"The network: {parts}; {dollars(best.figures.network)} of the machines' price (assumed list prices)."
    added = best.figures.network
    more = f"; {dollars(added)} of it beyond what the machines come with, passed on in the rent" if added else ""
    return f"The network that the rent must include: {parts}{more}."


def _confidence(campaign: Campaign, ranges: Mapping[str, Range]) -> list[str]:
    lines = []
    for result, limit, what, show in (
        ("time_to_train", campaign.bounds.deadline, "deadline", days),
        ("cost", campaign.bounds.budget, "budget", dollars),
    ):
        if limit < float("inf"):
            holds = ranges[result].high <= limit
            verdict = "holds over the whole range" if holds else "is missed at the far end of the range"
            lines.append(f"The {what} of {show(limit)} {verdict}.")
    return [" ".join(lines)] if lines else []


def _others(dossier: Dossier, best: Point) -> list[str]:
    lines = []
    for other, what in ((dossier.fastest, "Fastest"), (dossier.cheapest, "Cheapest"), (dossier.frugal, "Least energy")):
        if other is not None and other is not best:
            found = other.figures
            lines.append(
                f"{what}: {name(other)}, {days(found.time_to_train)}, {dollars(found.cost)}, "
                f"{megawatt_hours(found.energy)}, {tonnes(found.co2)} of CO2."
            )
    return lines


def _limit(excess: Excess) -> str:
    shows: Mapping[str, Callable[[float], str]] = {
        "deadline": days,
        "budget": dollars,
        "power": megawatts,
        "host memory": gigabytes,
    }
    show = days if excess.limit.startswith("date of") else shows.get(excess.limit, "{:,.0f}".format)
    return f"{show(excess.value)} against {show(excess.allowed)}"
