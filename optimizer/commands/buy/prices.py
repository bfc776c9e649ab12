"""`optimize prices`: what the price book holds, and which of it is too old to sign by."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optimizer.commands.options import book, help_text, listed
from optimizer.commands.output import show

if TYPE_CHECKING:
    from optimizer.catalog.offers import Offer


@click.command(help=help_text("prices"))
@listed("prices")
def prices(*, device: str, as_json: bool, html: Path | None, **asked: Any) -> None:
    """Choose the rows, print them."""
    from optimizer.catalog import load_cluster
    from optimizer.catalog.offers import OLD, RENTS
    from optimizer.catalog.rows import plain

    term, provider, priced = asked["term"], asked["provider"], book(asked)
    wanted = load_cluster(device).device.name if device else ""
    rows = [
        offer
        for offer in priced.offers
        if (not wanted or offer.device == wanted)
        and (not term or offer.term == term)
        and (not provider or plain(offer.provider) == plain(provider))
    ]
    today = date.today()
    devices = {offer.device for offer in rows if offer.term in RENTS}
    rents = filter(None, map(priced.rent, sorted(devices)))
    taken = {id(item) for rent in rents for item in rent.of or (rent,)}
    from optimizer.reports.prices_report import prices_report

    content = {"schema_version": 1, "offers": [_plain(o, today, id(o) in taken) for o in rows]}
    show(html, as_json, lambda: prices_report(rows, taken, today), lambda: content)
    stale = [offer for offer in rows if (offer.age(today) or 0) > OLD]
    if stale:
        click.echo(f"optimize: {len(stale)} of {len(rows)} prices are older than {OLD} days; ask again", err=True)
    undated = sum(offer.age(today) is None for offer in rows)
    if undated:
        click.echo(f"optimize: {undated} of {len(rows)} prices have no date", err=True)


def _plain(offer: Offer, today: date, taken: bool) -> dict[str, Any]:
    """One offer as plain values; money per GPU."""
    from optimizer.base.units import DAY
    from optimizer.catalog.offers import OLD, RENTS

    rent = offer.term in RENTS
    size, unit = (3600.0, "usd_per_gpu_hour") if rent else (1.0, "usd_per_gpu")
    age = offer.age(today)
    return {
        **{name: getattr(offer, name) for name in ("provider", "offer", "region", "device", "cluster", "term")},
        unit: offer.value * size,
        "low": offer.low * size,
        "high": offer.high * size,
        "sold": list(offer.sold),
        "commitment_days": offer.commitment / DAY,
        "source": offer.source,
        "date": offer.date,
        "age_days": age,
        "old": age is not None and age > OLD,
        **{name: getattr(offer, name) for name in ("grade", "note", "row")},
        "taken": taken,
    }
