"""What the command of a tab answers, as its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import lru_cache
from typing import Any

import click

from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster
from optimizer.catalog.offers import Offer
from optimizer.commands.buy.pareto import bought, pareto, question_of_options
from optimizer.commands.study.fits import fits, study_of_options
from optimizer.page.plan.views.shown import fragment
from optimizer.page.studies.question import StudyQuestion
from optimizer.purchase.as_json import purchase_csv, purchase_json
from optimizer.purchase.campaign import Campaign, Design
from optimizer.purchase.designs.points import default_planner
from optimizer.purchase.dossier import Dossier
from optimizer.purchase.price.catalogue import purchase_price, rent_offer
from optimizer.purchase.report import purchase_report
from optimizer.reports.render.html import report_page
from optimizer.reports.report import Report
from optimizer.studies.fits_report import fits_report

MOST_DESIGNS = 256  # whose plans are searched for one question of the page
MOST_PLANS = 1024
FOLDED = 6  # the first sections, which decide; what they rest on is opened by a click
HOUR = 3600.0
TAKEN = {"board.html": "Report (HTML, offline)", "designs.json": "JSON", "designs.csv": "Designs (CSV)"}
PRICES: Mapping[str, Callable[[Campaign, Design], tuple[float, Offer]]] = {  # by the option that replaces them
    "rent": lambda campaign, design: ((offer := rent_offer(campaign, design)).value * HOUR, offer),
    "purchase": purchase_price,
}

planned = lru_cache(maxsize=MOST_PLANS)(default_planner)


def buy_view(asks: StudyQuestion) -> dict[str, Any]:
    """Which machines to take; the prices in force beside the fields that change them."""
    put = {kind: fragment("prices.html", "studies", prices=_prices(asks, kind)) for kind in PRICES}
    return _view(asks, _report(asks), TAKEN, put)


def board_page(asks: StudyQuestion) -> bytes:
    """The report for a board: a page of its own, of two in print."""
    return report_page(_report(asks), FOLDED).encode()


def designs_json(asks: StudyQuestion) -> bytes:
    """What `optimize pareto --json` prints, which `--since` holds a later report to."""
    dossier, assumed = _purchase(asks)
    return (purchase_json(dossier, asks.flags(), assumed) + "\n").encode()


def designs_csv(asks: StudyQuestion) -> bytes:
    """What `optimize pareto --csv` prints: every design."""
    return purchase_csv(_purchase(asks)[0]).encode()


def fits_view(asks: StudyQuestion) -> dict[str, Any]:
    """Which ways of training fit, by length of context."""
    study, assumed = study_of_options(options_of(fits, asks))
    return _view(asks, fits_report(study, assumed))


def _view(
    asks: StudyQuestion, report: Report, taken: Mapping[str, str] = {}, put: Mapping[str, str] = {}
) -> dict[str, Any]:
    return {
        "answer": fragment("study.html", "studies", asked=asks, report=report, taken=taken, folded=FOLDED),
        "title": report.title,
        "address": asks.address(),
        "put": dict(put),
        "pending": False,
    }


def options_of(command: click.Command, asks: StudyQuestion) -> dict[str, Any]:
    """The options as the command reads them; raises InputError with its message."""
    try:
        return command.make_context(asks.tab, list(asks.arguments)).params
    except click.ClickException as error:
        raise InputError(error.format_message()) from None


@lru_cache(maxsize=16)
def _purchase(asks: StudyQuestion) -> tuple[Dossier, Sequence[str]]:
    question = question_of_options(options_of(pareto, asks))
    return bought(question, planner=planned, most=MOST_DESIGNS), question.assumed


@lru_cache(maxsize=16)
def _report(asks: StudyQuestion) -> Report:
    return purchase_report(*_purchase(asks), asks.flags(), date.today())


def _prices(asks: StudyQuestion, kind: str) -> list[tuple[str, str, str, str]]:
    """Each machine: its field, the price that the visitor typed, and that of the price book [USD/h, USD]."""
    given, campaign = dict(asks.options), _purchase(asks)[0].purchase.campaign
    prices = []
    for name in filter(None, given.get("hardware", "").split(",")):
        design = Design(kind=name, cluster=load_cluster(name), gpus=1)
        try:
            value, offer = PRICES[kind](campaign, design)
            usual = f"{value:,.2f}, {offer.seller()}"
        except InputError:
            usual = "no offer is known"
        prices.append((f"{kind}.{name}", name, given.get(f"{kind}.{name}", ""), usual))
    return prices
