"""The price book: what each provider asks for each kind of machine, from presets/offers.csv and from users' quotes."""

from __future__ import annotations

import csv
import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from optimizer.base.errors import InputError, InvalidFile
from optimizer.base.units import HUGE, YEAR, factor, is_count, parse
from optimizer.catalog.files import csv_rows, presets_folder
from optimizer.catalog.hardware import cluster_names, device_names, load_cluster
from optimizer.catalog.rows import plain

OFFERS = "offers.csv"
# The order in which rents are looked for when no term is named: what binds least first, what may end any day last.
RENTS = ("on_demand", "capacity_block", "reserved_1y", "reserved_3y", "spot")
SALES = ("purchase", "baseboard", "chip")
COMMITMENTS: Mapping[str, float] = {"reserved_1y": YEAR, "reserved_3y": 3 * YEAR}
USER = "user"
OLD = 180  # days after which a price is to be asked for again
HOUR, MOST_RENT, MOST_PRICE = 3600.0, 10_000.0, 10_000_000.0  # USD for a GPU-hour and a GPU: a price above is mistyped
# Optional numbers of an offer and their dimensions.
EXTRAS: Mapping[str, str] = {"commitment": "s", "lifetime": "s", "residual": "1", "pue": "1", "electricity": "USD/J"}
COLUMNS = (
    *("provider", "offer", "region", "device", "cluster", "term", "value", "low", "high", "unit", "gpus"),
    *("sold", "sold_as", *EXTRAS, "fabric", "source", "date", "grade", "note"),
)
_DATE = re.compile(r"(\d{4})(?:-(\d{2}))?(?:-(\d{2}))?$", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One price of one offer, for one GPU: rent [USD/s] or sale [USD]."""

    provider: str  # who sells
    offer: str  # what the provider calls it
    device: str  # what is sold
    term: str  # one of RENTS or SALES
    value: float  # the price
    low: float  # least price that its source leaves open
    high: float  # largest price that its source leaves open
    row: str  # file and line
    cluster: str = ""  # preset that describes this very machine, "" for any of that device
    region: str = ""  # where it is
    sold: tuple[int, ...] = ()  # sizes on offer [GPUs], () for any number of nodes
    sold_as: str = ""  # name of such a size
    commitment: float = 0.0  # shortest time paid for [s]
    lifetime: float | None = None  # as the next three of this offer, None where the assumptions hold [s]
    residual: float | None = None  # value at the end of it, over the price [1]
    pue: float | None = None  # power of the site over that of the machines [1]
    electricity: float | None = None  # price of energy [USD/J]
    fabric: bool = True  # a network for training comes with it
    source: str = ""  # where the price is written
    date: str = ""  # when it was written or read
    grade: str = ""  # as of Provenance, or USER
    note: str = ""  # what else is to be known
    of: tuple[Offer, ...] = ()  # the two that it lies between

    @property
    def own(self) -> bool:
        """Whether the user gave it."""
        return self.grade == USER

    def title(self) -> str:
        """Provider, offer and term in a few words: "AWS p5.48xlarge, on demand"."""
        name = " ".join(dict.fromkeys(word for word in (self.provider, self.offer) if word))
        return f"{name}, {self.term.replace('_', ' ')}"

    def seller(self) -> str:
        """Provider, term and date: "AWS, on demand, 2026-07-16"."""
        return ", ".join(filter(None, (self.provider or self.offer, self.term.replace("_", " "), self.date)))

    def trace(self) -> str:
        """The offer with its date, source and the row that it stands in."""
        source = f": {self.source}" if self.source else ""
        where = "".join(f", {part}" for part in (self.region, self.date) if part)
        return f"{self.title()}{where}{source} ({self.row})"

    @property
    def day(self) -> datetime.date | None:
        """Its date, the first of its month or year where no more is said; None without one."""
        return _first_day(self.date)

    def age(self, today: datetime.date) -> int | None:
        """Days since its date, None without one."""
        return (today - self.day).days if self.day else None


@cache
def load_offers() -> tuple[Offer, ...]:
    """Every row of presets/offers.csv.

    >>> book = PriceBook()
    >>> offer = book.rent("h100", "p5")
    >>> offer.title(), round(offer.value * 3600, 2), offer.row.startswith("presets/offers.csv line ")
    ('AWS p5.48xlarge, on demand', 6.88, True)
    """
    return _read(presets_folder() / OFFERS, f"presets/{OFFERS}", own=False)


@dataclass(frozen=True, kw_only=True)
class PriceBook:
    """Every offer that may be taken, the user's before the presets'."""

    offers: tuple[Offer, ...] = field(default_factory=load_offers)
    term: str = ""  # the only one to take, "" for all
    provider: str = ""  # the only one to take, "" for all
    first: str = ""  # the term to look for before all others, "" for that which binds least

    def rent(self, device: str, cluster: str = "", *, alone: bool = False) -> Offer | None:
        """The rent that holds for a device in a cluster, None where the book has none.

        The user's cheapest quote; else an offer of that very cluster; else the median over the providers of the device,
        each with its cheapest offer that comes with a network, of those that are not `old` where there are any. The
        terms go in the order of RENTS. For GPUs of one node `alone` no network is asked for.
        """
        key = device, cluster, alone
        if key not in self._rents:
            offers = (ranked[0] for term in self.terms if (ranked := self._ranked(term, device, cluster, alone)))
            self._rents[key] = next(offers, None)
        return self._rents[key]

    def sale(self, device: str, cluster: str = "") -> Offer | None:
        """The price that holds for buying a device in a cluster: a server or rack, else a baseboard, else a chip."""
        for term in SALES:
            fits = [item for item in self._of(term, device) if item.cluster in ("", cluster)]
            exact = [item for item in fits if item.own] or [item for item in fits if item.cluster or term == "chip"]
            if exact:
                return min(exact, key=lambda item: item.value)
        return None

    def rents(self, device: str, cluster: str = "") -> tuple[Offer, ...]:
        """Every rent of a device at the terms in question, the cheapest first; offers without a network left out."""
        offers = [item for term in self.terms for item in self._of(term, device) if item.fabric]
        return tuple(sorted(offers, key=lambda item: item.value))

    @cached_property
    def _rents(self) -> dict[tuple[str, str, bool], Offer | None]:
        """What was looked up already: a draw of many cases asks for the same price again and again."""
        return {}

    @property
    def terms(self) -> tuple[str, ...]:
        """The terms to look for, in their order."""
        if self.term:
            return (self.term,)
        return tuple(dict.fromkeys((self.first, *RENTS) if self.first else RENTS))

    @cached_property
    def day(self) -> datetime.date:
        """The day of the newest price of the presets, from which the ages of the others count."""
        return max(day for item in load_offers() if (day := item.day))

    def old(self, offer: Offer) -> bool:
        """Whether a price is OLD days older than the newest of the presets."""
        return (offer.age(self.day) or 0) > OLD

    def comparable(self, machines: Iterable[tuple[str, str]]) -> PriceBook:
        """The book that looks first for the term at which every machine (device, cluster) has a rent.

        Machines of which the user has a quote take that. Where no term has all, it is the book itself.
        """
        asked = list(machines)
        for term in self.terms:
            of_term = replace(self, term=term)
            if all(of_term.rent(*machine) or self._quoted(*machine) for machine in asked):
                return replace(self, first=term)
        return self

    def _quoted(self, device: str, cluster: str) -> bool:
        """Whether the user has a quote of a rent of this machine, at any term."""
        quotes = (item for item in self.offers if item.own and item.term in RENTS and item.device == device)
        return any(item.cluster in ("", cluster) for item in quotes)

    def _of(self, term: str, device: str) -> list[Offer]:
        wanted = plain(self.provider)
        every = [item for item in self.offers if item.term == term and item.device == device]
        free = term in SALES or not wanted
        return [item for item in every if free or item.own or plain(item.provider) == wanted]

    def _ranked(self, term: str, device: str, cluster: str, alone: bool) -> list[Offer]:
        offers = sorted(self._of(term, device), key=lambda item: item.value)
        mine = [item for item in offers if item.own and item.cluster in ("", cluster)]
        if mine or (not self.term and self._quoted(device, cluster)):
            return mine  # where a user has any quote of this machine, the book's own prices are not asked
        named = [item for item in offers if cluster and item.cluster == cluster]
        usual = [item for item in offers if (item.fabric or alone or self.provider) and not item.own]
        recent = [item for item in usual if not self.old(item)] or usual
        by_provider: dict[str, Offer] = {}
        for item in recent:
            by_provider.setdefault(item.provider, item)
        return named or median(list(by_provider.values()))

    def with_quotes(self, quotes: Sequence[Offer]) -> PriceBook:
        """The book with quotes in front."""
        return replace(self, offers=(*quotes, *self.offers))


def median(offers: Sequence[Offer]) -> list[Offer]:
    """The middle one of offers from the cheapest to the dearest, or one between the two in the middle; none of none.

    What lies between two is sold in the larger lots of the two, and as old as the older one.
    """
    if len(offers) % 2 or not offers:
        return list(offers[len(offers) // 2 :][:1])
    two = offers[len(offers) // 2 - 1], offers[len(offers) // 2]
    larger, older = max(two, key=lambda each: each.sold), min(two, key=lambda each: each.day or datetime.date.min)
    value = (two[0].value + two[1].value) / 2
    between = replace(
        larger,
        provider=" and ".join(item.provider for item in two),
        offer=f"{larger.device}, the middle",
        value=value,
        low=value,
        high=value,
        date=older.date,
        grade=max(item.grade for item in two),
        source="; ".join(item.source for item in two),
        row=" and ".join(item.row for item in two),
        of=two,
    )
    return [between]


def read_quotes(path: str | Path) -> tuple[Offer, ...]:
    """The user's quotes in a CSV of the same columns; device or cluster, term, value and unit are needed.

    Raises InvalidFile with every problem.
    """
    return _read(Path(path), str(path), own=True)


def book_of(path: Path | None = None, term: str = "", provider: str = "") -> PriceBook:
    """The presets' book, behind the quotes of a file where one is given.

    Raises InputError for a term or a provider that no row has.
    """
    quotes = read_quotes(path) if path else ()
    offers = (*quotes, *load_offers())
    if term and term not in RENTS:
        raise InputError(f"unknown term {term!r}; use {', '.join(RENTS)}")
    known = sorted({item.provider for item in offers if item.term in RENTS and item.provider})
    if provider and plain(provider) not in map(plain, known):
        raise InputError(f"no offer of {provider!r} is known; the price book has {', '.join(known)}")
    return PriceBook(offers=offers, term=term, provider=provider)


def quote(device: str, term: str, value: float, *, cluster: str = "", row: str) -> Offer:
    """A price that was given on the command line or in a study, for one GPU [USD/s or USD].

    Raises InputError for more than anybody asks.
    """
    _possible(term, value, f"{row}: ")
    return Offer(
        provider="",
        offer="your price",
        device=device,
        cluster=cluster,
        term=term,
        value=value,
        low=value,
        high=value,
        row=row,
        grade=USER,
        commitment=COMMITMENTS.get(term, 0.0),
    )


def _possible(term: str, value: float, where: str = "") -> None:
    """Raise InputError for a price of one GPU [USD/s or USD] that nobody asks."""
    size, most, what = (HOUR, MOST_RENT, "a GPU-hour") if term in RENTS else (1.0, MOST_PRICE, "a GPU")
    if value * size > most:
        raise InputError(f"{where}{value * size:,.6g} USD for {what} is above {most:,.0f}, more than anybody asks")


def _read(path: Path, name: str, *, own: bool) -> tuple[Offer, ...]:
    try:
        rows = csv_rows(path)
    except (OSError, ValueError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidFile(name, [f"cannot be read: {reason}"]) from None
    problems, offers = [], []
    unknown = sorted({column for _, cells in rows for column in cells} - set(COLUMNS))
    if not rows:
        problems.append("has no row; it needs a line of headings with device, term, value and unit, and rows under it")
    problems += [f"unknown column {column!r}; known: {', '.join(COLUMNS)}" for column in unknown if column]
    for line, cells in rows:
        try:
            offers.append(_offer(cells, f"{name} line {line}", own))
        except InputError as error:
            problems.append(f"line {line}: {error}")
    if problems:
        raise InvalidFile(name, problems)
    return tuple(offers)


def _offer(cells: Mapping[str, str], row: str, own: bool) -> Offer:
    get = cells.get
    term = plain(get("term", "")).replace("-", "_")
    if term not in (*RENTS, *SALES):
        raise InputError(f"term {get('term', '')!r} must be one of {', '.join((*RENTS, *SALES))}")
    cluster = plain(get("cluster", ""))
    if cluster and cluster not in cluster_names():
        raise InputError(f"no cluster preset {get('cluster')!r}; leave it empty to price the device in any cluster")
    device = _device(get("device", ""), cluster)
    dimension = "USD/s" if term in RENTS else "USD"
    gpus = _number("gpus", get("gpus", "") or "1", "1")
    if gpus != int(gpus):
        raise InputError(f"gpus {get('gpus')!r} must be a whole number: the GPUs that the price covers")
    unit = get("unit", "") or ("USD/h" if term in RENTS else "USD")
    given, size = factor(unit)
    if given != dimension:
        raise InputError(f"unit {unit!r} is in [{given}]; a price of term {term} is in [{dimension}], such as USD/h")
    value, low, high = (
        _number(name, get(name, "") or get("value", ""), "1") * size / gpus for name in ("value", "low", "high")
    )
    if not low <= value <= high:
        raise InputError(f"value {get('value')} must lie between low {get('low')} and high {get('high')}")
    _possible(term, high)
    texts: Any = {name: get(name, "") for name in ("provider", "offer", "region", "sold_as", "source", "date", "note")}
    extras: Any = {name: _number(name, get(name, ""), kind) for name, kind in EXTRAS.items() if get(name)}
    if extras.get("residual", 0.0) >= 1 or extras.get("pue", 1.0) < 1:
        raise InputError("residual must be below 1 (a share of the price), and pue at least 1")
    if get("date") and not _first_day(get("date", "")):
        raise InputError(f"date {get('date')!r} must be written as 2026-07-16, 2026-07 or 2026")
    sizes = get("sold", "").split()  # "72" or "4 8 16"
    if not all(is_count(word) and int(word) > 0 for word in sizes):
        raise InputError(
            f"sold {get('sold', '')!r} must be the GPUs that are sold together: 72, or several sizes as in 4 8 16"
        )
    return Offer(
        **texts,
        device=device,
        cluster=cluster,
        term=term,
        value=value,
        low=low,
        high=high,
        sold=tuple(sorted(map(int, sizes))),
        commitment=extras.pop("commitment", COMMITMENTS.get(term, 0.0)),
        fabric=get("fabric", "") != "none",
        grade=USER if own else get("grade", ""),
        row=row,
        **extras,
    )


def _device(name: str, cluster: str) -> str:
    """The device of a row: the one written, else that of its cluster."""
    if cluster:
        own = load_cluster(cluster).device.name
        if name and plain(name) != own:
            raise InputError(f"device {name!r} is not that of cluster {cluster}, which is {own}; leave one of them out")
        return own
    if not name:
        raise InputError("names neither a device nor a cluster, such as h100 or gb200-nvl72")
    return plain(name) if plain(name) in device_names() else load_cluster(name).device.name


def _first_day(text: str) -> datetime.date | None:
    """The first day of a date, month or year; None for what is none.

    >>> _first_day("2026-07"), _first_day("2026-02-31")
    (datetime.date(2026, 7, 1), None)
    """
    match = _DATE.match(text)
    try:
        return datetime.date(int(match[1]), int(match[2] or 1), int(match[3] or 1)) if match else None
    except ValueError:
        return None


def _number(name: str, text: str, dimension: str) -> float:
    try:
        value = parse(text, dimension)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    if not (0 < value < HUGE or (name == "residual" and value == 0)):
        raise InputError(f"{name} {text!r} must be above zero")
    return value
