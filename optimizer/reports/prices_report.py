"""The price book."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date

from optimizer.base.units import DAY
from optimizer.catalog.offers import COMMITMENTS, OFFERS, OLD, RENTS, Offer
from optimizer.reports.report import Report, Table, columns, section

BOOK = f"presets/{OFFERS} "
COLUMNS = columns("device | offer ~ | term ~ | price [text] | date | days [text] | grade | row")


def prices_report(offers: Sequence[Offer], taken: Collection[int], today: date) -> Report:
    """Offers by device and term, the cheapest first; * for those that are `taken` (by identity), ! for the old."""
    devices = list(dict.fromkeys(offer.device for offer in offers))
    terms = list(dict.fromkeys((*RENTS, *(offer.term for offer in offers))))
    order = sorted(offers, key=lambda item: (devices.index(item.device), terms.index(item.term), item.value))
    rows = [
        (
            offer.device,
            " ".join(part for part in (offer.provider, offer.offer) if part) or "quote",
            offer.term.replace("_", " ") + _binds(offer),
            (f"{offer.value * 3600:,.2f} $/h" if offer.term in RENTS else f"{offer.value:,.0f} $")
            + ("*" if id(offer) in taken else " "),
            offer.date,
            "" if (age := offer.age(today)) is None else f"{age:,}{' !' if age > OLD else '  '}",
            offer.grade,
            offer.row.removeprefix(BOOK),
        )
        for offer in order
    ]
    marks = f"* taken where nothing else is asked for; ! older than {OLD} days"
    return Report(
        title="Prices",
        subject=(marks, f"rows of {BOOK.strip()}"),
        sections=(section("", Table(COLUMNS, rows)),),
        note="",
    )


def _binds(offer: Offer) -> str:
    """The shortest time paid for, where it is not that of the term."""
    return (
        "" if offer.commitment == COMMITMENTS.get(offer.term, 0.0) else f", {offer.commitment / DAY:,.0f} days at least"
    )
