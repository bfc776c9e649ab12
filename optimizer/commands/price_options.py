"""The options by which every command that shows money is told which prices hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from optimizer.catalog.offers import PriceBook

TERMS = ("on_demand", "capacity_block", "reserved_1y", "reserved_3y", "spot")
TERM = click.option(
    "--term",
    default=None,
    type=click.Choice(TERMS),
    callback=lambda ctx, param, value: value or "",
    metavar="TERM",
    help="on_demand, capacity_block, reserved_1y, reserved_3y or spot. [the first of these that the book holds]",
)
PROVIDER = click.option("--provider", default="", metavar="NAME", help="Whose offers to take, such as aws. [all]")
PRICES = click.option(
    "--prices",
    "prices_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Your quotes, before the price book: a CSV such as examples/quotes.csv.",
)


def book(prices_file: Path | None, term: str = "", provider: str = "") -> PriceBook:
    """The price book as the options say. Raises InputError for a file or a name that cannot be used."""
    from optimizer.catalog.offers import book_of

    return book_of(prices_file, term, provider)
