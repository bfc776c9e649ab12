"""The price book on the screen."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date
from typing import TYPE_CHECKING

from optimizer.base.units import DAY
from optimizer.catalog.offers import COMMITMENTS, OFFERS, OLD, RENTS, Offer

if TYPE_CHECKING:
    from rich.table import Table

BOOK = f"presets/{OFFERS} "
HEADINGS = ("device", "offer", "term", "price", "date", "days", "grade", "row")


def price_table(offers: Sequence[Offer], taken: Collection[int], today: date) -> Table:
    """Offers by device and term, the cheapest first; * for those that are `taken` (by identity), ! for the old."""
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        caption=f"rows of {BOOK}",
        caption_justify="left",
    )
    for heading in HEADINGS:
        table.add_column(
            heading,
            justify="right" if heading in ("price", "days") else "left",
            overflow="fold",
            min_width={"offer": 10, "row": 8}.get(heading),
            no_wrap=heading in ("row", "device"),
            max_width={"term": 9, "offer": 24}.get(heading),
        )
    devices = list(dict.fromkeys(offer.device for offer in offers))
    terms = list(dict.fromkeys((*RENTS, *(offer.term for offer in offers))))
    order = sorted(offers, key=lambda item: (devices.index(item.device), terms.index(item.term), item.value))
    for offer in order:
        age = offer.age(today)
        table.add_row(
            offer.device,
            " ".join(part for part in (offer.provider, offer.offer) if part) or "quote",
            offer.term.replace("_", " ") + _binds(offer),
            _price(offer) + ("*" if id(offer) in taken else " "),
            offer.date,
            "" if age is None else f"{age:,}{' !' if age > OLD else '  '}",
            offer.grade,
            offer.row.removeprefix(BOOK),
        )
    return table


def _binds(offer: Offer) -> str:
    """The shortest time paid for, where it is not that of the term."""
    return (
        "" if offer.commitment == COMMITMENTS.get(offer.term, 0.0) else f", {offer.commitment / DAY:,.0f} days at least"
    )


def _price(offer: Offer) -> str:
    """USD per GPU and hour, or per GPU."""
    return f"{offer.value * 3600:,.2f} $/h" if offer.term in RENTS else f"{offer.value:,.0f} $"
