"""From what a buyer typed to a campaign and a grid of designs: lists or ranges of design variables, and deliveries."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optimizer.base.errors import InputError, InvalidFile
from optimizer.base.units import amount, parse, whole
from optimizer.catalog.economics import default_price
from optimizer.catalog.readers.text import read_text
from optimizer.catalog.usual_batch import EACH, LEAST, PUBLISHED
from optimizer.commands.pins import merged
from optimizer.commands.request import Request, job_of
from optimizer.commands.values import AT_MOST, money
from optimizer.commands.waiting import progress
from optimizer.job.fields import STACKS
from optimizer.job.job import QUANTISED, Limits

if TYPE_CHECKING:
    from optimizer.catalog.offers import PriceBook
    from optimizer.job.stack import Stack
    from optimizer.purchase.campaign import Campaign, Design, Requirements, TrainingRun
    from optimizer.purchase.designs.outer import Grid
    from optimizer.purchase.staged import Delivery

PORTFOLIO_COLUMNS = ("model", "tokens", "seq_len", "global_batch", "start", "by")
DATES = ("start", "by")
Axis = tuple[tuple[float, ...], tuple[float, float] | None]  # values, and a range for the continuous search
Options = Mapping[str, Any]  # values of the options of `optimize pareto`, by name


def amount_in(unit: str, dimension: str) -> Callable[[str], float]:
    """What reads a quantity [SI], plain numbers in a unit.

    >>> amount_in("Gb/s", "B/s")("400"), amount_in("Gb/s", "B/s")("50 GB/s"), amount_in("GB", "B")("80GiB")
    (50000000000.0, 50000000000.0, 85899345920.0)
    """
    return lambda text: parse(f"{text} {unit}" if text.replace(".", "", 1).isdigit() else text, dimension)


AXES: Mapping[str, tuple[Callable[[str], float], float]] = {  # how a value is read, and the usual one
    **{"nic": (amount_in("Gb/s", "B/s"), 0.0), "oversubscription": (float, 0.0), "hbm": (amount_in("GB", "B"), 0.0)},
    **{"power_cap": (lambda text: parse(text, "1"), 1.0), "batch_factor": (float, 1.0)},
}


@dataclass(frozen=True, kw_only=True)
class PurchaseQuestion:
    """What a buyer asks."""

    campaign: Campaign
    grid: Grid  # of its discrete designs
    ranges: dict[str, tuple[float, float]]  # of its continuous ones
    kinds: tuple[Design, ...]  # the machines, one GPU of each
    assumed: tuple[str, ...]  # sentences on what was not typed
    deliveries: tuple[Delivery, ...] = ()  # GPUs by date, where they come in stages


def question_of(asked: Options, bounds: Requirements) -> PurchaseQuestion:
    """The question a buyer asked.

    Args:
        asked: values of the options of `optimize pareto`, by name.
        bounds: what the buyer has at most.

    Raises:
        InputError: for a name, number or combination that cannot be used.
    """
    from optimizer.catalog import load_cluster, load_stack
    from optimizer.purchase.assumptions import assumptions
    from optimizer.purchase.campaign import Campaign, Design, counts
    from optimizer.purchase.designs.outer import Grid
    from optimizer.purchase.staged import totals

    names = dict.fromkeys(name.strip() for name in asked["hardware"].split(",") if name.strip())
    if not names:
        raise InputError("--hardware names no machine; write for example h100,gb200-nvl72")
    kinds = tuple(Design(kind=name, cluster=load_cluster(name), gpus=1) for name in names)
    known = {kind.kind for kind in kinds}
    if unknown := [name for name in (*asked["rent"], *asked["purchase"], *bounds.on_hand) if name not in known]:
        raise InputError(f"{unknown[0]!r} is priced or counted but not in --hardware {asked['hardware']}")
    most = asked["gpus"].strip().lower()
    at_most = most.startswith(AT_MOST)
    deliveries = stages(asked["stages"]) if asked["stages"] else ()
    gpus = totals(deliveries) if deliveries else counts(most.removeprefix(AT_MOST))
    if at_most and len(gpus) > 1:
        raise InputError(f"--gpus {asked['gpus']} must name one number: at-most:1000")
    if (portfolio := asked["portfolio"]) is not None:
        runs = _portfolio(portfolio, kinds[0].kind)
        assumed = [f"runs of {portfolio} one after the other on the same machines"]
    else:
        run, assumed = _run(asked["model"], asked["tokens"], asked["seq_len"], asked["global_batch"], kinds[0].kind)
        runs = (run,)
    axes = {name: axis(f"--{name.replace('_', '-')}", asked[name], read, usual) for name, (read, usual) in AXES.items()}
    domains, ranged = axis("--scale-up", asked["scale_up"], float, 0.0)
    if ranged:
        raise InputError(f"--scale-up {asked['scale_up']} must be a list of GPU counts such as 8,72")
    campaign = Campaign(
        runs=runs,
        stack=load_stack(asked["stack"]) if asked["stack"] else None,
        assumptions=assumptions(asked["buy"], asked["assume"]),
        bounds=bounds,
        buy=asked["buy"],
        book=_book(asked, kinds),
        spares=_spares(asked),
        bubble=asked["bubble_ceiling"] or Limits.bubble,
        flex=asked["flex"] or 0.0,
        **merged(asked["fix"]),
    )
    campaign = _knowing(campaign, kinds, asked["runs"])
    listed: Any = {f"{name}s": values for name, (values, _) in axes.items()}
    grid = Grid(
        kinds=kinds,
        gpus=gpus,
        dtypes=tuple(part.strip() for part in asked["dtype"].split(",")),
        **listed,
        scale_ups=tuple(int(domain) for domain in domains),
    )
    ranges = {name: values[1] for name, values in axes.items() if values[1]}
    if deliveries and (ranges or sum(1 for _ in grid.designs()) > len(kinds) * len(gpus)):
        raise InputError("--stages asks about one design of each machine: give --nic, --dtype and the like one value")
    if at_most:
        best, lines = _best_counts(campaign, kinds, gpus[0], grid.dtypes[0])
        grid, assumed = replace(grid, best_counts=best), [*assumed, *lines]
    return PurchaseQuestion(
        campaign=campaign,
        grid=grid,
        ranges=ranges,
        kinds=kinds,
        assumed=tuple(assumed) + _notes(asked, axes),
        deliveries=deliveries,
    )


def _knowing(campaign: Campaign, kinds: tuple[Design, ...], names: str) -> Campaign:
    """The campaign with what the user's own runs say of the software of each machine."""
    if not names:
        return campaign
    from optimizer.commands.own_runs import with_known_runs

    known: dict[str, Stack] = {}
    own = None
    for kind in kinds:
        device = kind.cluster.device
        known[device.name], own = with_known_runs(campaign.software(device), names, kind.cluster.name)
    return replace(campaign, known=known, own_runs=own)


def _spares(asked: Options) -> int | None:
    """Spare nodes as asked for; None where the provider puts in others."""
    from optimizer.purchase.campaign import AUTO

    if not asked["spares"] or asked["spares"].strip().lower() == "auto":
        return AUTO if asked["spares"] or asked["buy"] else None
    try:
        return whole(asked["spares"])
    except InputError:
        problem = f"--spares {asked['spares']!r} must be a number of nodes, or auto for as many as pay"
        raise InputError(problem) from None


def _best_counts(
    campaign: Campaign, kinds: tuple[Design, ...], most: int, dtype: str
) -> tuple[dict[str, int], list[str]]:
    """The best number of GPUs of each kind with at most so many paid for, by the throughput of the first run."""
    from optimizer.purchase.price.catalogue import paid
    from optimizer.studies.best_use import best_use, counts_at_most

    best, lines = {}, []
    for kind in kinds:
        counts = counts_at_most(most, kind.cluster.gpus_per_node)
        designs = [replace(kind, gpus=count, dtype=dtype) for count in counts]
        within = [design for design in designs if paid(campaign, design).gpus <= most]
        if not within:
            raise InputError(f"--gpus at-most:{most}: {kind.title} is not sold in lots of so few GPUs")
        with progress(f"numbers of {kind.title}", len(within)) as step:
            use = best_use([design.job(campaign, campaign.runs[0]) for design in within], step)
        best[kind.kind] = use.best.job.gpus
        words = use.words() or f"{use.best.job.gpus:,} GPUs are the best of {len(use.tried)} counts tried"
        lines.append(f"{kind.title}, at most {most:,}: {words}")
    return best, lines


def _book(asked: Options, kinds: tuple[Design, ...]) -> PriceBook:
    """The price book behind the prices that were typed and the quotes of --prices, at one term for all machines."""
    from optimizer.catalog.offers import book_of, quote

    clusters = {kind.kind: kind.cluster for kind in kinds}
    typed = [
        ("--rent", asked["term"] or "on_demand", asked["rent"], 3600.0),
        ("--purchase", "purchase", asked["purchase"], 1.0),
    ]
    book, quotes = book_of(asked["prices_file"], asked["term"], asked["provider"]), []
    for option, term, given, each in typed:
        for name, text in given.items():
            device, cluster = clusters[name].device.name, clusters[name].name
            try:
                value = money(text) / each
            except InputError as error:
                raise InputError(f"{option} {name}={text}: {error}") from None
            offer = quote(device, term, value, cluster=cluster, row=f"{option} {name}={text}")
            # A price that is typed changes no size: racks and slices stay whole.
            usual = book.rent(device, cluster) if term != "purchase" else None
            quotes.append(replace(offer, sold=usual.sold, sold_as=usual.sold_as) if usual else offer)
    book = book.with_quotes(quotes)
    if asked["buy"]:
        return book
    return book.comparable((kind.cluster.device.name, kind.cluster.name) for kind in kinds)


def _run(
    model: str, tokens: float, seq_len: int | None, batch: int | None, cluster: str
) -> tuple[TrainingRun, list[str]]:
    """One run, what is missing filled in as `optimize` itself fills it."""
    from optimizer.purchase.campaign import TrainingRun

    job, assumed = job_of(
        Request(
            model=model, gpus=8, cluster=cluster, stack="megatron-core", seq_len=seq_len, global_batch=batch, limits={}
        )
    )
    if tokens < job.tokens:
        raise InputError(f"{tokens:g} tokens are less than one step of {job.tokens:,}; --tokens counts the whole run")
    published = job.model.name in PUBLISHED
    run = TrainingRun(
        model=job.model,
        tokens=tokens,
        seq_len=job.seq_len,
        global_batch=job.global_batch,
        assumed=batch is None,
        grows=batch is None and not published,
    )
    lines = [line for line in assumed if "--seq-len" in line or ("--global-batch" in line and published)]
    if run.grows:
        lines.append(
            f"global batch of {LEAST // 2**20}Mi tokens up to {LEAST // EACH:,} GPUs, then {EACH:,} tokens a GPU, as "
            "published runs' grew; no more tokens are counted for it (--global-batch)"
        )
    return run, lines


def _portfolio(path: Path, cluster: str) -> tuple[TrainingRun, ...]:
    """The runs of a CSV with the columns model and tokens, and seq_len, global_batch, start and by where wanted.

    start and by are the earliest start and the latest end.
    """
    try:
        lines = list(csv.DictReader(read_text(path).splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidFile(path, [f"cannot be read: {error}"]) from None
    if not lines or not {"model", "tokens"} <= set(lines[0]) or set(lines[0]) - set(PORTFOLIO_COLUMNS):
        raise InvalidFile(path, [f"needs a line of headings with model and tokens, of {', '.join(PORTFOLIO_COLUMNS)}"])
    runs, problems = [], []
    for number, line in enumerate(lines, start=2):
        wrong = [f"{name} is missing" for name in ("model", "tokens") if not line[name]]
        values = {}
        for name in PORTFOLIO_COLUMNS[1:]:
            try:
                values[name] = _cell(name, line.get(name) or "")
            except InputError as error:
                wrong.append(str(error))
        problems += [f"line {number}: {problem}" for problem in wrong]
        if wrong:
            continue
        try:
            seq_len, batch = (int(values[name]) or None for name in PORTFOLIO_COLUMNS[2:4])
            run = _run(line["model"], values["tokens"], seq_len, batch, cluster)[0]
            if values["by"] and values["by"] <= values["start"]:
                raise InputError("it must start before the date by which it must end")
            runs.append(replace(run, start=values["start"], by=values["by"] or run.by))
        except InputError as error:
            problems.append(f"line {number}: {error}")
    if problems:
        raise InvalidFile(path, problems)
    return tuple(runs)


def _cell(name: str, text: str) -> float:
    """The number in a cell, 0 where it is blank. Raises InputError for what is none."""
    if not text:
        return 0.0
    try:
        number = parse(text, "s") if name in DATES else amount(text) if name == "tokens" else float(whole(text))
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    if name in DATES and text.strip()[-1:].isdigit() and number:
        raise InputError(f"{name} {text!r} has no unit; write the days after the start as 60d")
    if number < 0 or (number == 0 and name != "start"):
        raise InputError(f"{name} must be above 0, but got {text!r}")
    return number


def _notes(asked: Options, axes: Mapping[str, Axis]) -> tuple[str, ...]:
    """What a reader must know about this very question."""
    from optimizer.purchase.wording import texts

    shared = default_price("shared_error").value
    holds = {
        "one_stack": asked["stack"],
        "usual_stacks": not asked["stack"],
        "published_prices": not (asked["rent"] or asked["purchase"] or asked["prices_file"]),
        "provider_spares": not (asked["buy"] or asked["spares"]),
        "shared_errors": asked["hardware"].count(","),
        "power_caps": asked["power_cap"],
        "other_batches": asked["batch_factor"],
        "other_memory": axes["hbm"] != ((0.0,), None),
        "other_network": axes["nic"] != ((0.0,), None) and not asked["buy"],
    }
    known = {"stack": asked["stack"], "stacks": STACKS, "shared": shared}
    notes = [text.format(**known) for name, text in texts("assumed").items() if holds[name]]
    return (
        *notes,
        *(f"{name} is taken to need no more tokens than bf16" for name in QUANTISED if name in asked["dtype"]),
    )


def axis(option: str, text: str, read: Callable[[str], float], usual: float) -> Axis:
    """Values of a design variable, and its bounds when they were written as a range for the continuous search.

    Raises InputError for a value that cannot be read, or bounds that do not rise.

    >>> axis("--nic", "200,400", float, 0.0), axis("--nic", "200:800", float, 0.0), axis("--nic", "", float, 0.0)
    (((200.0, 400.0), None), ((0.0,), (200.0, 800.0)), ((0.0,), None))
    """
    if not text:
        return (usual,), None
    try:
        if ":" in text:
            low, high = (read(part.strip()) for part in text.split(":"))
            if not 0 < low < high:
                raise ValueError
            return (usual,), (low, high)
        values = tuple(read(part.strip()) for part in text.split(","))
        if min(values) <= 0:
            raise ValueError
    except ValueError:
        raise InputError(f"{option} {text!r} is neither a list such as 1,2 nor a rising range such as 1:2") from None
    return values, None


def stages(text: str) -> tuple[Delivery, ...]:
    """Deliveries that a buyer wrote, the first of them now. Raises InputError for anything else.

    >>> [(item.gpus, item.at / 86400) for item in stages("2048,2k@180d")]
    [(2048, 0.0), (2048, 180.0)]
    """
    from optimizer.purchase.staged import Delivery

    deliveries = []
    try:
        for part in text.split(","):
            count, at, date = part.strip().partition("@")
            if at and date.strip()[-1:].isdigit():
                raise ValueError
            deliveries.append(Delivery(gpus=whole(count), at=parse(date, "s") if at else 0.0))
        dates = [item.at for item in deliveries]
        if min(item.gpus for item in deliveries) < 1 or dates[0] != 0 or sorted(set(dates)) != dates:
            raise ValueError
    except (ValueError, InputError):
        raise InputError(
            f"--stages {text!r} is no list of deliveries; write 2048,2048@180d: so many GPUs now, so many more after "
            "180 days"
        ) from None
    return tuple(deliveries)
