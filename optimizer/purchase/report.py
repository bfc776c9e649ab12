"""The report on a purchase: what to take, what it costs, what else there is, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

from optimizer.purchase.alternatives import AlternativeDesign
from optimizer.purchase.as_json import machine_rows
from optimizer.purchase.campaign import Campaign
from optimizer.purchase.charts import cost_energy, phase_chart, time_cost, tornado_chart, trace_chart
from optimizer.purchase.designs.points import Point, bottleneck
from optimizer.purchase.dossier import Dossier, Quote
from optimizer.purchase.price.catalogue import power_limit, price_row
from optimizer.purchase.since import changes
from optimizer.purchase.uncertainty.inputs import own_assumptions
from optimizer.purchase.units import days, dollars, hourly, quantity
from optimizer.purchase.wording import filled, note, table, texts
from optimizer.purchase.words import (
    deliveries_words,
    fewest_sentence,
    old,
    question,
    rent_or_buy_sentence,
    summary,
    to_win,
    vendor_questions,
)
from optimizer.reports.plan_words import plan_words
from optimizer.reports.report import Heading, Pairs, Report, Section, Table, Tile, Tiles, notes, section
from optimizer.reports.terms import words_in

MOST_ROWS = 60  # of the designs that are listed


def purchase_report(
    dossier: Dossier,
    assumed: Sequence[str] = (),
    command: str = "",
    today: date | None = None,
    since: Mapping[str, Any] | None = None,
) -> Report:
    """The whole report.

    Args:
        dossier: The purchase with everything that was worked out about it.
        assumed: What nobody said and was assumed.
        command: What makes the report again.
        today: The day on which prices are called old; without it none is.
        since: The JSON of an earlier report: what has changed is said first.
    """
    made = f"{today.day} {today:%B %Y}. " if today else ""
    conclusion = tuple(summary(dossier))
    plans = [answer.plan.summary() for point in dossier.shown for answer in point.answers if answer.plan]
    return Report(
        title="Which machines to take",
        subject=(question(dossier.purchase.campaign, [quote.offer for quote in dossier.quotes]),),
        conclusion=conclusion,
        sections=(
            section("", Tiles(_tiles(dossier)), on="page"),
            notes("Since the report before", changes(dossier, since, machine_rows(dossier)) if since else []),
            *_front(dossier),
            *_machines(dossier),
            *_choices(dossier),
            *_backwards(dossier),
            *_examined(dossier),
            *_assumptions(dossier, today),
            section("Words", Pairs(list(words_in([*plans, *conclusion, note("explained")]).items()))),
        ),
        assumed=tuple(assumed),
        command=command,
        note=made + note("note"),
        tone="good" if dossier.purchase.front else "bad",
    )


def _tiles(dossier: Dossier) -> list[Tile]:
    best, campaign = dossier.advised, dossier.purchase.campaign
    tiles = []
    if dossier.staged:
        first = dossier.staged[0]
        tiles = _filled_tiles(
            "deliveries",
            title=first.points[-1].design.title,
            come=deliveries_words(first.deliveries, "GPUs more"),
            course=first.course,
            limits="within the limits" if first.in_limits else "misses a limit",
        )
    if best is None:
        return tiles
    f, ranges = best.figures, dossier.range_of(best)
    return tiles + _filled_tiles(
        "advised",
        design=best.design,
        f=f,
        time=ranges["time_to_train"],
        cost=ranges["cost"],
        costs="Share of the machines' cost" if campaign.buy else "Cost",
        capital=f"; machines {dollars(f.capex)}" if campaign.buy else "",
    )


def _filled_tiles(kind: str, **values: Any) -> list[Tile]:
    return [
        Tile(name=filled(name, **values), value=filled(value, **values), about=filled(about, **values))
        for name, (value, about) in texts("tiles")[kind].items()
    ]


def _front(dossier: Dossier) -> Iterator[Section]:
    """The choices that nothing beats, drawn and as a table."""
    front, shown = dossier.purchase.front, dossier.shown
    rows = [_values(point, mark=" *" * (point is dossier.advised)) for point in shown]
    advised = [at for at, point in enumerate(shown) if point is dossier.advised]
    yield section(
        "The choices that nothing beats (* advised)",
        table("front", rows, advised),
        note("few_front", shown=len(shown), front=len(front)) if len(front) > len(shown) else "",
    )
    yield section("How they are chosen", note("best") if front else "", on="page")


def _values(point: Point, **others: Any) -> dict[str, Any]:
    """What fills the templates of a table of designs."""
    return {"design": point.design, "f": point.figures, **others}


def _machines(dossier: Dossier) -> Iterator[Section]:
    """What each machine would take to be the cheapest, all drawn, and those of each vendor with software and price."""
    across, *vendors = [
        section(f"The best of each machine, {name}", machines) for name, machines in machine_tables(dossier)
    ] or [section("")]
    yield section("What each machine would take to win", note("to_win") if across.blocks else "", on="page")
    yield across
    yield section("Time against cost", time_cost(dossier), on="page")
    yield section("Cost against energy", cost_energy(dossier), on="page")
    yield from vendors


def machine_tables(dossier: Dossier) -> list[tuple[str, Table]]:
    """The best of each machine: one table across all, one for each vendor where there are several.

    Empty where there is one machine only, which the other tables show.
    """
    machines = dossier.alternatives
    if len(machines) < 2:
        return []
    vendors: dict[str, list[dict[str, Any]]] = {}
    for machine in machines:
        vendors.setdefault(machine.vendor, []).append(_machine(dossier, machine))
    across = table("alternatives", [_machine(dossier, machine) for machine in machines], [0])
    first = "across vendors" if len(vendors) > 1 else "by tokens per dollar"
    return [(first, across), *((vendor, table("vendors", rows)) for vendor, rows in vendors.items())]


def _machine(dossier: Dossier, machine: AlternativeDesign) -> dict[str, Any]:
    """The best design of a machine, which limits it misses, and what it would take to win."""
    point = machine.point
    missed = ", ".join(excess.limit for excess in point.excesses)
    offer = price_row(dossier.purchase.campaign, point.design)
    about = {"stack": point.answers[0].job.stack, "limit": power_limit(point.design), "offer": offer}
    about |= to_win(dossier, machine)
    return _values(point, missed=f" (misses the {missed})" if missed else "", **about)


def _choices(dossier: Dossier) -> Iterator[Section]:
    """What each choice runs, what moves its cost, how many spares pay, what to ask for."""
    best = dossier.advised
    yield notes("Plans", _plans(dossier), on="screen")
    if best is None:
        return
    proven = "proven by search" if all(p.proven for p in dossier.purchase.front) else "not every one proven"
    cards = [block for number, point in enumerate(dossier.shown, 1) for block in _card(dossier, number, point)]
    phases = phase_chart(dossier.shown)
    yield section("What each choice runs", note("fastest", proven=proven), *cards, phases, on="page")
    moves = tornado_chart(dossier, best)
    yield section("What moves the cost of the advised design", note("one_at_a_time"), moves, on="page")
    own = best.design.spares is not None
    if len(dossier.standby) > 1:
        rows = [{"item": item, "pays": " (cheapest)" * item.pays} for item in dossier.standby]
        about = note("spares") + ("" if own else note("spares_free"))
        yield section("How many spare nodes pay", about, table("standby", rows), on="" if own else "page")
    yield notes("What to ask the vendor", vendor_questions(dossier), on="page")


def _card(dossier: Dossier, number: int, point: Point) -> tuple[Heading, Pairs]:
    """What one choice runs."""
    rows = []
    for answer in point.answers:
        assert answer.plan is not None  # a point has a plan of each run
        assert answer.estimate is not None
        plan, count = answer.plan, answer.plan.num_microbatches
        words = f"{plan_words(plan)}; " if number == 1 and answer is point.answers[0] else ""
        of = f", {answer.job.model.name}" if len(point.answers) > 1 else ""
        batches = f"{count:,} micro-batch{'es' * (count > 1)} of {plan.micro_batch}"
        step = f"{answer.estimate.step_time:.2f} s a step of {answer.job.global_batch:,} sequences"
        rows.append((f"Plan{of}", f"{plan.summary()}; {words}{batches}, {step}"))
    first = point.answers[0]
    assert first.estimate is not None
    used, usable = first.estimate.reserved, first.job.usable_memory
    values = _values(point, bottleneck=bottleneck(point), used=used, usable=usable)
    rows += [(name, filled(template, **values)) for name, template in texts("pairs")["choice"].items()]
    advised = " — advised" if point is dossier.advised else ""
    return Heading(f"{number} {point.design.label()}{advised}"), Pairs(rows)


def _plans(dossier: Dossier) -> list[str]:
    """The plan of each design that is shown; the first one of a spelling has its short names in words."""
    lines, explained = [], set[str]()
    for point in dossier.shown:
        for answer in point.answers:
            assert answer.plan is not None
            plan, model = answer.plan.summary(), answer.job.model
            words = f" ({plan_words(answer.plan)})" if set(words_in([plan])) - explained else ""
            explained |= set(words_in([plan]))
            run = f", {model.title or model.name}" if len(point.answers) > 1 else ""
            lines.append(f"{point.design.label()}{run}: {plan}{words}")
    return lines


def _backwards(dossier: Dossier) -> Iterator[Section]:
    """The questions asked backwards that have answers."""
    if dossier.fewest:
        heading = f"Fewest GPUs for {days(dossier.fewest[0].deadline)}"
        yield notes(heading, [fewest_sentence(item) for item in dossier.fewest])
    yield notes("Rent or buy", [rent_or_buy_sentence(item) for item in dossier.rent_or_buy])
    if dossier.resale:
        rows = [{"item": item, "rent": dollars(item.rent) if item.rent else "not known"} for item in dossier.resale]
        own = dossier.purchase.campaign.buy
        sold = table("resale", rows)
        yield section("Sold after a year, or after several", note("resale"), sold, on="" if own else "page")


def _examined(dossier: Dossier) -> Iterator[Section]:
    """What is beaten, whether the search has settled, and every design."""
    purchase = dossier.purchase
    shares = ("time_to_train", "cost", "energy")
    beaten: list[dict[str, Any]] = [
        {"item": item}
        | {name: getattr(item.by.figures, name) / getattr(item.point.figures, name) - 1 for name in shares}
        for item in dossier.dominated[:MOST_ROWS]
    ]
    yield section("What is beaten, and by what", table("beaten", beaten), on="page")
    if purchase.trace:
        yield section(
            "Has the search settled?", note("settled", seed=purchase.seed), trace_chart(purchase.trace), on="page"
        )
    rows = [
        _values(point, breaks=", ".join(excess.limit for excess in point.excesses))
        for point in purchase.points[:MOST_ROWS]
    ]
    designs = table("examined", rows)
    rejected = [(item.design.label(), *[""] * 6, f"no plan: {item.reason}") for item in purchase.rejected[:MOST_ROWS]]
    time, cost, energy = purchase.reference
    count = len(purchase.points)
    yield section(
        "Designs examined",
        note("few_examined", most=MOST_ROWS, points=count) * (count > MOST_ROWS)
        + (note("box", purchase=purchase, time=time, cost=cost, energy=energy) if purchase.front else ""),
        Table(designs.columns, [*designs.rows, *rejected]),
        on="page",
    )


def _assumptions(dossier: Dossier, today: date | None) -> Iterator[Section]:
    """The uncertain inputs, those of the advised design where there is one, and the prices."""
    campaign = dossier.purchase.campaign
    inputs = own_assumptions(campaign, dossier.advised) if dossier.advised else campaign.assumptions
    rows = [
        {
            "item": item,
            "source": "; ".join(filter(None, (item.source, item.date, item.grade))),
            **{end: quantity(getattr(item.value, end), item.unit, item.name) for end in ("low", "mid", "high")},
        }
        for item in inputs
    ]
    quotes = [_quote(campaign, quote, today) for quote in dossier.quotes]
    prices = table("quotes", quotes, head="Price" if campaign.buy else "Rent")
    yield section("Assumptions", table("inputs", rows), prices, note("grades"), note("scope"), on="page")


def _quote(campaign: Campaign, quote: Quote, today: date | None) -> dict[str, Any]:
    row = quote.offer.trace()
    if quote.others:
        low, high = (f"{hourly(offer.value)} ({offer.provider or offer.row})" for offer in quote.others)
        row += f"; others {low} to {high}"
    if today and (age := old(quote.offer, today)):
        row += f"; {age}: ask again"
    curve = "measured" if quote.power_measured else "assumed: the H200's"
    price = dollars(quote.price) if campaign.buy else hourly(quote.price)
    return {"quote": quote, "price": price, "curve": curve, "row": row}
