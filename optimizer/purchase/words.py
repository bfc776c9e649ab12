"""What a purchase comes to, in sentences for people who sign it: which of those in texts.toml, with which values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from optimizer.catalog.offers import OLD, Offer
from optimizer.purchase.alternatives import AlternativeDesign
from optimizer.purchase.campaign import Campaign
from optimizer.purchase.designs.front import binding_limits, smallest_excess
from optimizer.purchase.designs.inverse import Fewest, Parity, RentOrBuy
from optimizer.purchase.designs.points import Excess, Point, bottleneck
from optimizer.purchase.dossier import Dossier
from optimizer.purchase.price.catalogue import fabric_of, price_row, purchase_price
from optimizer.purchase.ranges import Range, own_price
from optimizer.purchase.staged import Delivery, Staged, totals
from optimizer.purchase.uncertainty.inputs import untested
from optimizer.purchase.uncertainty.win_probability import BreakEven, OpenQuestion
from optimizer.purchase.units import days, dollars, hourly, percent, quantity
from optimizer.purchase.wording import filled, note, say

INFINITE = float("inf")
QUESTIONS = 3  # shown
LIMITS = {"deadline": "days", "budget": "dollars", "power": "megawatts", "host memory": "gigabytes"}


def question(campaign: Campaign, offers: Sequence[Offer] = ()) -> str:
    """What was asked, in one sentence, with the terms of the offers by which the machines are priced."""
    runs = " and ".join(say("run", run=run) for run in campaign.runs)
    limits = ((name, getattr(campaign.bounds, name)) for name in ("deadline", "budget", "power", "racks"))
    within = "".join(say(f"at_most_{name}", limit=limit) for name, limit in limits if limit < INFINITE)
    terms = list(dict.fromkeys(offer.term.replace("_", " ") for offer in offers))
    how = "bought" if campaign.buy else f"rented ({', '.join(terms)})" if terms else "rented"
    unlike = "" if campaign.buy or len(terms) < 2 else note("unlike_terms")
    return f"Train {runs}{within}, on machines that are {how}. {unlike}".strip()


def summary(dossier: Dossier) -> list[str]:
    """The executive summary: what to take, what it costs, what else there is, what could go wrong."""
    purchase, best = dossier.purchase, dossier.advised
    if best is None:
        return [*staged_sentences(dossier), *infeasible(dossier)]
    f, ranges = best.figures, dossier.range_of(best)
    others = {"Fastest": dossier.fastest, "Cheapest": dossier.cheapest, "Least energy": dossier.frugal}
    widest = (
        say("swing", swing=swing, least=min(swing.results["cost"]), most=max(swing.results["cost"]))
        for swing in [swing for swing in dossier.swings if swing.uncertain][:3]
    )
    count = len(purchase.points) + len(purchase.rejected)
    lines = [
        *staged_sentences(dossier),
        *_advice(dossier, best),
        say("capital", f=f, running=f.running * f.time_to_train) if f.capex else "",
        *_contract(dossier, best),
        _dates(purchase.campaign, best),
        _confidence(purchase.campaign, ranges),
        *probability_sentences(dossier),
        *(
            say("other", what=what, point=point, f=point.figures)
            for what, point in others.items()
            if point is not None and point is not best
        ),
        say("train", f=f, bottleneck=bottleneck(best)),
        checkpoint_sentence(best),
        spares_sentence(dossier),
        f"What moves the cost most: {'; '.join(widest)}.",
        say("examined", count=count, feasible=len(purchase.feasible), front=len(purchase.front)),
    ]
    return [line for line in lines if line]


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
        about = {"count": count, "points": len(purchase.points), "least": least, "against": _against(least)}
        rest = f"; it alone stops {alone:,}" if alone else ""
        lines.append(say("missed", limit=limit[:1].upper() + limit[1:], rest=rest, **about))
    for point in purchase.nearest:
        broken = ", ".join(f"{excess.limit} {_against(excess)}" for excess in point.excesses)
        lines.append(say("nearest", point=point, f=point.figures, broken=broken))
    return lines


def _against(excess: Excess) -> str:
    way = "days" if excess.limit.startswith("date of") else LIMITS.get(excess.limit, ",.0f")
    return filled(f"{{value:{way}}} against {{allowed:{way}}}", value=excess.value, allowed=excess.allowed)


def vendor_questions(dossier: Dossier) -> list[str]:
    """What to ask the vendor for, with the number that makes it worth asking."""
    best, campaign = dossier.advised, dossier.purchase.campaign
    if not best:
        return []
    f = best.figures
    lines = [say("acceptance", mfu=0.95 * f.mfu, gpus=best.design.gpus)]
    for swing in dossier.swings:
        if swing.name == "failure_rate":
            at_low, at_high = swing.results["cost"]
            lines.append(say("failures", swing=swing, more=at_high - at_low))
        if swing.name == "nic":
            slow, fast = swing.results["time_to_train"]
            lines.append(say("faster", swing=swing, saved=f.time_to_train - fast, lost=slow - f.time_to_train))
    network = say(
        "network_bought" if campaign.buy else "network_rented", fabric=fabric_of(best.design, f.paid_gpus), f=f
    )
    if not campaign.buy:
        network += (say("network_added", f=f) if f.network else "") + "."
    parities = [parity_sentence(parity) for parity in dossier.parities if parity.device is not best]
    return [*lines, network, *parities[:3], say("space", f=f)]


def parity_sentence(item: Parity) -> str:
    """At which rent a device becomes the cheapest choice."""
    change = item.price / item.now - 1.0
    devices = {"device": item.device.design, "other": item.alternative.design}
    return say("parity_up" if change >= 0 else "parity_down", item=item, change=abs(change), **devices)


def rent_or_buy_sentence(item: RentOrBuy) -> str:
    """When buying pays."""
    return say("never_buy" if item.time == INFINITE else "rent" if item.time > item.lifetime else "buy", item=item)


def fewest_sentence(item: Fewest) -> str:
    """How few GPUs of one kind meet a deadline."""
    if item.point:
        return say("fewest", item=item)
    return say("none_tried", item=item, fastest=say("fastest_tried", point=item.fastest) if item.fastest else "")


def _advice(dossier: Dossier, best: Point) -> list[str]:
    """What to take, or between which two it is open and what decides, with the figures of the first."""
    about = {"point": best, "f": best.figures, "ranges": dossier.range_of(best)}
    tie = dossier.tie
    if tie is None:
        return [say("take", **about)]
    regret = {id(item.point): item.regret for item in dossier.decision.probabilities}
    first, gap = dossier.decision.questions[0], regret[id(tie)] - regret[id(best)]
    return [say("tie", point=best, other=tie, gap=gap, what=_asked(first), worth=first.worth), say("either", **about)]


def _contract(dossier: Dossier, best: Point) -> list[str]:
    """Which row of the price book the cost comes from, and what a contract that outlasts the run really costs."""
    campaign = dossier.purchase.campaign
    offer = price_row(campaign, best.design)
    lines = [say("order", f=best.figures, offer=offer), say("spot") if offer.term == "spot" else ""]
    used = []
    for point in dossier.shown if not campaign.buy else ():
        offer, time = price_row(campaign, point.design), point.figures.time_to_train
        share = time / offer.commitment if offer.commitment else INFINITE
        if point is best and share < 1:
            lines.append(say("binds", point=point, offer=offer, share=share))
        elif share < 1:
            used.append(share)
    if used:
        lines.append(say("others_bind", count=len(used), least=min(used), most=max(used)))
    return lines


def _dates(campaign: Campaign, best: Point) -> str:
    """When each run of a portfolio starts and ends, one after the other."""
    if len(campaign.runs) < 2:
        return ""
    parts = [
        say("dates", run=run, start=end - wall, end=end) + (say("by_date", run=run) * (run.by < INFINITE))
        for run, wall, end in zip(campaign.runs, best.figures.walls, best.figures.ends, strict=True)
    ]
    return "One after the other: " + "; ".join(parts) + "."


def old(offer: Offer, today: date) -> str:
    """How old a price is, where it is too old to rely on; "" otherwise."""
    age = offer.age(today)
    return f"{age:,} days old" if age is not None and age > OLD else ""


def _confidence(campaign: Campaign, ranges: Mapping[str, Range]) -> str:
    bounds = campaign.bounds
    limits = (("deadline", bounds.deadline, "time_to_train", days), ("budget", bounds.budget, "cost", dollars))
    return " ".join(
        f"The {what} of {show(limit)} "
        + ("holds over the whole range." if ranges[name].high <= limit else "is missed at the far end of the range.")
        for what, limit, name, show in limits
        if limit < INFINITE
    )


def checkpoint_sentence(point: Point) -> str:
    """How often the advised design writes a checkpoint, and whether its storage keeps up."""
    bound = " (no slower storage would do)" if point.figures.storage_share > 0.99 else ""
    return say("checkpoint", f=point.figures, bound=bound)


def spares_sentence(dossier: Dossier) -> str:
    """How many spare nodes pay, and what they save."""
    if dossier.advised is None or not dossier.standby:
        return ""
    best = next(item for item in dossier.standby if item.pays)
    none, own = dossier.standby[0], dossier.advised.design.spares
    size, decided = dossier.advised.design.cluster.gpus_per_node, _repair_words(dossier)
    if not best.spares:
        over = none.figures.lot.spare // size
        nodes = f"What is sold whole leaves {over:,} nodes over, which stand by; more" if over else "Spare nodes"
        return say("no_spares", nodes=nodes) + decided
    words = say("spares", best=best, none=none, size=size, saved=none.figures.cost - best.figures.cost)
    if own is None:
        return f"Spares: the provider's are taken to stand in. If you keep your own, {words} (--spares auto).{decided}"
    asked = f" The figures are those with {own:,}, as asked." if own != best.spares else ""
    return f"Spares: {words}.{asked}{decided}"


def _repair_words(dossier: Dossier) -> str:
    """What decides the number of spare nodes: the time of a repair, and how many pay at either end of it."""
    if len(dossier.repairs) < 2:
        return ""
    item = next(item for item in dossier.purchase.campaign.assumptions if item.name == "repair")
    if len({count for _, count in dossier.repairs}) == 1:
        return say("repair_any", low=item.value.low, high=item.value.high)
    ends = [f"at {quantity(time, 's')} it is {count:,}" for time, count in dossier.repairs if time != item.value.mid]
    known = "given" if item.grade == "user" else "assumed: have it guaranteed"
    return say("repair", mid=item.value.mid, known=known, others=", ".join(ends))


def staged_sentences(dossier: Dossier) -> list[str]:
    """The advice where machines come in deliveries, and each kind of machine; empty where they do not."""
    if not dossier.staged:
        return []
    best, *others = [
        f"{item.points[-1].design.title}: {_outcome(dossier.purchase.campaign, item)}" for item in dossier.staged
    ]
    first = "No machine meets every limit in these deliveries. Nearest in cost is "
    if dossier.staged[0].in_limits:
        first = "In deliveries take "
    return [first + best, *others, "Below, the GPUs of each stage as if all were there from the first day."]


def deliveries_words(deliveries: Sequence[Delivery], more: str = "more") -> str:
    """How many GPUs come when."""
    first, *later = deliveries
    return f"{first.gpus:,} GPUs now" + "".join(say("delivery", each=each, more=more) for each in later)


def _outcome(campaign: Campaign, item: Staged) -> str:
    ends = {each.run: each.end for each in item.course.stretches}
    dates = ", ".join(
        filled("{run.model:known} by day {end:/86400 ,.0f}", run=run, end=ends[i])
        for i, run in enumerate(campaign.runs)
    )
    in_time = item.course.stretches[-1].gpus == totals(item.deliveries)[-1]
    return say(
        "outcome",
        deliveries=deliveries_words(item.deliveries),
        ranges=item.ranges,
        dates=f" ({dates})" if len(campaign.runs) > 1 else "",
        too_late="" if in_time else "; the last comes too late",
        limits="" if item.in_limits else "; it misses a limit",
        alone=item.points[0].figures,
        whole=item.points[-1].figures,
    )


def to_win(dossier: Dossier, machine: AlternativeDesign) -> dict[str, str]:
    """The price of one GPU, the MFU and the network at which a machine is the cheapest, and its chance to be that."""
    show = dollars if dossier.purchase.campaign.buy else hourly
    price, mfu = "any price" if machine.winner else "no price", "any" if machine.winner else "none"
    if machine.price is not None:
        change = machine.price / machine.price_now - 1
        price = f"{'up to' if machine.winner else 'below'} {show(machine.price)} ({change:+.0%})"
    if machine.mfu is not None:
        mfu = f"{'down to' if machine.winner else 'from'} {machine.mfu:.0%}"
    network = f"{machine.bandwidth * 8e-9:,.0f} Gb/s" if machine.bandwidth else "none"
    mine = (item.chance for item in dossier.decision.probabilities if item.point is machine.point)
    return {
        "price": price,
        "price_now": show(machine.price_now),
        "mfu": f"{mfu} (planned {machine.point.figures.mfu:.0%})",
        "network": "" if machine.winner else network,
        "chance": next(map(percent, mine), ""),
    }


def probability_sentences(dossier: Dossier) -> list[str]:
    """How likely each machine is the best choice, which were never measured, and what to find out first."""
    decision = dossier.decision
    points = [item.point for item in decision.probabilities]
    if not points:
        return []
    chances = ", ".join(f"{item.point.design.title} {percent(item.chance)}" for item in decision.probabilities)
    lines = [say("chances", draws=decision.draws, chances=chances)]
    stacks = [(point, point.answers[0].job.stack) for point in points]
    foreign = "; ".join(
        say("foreign", point=point, stack=stack, devices=", ".join(stack.devices) or "none")
        for point, stack in stacks
        if point.design.cluster.device.name not in stack.devices
    )
    if foreign:
        lines.append(f"Fitted on other hardware, which widens their intervals: {foreign}.")
    beyond = ", ".join(
        point.design.title
        for point, stack in stacks
        if point.design.cluster.device.name in stack.devices and untested(point)
    )
    if beyond:
        lines.append(f"Larger or other than the runs measured, which widens their intervals: {beyond}.")
    machines = [(point.design.title, point.design.cluster) for point in points]
    unknown = [title for title, at in machines if not own_price("failure_rate", at.device.name, at.name)]
    if unknown:
        lines.append(say("unknown", names=", ".join(unknown)))
    if not decision.questions:
        return [*lines, "No single measurement or quote is likely to change the choice."]
    first, *others = [_question_words(item, dossier) for item in decision.questions[:QUESTIONS]]
    return [*lines, f"Find out first: {first}." + (f" Then: {'; '.join(others)}." if others else "")]


def _break_even_words(change: BreakEven, campaign: Campaign) -> str:
    """From which answer on another machine is the cheapest."""
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
    return f"{change.side} {value} take {change.then.design.title}"


def _asked(item: OpenQuestion) -> str:
    """What to find out."""
    return say(f"what_{item.name}", item=item) if item.name in ("mfu", "rent", "capex", "failure_rate") else item.title


def _question_words(item: OpenQuestion, dossier: Dossier) -> str:
    """One thing to find out, how often it changes the choice, what knowing it is worth, and from where on it does."""
    changes = [change for change in dossier.break_evens if change.question is item]
    where = ", ".join(_break_even_words(change, dossier.purchase.campaign) for change in changes)
    return say("open_question", what=_asked(item), item=item, at=f": {where}" if where else "")
