"""What the command of a tab answers, as its report."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from functools import lru_cache
from typing import Any

import click

from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster
from optimizer.catalog.offers import book_of
from optimizer.commands.buy.pareto import bought, pareto, question_of_options
from optimizer.commands.study.fits import fits, study_of_options
from optimizer.page.plan.views.shown import fragment
from optimizer.page.studies.question import RENT, StudyQuestion
from optimizer.purchase.designs.points import default_planner
from optimizer.purchase.report import purchase_report
from optimizer.reports.render.html import report_page
from optimizer.reports.report import Report
from optimizer.studies.fits_report import fits_report

MOST_DESIGNS = 256  # whose plans are searched for one question of the page
MOST_PLANS = 1024
FOLDED = 6  # the first sections, which decide; what they rest on is opened by a click
HOUR = 3600.0

planned = lru_cache(maxsize=MOST_PLANS)(default_planner)


def buy_view(asks: StudyQuestion) -> dict[str, Any]:
    """Which machines to take; the prices in force beside the fields that change them."""
    prices = fragment("prices.html", "studies", prices=_prices(asks))
    return _view(asks, _purchase(asks), take="board.html", put={"prices": prices})


def board_page(asks: StudyQuestion) -> bytes:
    """The report for a board: a page of its own, of two in print."""
    return report_page(_purchase(asks), FOLDED).encode()


def fits_view(asks: StudyQuestion) -> dict[str, Any]:
    """Which ways of training fit, by length of context."""
    study, assumed = study_of_options(_options(fits, asks))
    return _view(asks, fits_report(study, assumed))


def _view(asks: StudyQuestion, report: Report, take: str = "", put: Mapping[str, str] = {}) -> dict[str, Any]:
    return {
        "answer": fragment("study.html", "studies", asked=asks, report=report, take=take, folded=FOLDED),
        "title": report.title,
        "address": asks.address(),
        "put": dict(put),
        "pending": False,
    }


def _options(command: click.Command, asks: StudyQuestion) -> dict[str, Any]:
    """The options as the command reads them; raises InputError with its message."""
    try:
        return command.make_context(asks.tab, list(asks.arguments)).params
    except click.ClickException as error:
        raise InputError(error.format_message()) from None


@lru_cache(maxsize=16)
def _purchase(asks: StudyQuestion) -> Report:
    options = _options(pareto, asks)
    question = question_of_options(options)
    dossier = bought(question, planner=planned, most=MOST_DESIGNS)
    return purchase_report(dossier, question.assumed, asks.flags(), date.today())


def _prices(asks: StudyQuestion) -> list[tuple[str, str, str]]:
    """Each machine with the rent that the visitor typed, and the price book's [USD/h]."""
    given = dict(asks.options)
    book = book_of(None, given.get("term", ""), given.get("provider", ""))
    prices = []
    for name in filter(None, given.get("hardware", "").split(",")):
        cluster = load_cluster(name)
        offer = book.rent(cluster.device.name, cluster.name)
        usual = f"{offer.value * HOUR:.2f}, {offer.title()}" if offer else "no offer is known"
        prices.append((name, given.get(f"{RENT}.{name}", ""), usual))
    return prices
