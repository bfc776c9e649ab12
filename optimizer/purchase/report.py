"""The report on a purchase: what to take, what it costs, what else there is, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from optimizer.base.units import GB
from optimizer.purchase.alternatives import by_vendor
from optimizer.purchase.charts import charts
from optimizer.purchase.choice_words import chance_of, mfu_text, network_text, price_text
from optimizer.purchase.price.catalogue import power_limit
from optimizer.purchase.rows import bottleneck, memory_use
from optimizer.purchase.uncertainty.inputs import own_assumptions
from optimizer.purchase.units import days, dollars, hourly, megawatt_hours, megawatts, quantity, tonnes
from optimizer.purchase.words import (
    fewest_sentence,
    old,
    question,
    rent_or_buy_sentence,
    summary,
    vendor_questions,
)
from optimizer.reports.glossary import words_in
from optimizer.reports.plan_words import plan_words
from optimizer.reports.report import Heading, Pairs, Report, Section, Table, Tile, Tiles, columns, notes, section

if TYPE_CHECKING:
    from datetime import date

    from optimizer.answer.answer import Answer
    from optimizer.purchase.alternatives import AlternativeDesign
    from optimizer.purchase.designs.points import Point
    from optimizer.purchase.dossier import Dossier, Quote

MOST_ROWS = 60  # of the designs that are listed
NOTE = "Predicted by mfu-optimizer; every figure in brackets is a range, not a guarantee."
FRONT = columns(
    "design ~ | time [text] | cost [text] | energy [text] | CO2 [text] | tokens/$ [text] | tokens/J [text] | "
    "site [text]"
)
ALTERNATIVES = columns(
    "machine ~ | GPUs [text] | tokens/$ [text] | tokens/J [text] | cost [text] | chance [text] | "
    "cheapest at a price ~ | or an MFU ~ | or a network ~"
)
VENDORS = columns(
    "machine ~ | GPUs [text] | software ~ | price [text] | GPU limit [text] | site [text] | time [text] | "
    "cost [text] | tokens/J [text]"
)
STANDBY = columns("spare nodes [text] | trains [text] | waits for repairs [text] | time [text] | cost [text]")
BEATEN = columns("design within the limits ~ | is beaten by ~ | which takes [text] | costs [text] | uses energy [text]")
EXAMINED = columns(
    "design ~ | time [text] | cost [text] | energy [text] | MFU [text] | site power [text] | racks [text] | breaks ~"
)
INPUTS = columns("input ~ | low [text] | middle [text] | high [text] | source, date, grade ~")
TO_WIN = (
    "The cheapest design of each machine within the limits, or the one that misses them by least, by tokens a dollar. "
    "Price, MFU or network: one of them alone, the rest as it is; for the winner what it may become before the second "
    "is cheaper. MFU compares a device with its own peak only, so it ranks nothing here."
)
BEST = (
    "No design that was examined is at once faster, cheaper and thriftier than any of these. Advised is the cheapest "
    "whose ranges keep within the limits, or the cheapest if none does."
)
ONE_AT_A_TIME = (
    "One input at a time, the others at their middle. The network bars keep the plan; they show a choice, not an "
    "uncertainty. Ranges in this report combine the uncertain inputs as independent."
)
SPARES = (
    "Spare nodes of the advised design: what fails is replaced at once as long as one is left, else training waits for "
    "a repair."
)
GRADES = "Grades: A primary source, B secondary, C derived, hearsay or assumed; “user” was given for this report."


def purchase_report(
    dossier: Dossier, assumed: Sequence[str] = (), command: str = "", today: date | None = None
) -> Report:
    """The whole report.

    Args:
        dossier: The purchase with everything that was worked out about it.
        assumed: What nobody said and was assumed.
        command: What makes the report again.
        today: The day on which prices are called old; without it none is.
    """
    made = f"{today.day} {today:%B %Y}. " if today else ""
    return Report(
        title="Which machines to take",
        subject=(question(dossier.purchase.campaign),),
        conclusion=tuple(summary(dossier)),
        sections=(
            section("", Tiles(_tiles(dossier)), on="page"),
            *_front(dossier),
            *_machines(dossier),
            *_choices(dossier),
            *_backwards(dossier),
            *_examined(dossier),
            *_assumptions(dossier, today),
            section("Words", Pairs(list(words_in(_texts(dossier)).items()))),
        ),
        assumed=tuple(assumed),
        command=command,
        note=made + NOTE,
        tone="good" if dossier.purchase.front else "bad",
    )


def _tiles(dossier: Dossier) -> list[Tile]:
    best, campaign = dossier.advised, dossier.purchase.campaign
    tiles = []
    if dossier.staged:
        first = dossier.staged[0]
        start, *later = first.deliveries
        come = f"{start.gpus:,} GPUs now" + "".join(f", {one.gpus:,} GPUs more after {days(one.at)}" for one in later)
        kept = "within the limits" if first.in_limits else "misses a limit"
        tiles = [
            Tile(name="In deliveries take", value=first.points[-1].design.title, about=come),
            Tile(name="Time to train", value=days(first.course.time_to_train), about=kept),
            Tile(name="Cost", value=dollars(first.course.cost), about=megawatt_hours(first.course.energy)),
        ]
    if best is None:
        return tiles
    found, ranges = best.figures, dossier.range_of(best)
    time, cost = ranges["time_to_train"], ranges["cost"]
    capital = f"; machines {dollars(found.capex)}" if campaign.buy else ""
    order = f"{found.lot.words()}; {best.design.dtype}"
    named = (
        ("Take", f"{best.design.gpus:,} × {best.design.title}", order),
        ("Time to train", days(found.time_to_train), f"{days(time.low)} to {days(time.high)}"),
        (
            "Share of the machines' cost" if campaign.buy else "Cost",
            dollars(found.cost),
            f"{dollars(cost.low)} to {dollars(cost.high)}{capital}",
        ),
        (
            "Energy of the site",
            megawatt_hours(found.energy),
            f"up to {megawatts(found.peak_power)}; {tonnes(found.co2)} CO2",
        ),
        ("MFU and goodput", f"{found.mfu:.0%} · {found.goodput:.0%}", "of the peak · of the time"),
    )
    return tiles + [Tile(name=name, value=value, about=about) for name, value, about in named]


def _front(dossier: Dossier) -> Iterator[Section]:
    """The choices that nothing beats, drawn and as a table."""
    drawn, front, shown = charts(dossier), dossier.purchase.front, dossier.shown
    rows = [_design(point, " *" if point is dossier.advised else "") for point in shown]
    few = f"{len(shown)} of the {len(front)} designs that nothing beats; --json and --csv hold all."
    yield section(
        "The choices that nothing beats (* advised)",
        Table(FRONT, rows, strong=[shown.index(point) for point in shown if point is dossier.advised]),
        few if len(front) > len(shown) else "",
    )
    yield section("How they are chosen", BEST if front else "", on="page")
    yield section("Time against cost", drawn["time_cost"], on="page")
    yield section("Cost against energy", drawn["cost_energy"], on="page")


def _design(point: Point, mark: str) -> tuple[str, ...]:
    found = point.figures
    tokens = (f"{1 / found.cost_per_token:,.0f}", f"{found.tokens_per_joule:.2f}")
    amounts = (days(found.time_to_train), dollars(found.cost), megawatt_hours(found.energy), tonnes(found.co2))
    return point.design.label() + mark, *amounts, *tokens, megawatts(found.peak_power)


def _machines(dossier: Dossier) -> Iterator[Section]:
    """What each machine would take to be the cheapest, and those of each vendor with software, price and power."""
    found = machine_tables(dossier)
    yield section("What each machine would take to win", TO_WIN if found else "", on="page")
    for name, table in found:
        yield section(f"The best of each machine, {name}", table)


def machine_tables(dossier: Dossier) -> list[tuple[str, Table]]:
    """The best of each machine: one table across all, one for each vendor where there are several.

    Empty where there is one machine only, which the other tables show.
    """
    machines = dossier.alternatives
    if len(machines) < 2:
        return []
    vendors = by_vendor(machines)
    first = "across vendors" if len(vendors) > 1 else "by tokens per dollar"
    across = Table(ALTERNATIVES, [_alternative(dossier, machine) for machine in machines], strong=[0])
    own = [(vendor, [_vendors(dossier, machine) for machine in members]) for vendor, members in vendors.items()]
    return [(first, across), *((vendor, Table(VENDORS, rows)) for vendor, rows in own)]


def _alternative(dossier: Dossier, machine: AlternativeDesign) -> tuple[str, ...]:
    found = machine.point.figures
    tokens = (f"{machine.tokens_per_dollar:,.0f}", f"{found.tokens_per_joule:.2f}")
    to_win = (price_text(machine, dossier.purchase.campaign.buy), mfu_text(machine), network_text(machine))
    chance = chance_of(dossier, machine)
    return _named(machine.point), f"{machine.point.design.gpus:,}", *tokens, dollars(found.cost), chance, *to_win


def _vendors(dossier: Dossier, machine: AlternativeDesign) -> tuple[str, ...]:
    point, found = machine.point, machine.point.figures
    price = dollars(machine.price_now) if dossier.purchase.campaign.buy else hourly(machine.price_now)
    power = (f"{power_limit(point.design):,.0f} W", megawatts(found.peak_power))
    run = (days(found.time_to_train), dollars(found.cost), f"{found.tokens_per_joule:.2f}")
    return _named(point), f"{point.design.gpus:,}", point.answers[0].job.stack.name, price, *power, *run


def _named(point: Point) -> str:
    """The machine, and which limits its best design misses."""
    missed = ", ".join(excess.limit for excess in point.excesses)
    return point.design.title + (f" (misses the {missed})" if missed else "")


def _choices(dossier: Dossier) -> Iterator[Section]:
    """What each choice runs, what moves its cost, how many spares pay, what to ask for."""
    drawn, best = charts(dossier), dossier.advised
    yield notes("Plans", _plans(dossier), on="screen")
    if best is None:
        return
    proven = "proven by search" if all(p.proven for p in dossier.purchase.front) else "not every one proven"
    cards = [block for number, point in enumerate(dossier.shown, 1) for block in _card(dossier, number, point)]
    fastest = f"The plan of each design is the fastest of all plans that fit, {proven} within the cost model."
    yield section("What each choice runs", fastest, *cards, drawn["phases"], on="page")
    yield section("What moves the cost of the advised design", ONE_AT_A_TIME, drawn["tornado"], on="page")
    own = best.design.spares is not None
    if len(dossier.standby) > 1:
        free = "" if own else " The figures of this report take the provider's spares to stand in, at no price."
        rows = [
            (
                f"{item.spares:,}{' (cheapest)' if item.pays else ''}",
                f"{item.figures.goodput:.1%}",
                f"{item.figures.waiting:.1%}",
                days(item.figures.time_to_train),
                dollars(item.figures.cost),
            )
            for item in dossier.standby
        ]
        yield section("How many spare nodes pay", SPARES + free, Table(STANDBY, rows), on="" if own else "page")
    yield notes("What to ask the vendor", vendor_questions(dossier), on="page")


def _card(dossier: Dossier, number: int, point: Point) -> tuple[Heading, Pairs]:
    """What one choice runs."""
    found, design = point.figures, point.design
    rows = []
    for answer in point.answers:
        if answer.plan is None or answer.estimate is None:
            continue
        plan, count = answer.plan, answer.plan.num_microbatches
        words = f"{plan_words(plan)}; " if number == 1 and answer is point.answers[0] else ""
        of = f", {answer.job.model.name}" if len(point.answers) > 1 else ""
        batches = f"{count:,} micro-batch{'es' * (count > 1)} of {plan.micro_batch}"
        step = f"{answer.estimate.step_time:.2f} s a step of {answer.job.global_batch:,} sequences"
        rows.append((f"Plan{of}", f"{plan.summary()}; {words}{batches}, {step}"))
    used, usable = (size / GB for size in memory_use(point))
    network = f"{design.network_bandwidth * 8 / 1e9:.0f} Gb/s per GPU, {design.taper:g}:1"
    per_token = f"{found.cost_per_token * 1e6:.2f} USD a million, {found.tokens_per_joule:.2f} tokens a joule"
    rows += [
        ("Bottleneck", bottleneck(point)),
        ("Memory", f"{used:.0f} of {usable:.0f} GB per GPU"),
        ("To order", found.lot.words()),
        ("Network", network),
        ("Per token", per_token),
        ("Tokens", f"{found.tokens / 1e12:.4g} trillion"),
        ("Checkpoint every", quantity(found.checkpoint_interval, "s")),
        ("GPU-hours", f"{found.gpu_seconds / 3.6e9:.2f} M"),
    ]
    advised = " — advised" if point is dossier.advised else ""
    return Heading(f"{number} {design.label()}{advised}"), Pairs(rows)


def _plans(dossier: Dossier) -> list[str]:
    """The plan of each design that is shown; the first one of a spelling has its short names in words."""
    lines, explained = [], set[str]()
    for point in dossier.shown:
        for answer in point.answers:
            if answer.plan is None:
                continue
            plan = answer.plan.summary()
            words = f" ({plan_words(answer.plan)})" if set(words_in([plan])) - explained else ""
            explained |= set(words_in([plan]))
            lines.append(f"{point.design.label()}{_run_of(point, answer)}: {plan}{words}")
    return lines


def _run_of(point: Point, answer: Answer) -> str:
    """The model of a plan, where a portfolio has several runs."""
    return f", {answer.job.model.title or answer.job.model.name}" if len(point.answers) > 1 else ""


def _backwards(dossier: Dossier) -> Iterator[Section]:
    """The questions asked backwards that have answers."""
    if dossier.fewest:
        heading = f"Fewest GPUs for {days(dossier.fewest[0].deadline)}"
        yield notes(heading, [fewest_sentence(item) for item in dossier.fewest])
    yield notes("Rent or buy", [rent_or_buy_sentence(item) for item in dossier.rent_or_buy])


def _examined(dossier: Dossier) -> Iterator[Section]:
    """What is beaten, whether the search has settled, and every design."""
    purchase, drawn = dossier.purchase, charts(dossier)
    beaten = [
        (
            item.point.design.label(),
            item.by.design.label(),
            *(
                f"{getattr(item.by.figures, name) / getattr(item.point.figures, name) - 1:+.0%}"
                for name in ("time_to_train", "cost", "energy")
            ),
        )
        for item in dossier.dominated[:MOST_ROWS]
    ]
    yield section("What is beaten, and by what", Table(BEATEN, beaten), on="page")
    if "trace" in drawn:
        share = "Share of the box below the worst values that the front covers, after each trial of the seeded search"
        yield section("Has the search settled?", f"{share} (seed {purchase.seed}).", drawn["trace"], on="page")
    rows: list[tuple[str, ...]] = [
        (
            point.design.label(),
            days(point.figures.time_to_train),
            dollars(point.figures.cost),
            megawatt_hours(point.figures.energy),
            f"{point.figures.mfu:.1%}",
            megawatts(point.figures.peak_power),
            f"{point.figures.racks:,}",
            ", ".join(excess.limit for excess in point.excesses),
        )
        for point in purchase.points[:MOST_ROWS]
    ]
    rows += [(item.design.label(), *[""] * 6, f"no plan: {item.reason}") for item in purchase.rejected[:MOST_ROWS]]
    time, cost, energy = purchase.reference
    box = f"{days(time)}, {dollars(cost)}, {megawatt_hours(energy)}"
    covered = f"The front covers {purchase.hypervolume:.4f} of the box up to {box}."
    few = f"The first {MOST_ROWS} of {len(purchase.points)}; --csv lists all. " * (len(purchase.points) > MOST_ROWS)
    yield section("Designs examined", few + covered, Table(EXAMINED, rows), on="page")


def _assumptions(dossier: Dossier, today: date | None) -> Iterator[Section]:
    """The uncertain inputs, those of the advised design where there is one, and the prices."""
    campaign = dossier.purchase.campaign
    inputs = own_assumptions(campaign, dossier.advised) if dossier.advised else campaign.assumptions
    rows = [
        (
            item.title,
            *(quantity(getattr(item.value, end), item.unit, item.name) for end in ("low", "mid", "high")),
            "; ".join(filter(None, (item.source, item.date, item.grade))),
        )
        for item in inputs
    ]
    per_gpu = "Price per GPU" if campaign.buy else "Rent per GPU"
    heads = columns(f"machine | {per_gpu} [text] | GPU limit [text] | power curve | row of the price book, others ~")
    quotes = [_quote(quote, today, dollars if campaign.buy else hourly) for quote in dossier.quotes]
    scope = "Training only: serving the model is out of the scope of this report."
    yield section("Assumptions", Table(INPUTS, rows), Table(heads, quotes), GRADES, scope, on="page")


def _quote(quote: Quote, today: date | None, write: Callable[[float], str]) -> tuple[str, ...]:
    row = quote.offer.trace()
    if quote.others:
        low, high = (f"{hourly(offer.value)} ({offer.provider or offer.row})" for offer in quote.others)
        row += f"; others {low} to {high}"
    if today and (age := old(quote.offer, today)):
        row += f"; {age}: ask again"
    curve = "measured" if quote.power_measured else "assumed: the H200's"
    return quote.title, write(quote.price), f"{quote.power_limit:,.0f} W", curve, row


def _texts(dossier: Dossier) -> list[str]:
    """The texts whose words are explained."""
    plans = [answer.plan.summary() for point in dossier.shown for answer in point.answers if answer.plan]
    return [*plans, *summary(dossier), "MFU goodput NIC Gb/s PUE oversubscription micro-batch bubble"]
