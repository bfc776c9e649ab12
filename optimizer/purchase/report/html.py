"""A purchase as one offline HTML page that can be mailed and printed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING

from optimizer.base.units import GB
from optimizer.purchase.report.decision import COUNTED, tables
from optimizer.purchase.report.figures import charts
from optimizer.purchase.report.rows import bottleneck, memory_use
from optimizer.purchase.report.running import STANDBY_HEADINGS, standby_cells
from optimizer.purchase.report.units import (
    between,
    days,
    dollars,
    hourly,
    megawatt_hours,
    megawatts,
    quantity,
    tonnes,
)
from optimizer.purchase.report.words import (
    fewest_sentence,
    infeasible,
    old,
    question,
    rent_or_buy_sentence,
    summary,
    vendor_questions,
)
from optimizer.purchase.uncertainty.inputs import own_assumptions
from optimizer.reports.charts.chart import numeric
from optimizer.reports.glossary import words_in
from optimizer.reports.plan_words import plan_words
from optimizer.reports.render.html import Filters, rendered

if TYPE_CHECKING:
    from optimizer.purchase.campaign import Assumption
    from optimizer.purchase.dossier import Dossier

TEMPLATE = "pareto.html"
MOST_ROWS = 60
FILTERS: Filters = {
    "days": days,
    "dollars": dollars,
    "hourly": hourly,
    "megawatt_hours": megawatt_hours,
    "megawatts": megawatts,
    "tonnes": tonnes,
    "between_days": lambda value: between(value, days),
    "between_dollars": lambda value: between(value, dollars),
    "between_energy": lambda value: between(value, megawatt_hours),
    "bottleneck": bottleneck,
    "memory": lambda point: "{:.0f} of {:.0f} GB".format(*(size / GB for size in memory_use(point))),
    "quantity": quantity,
    "in_words": plan_words,
    "change": lambda ratio: f"{ratio - 1:+.0%}",
}


def purchase_html(
    dossier: Dossier, command: str, notes: Sequence[str] = (), made: str = "", today: date | None = None
) -> str:
    """The whole page; nothing in it is fetched from elsewhere. made: the day it was made, as text; today: as a date."""
    purchase = dossier.purchase
    return rendered(
        "optimizer.purchase.report",
        TEMPLATE,
        {
            **FILTERS,
            "old": lambda offer: old(offer, today) if today else "",
        },
        dossier=dossier,
        purchase=purchase,
        campaign=purchase.campaign,
        assumptions=_assumptions(dossier),
        question=question(purchase.campaign),
        summary=summary(dossier),
        infeasible=[] if purchase.front else infeasible(dossier),
        vendor=vendor_questions(dossier),
        machines=tables(dossier),
        counted=COUNTED,
        standby_headings=STANDBY_HEADINGS,
        standby=[standby_cells(item) for item in dossier.standby],
        words=words_in(_words(dossier)),
        owning=[rent_or_buy_sentence(item) for item in dossier.rent_or_buy],
        fewest=[fewest_sentence(item) for item in dossier.fewest],
        charts=charts(dossier),
        numeric=numeric,
        command=command,
        notes=notes,
        most=MOST_ROWS,
        made=made,
    )


def _words(dossier: Dossier) -> list[str]:
    """The texts of the page whose words are explained."""
    plans = [answer.plan.summary() for point in dossier.shown for answer in point.answers if answer.plan]
    return [*plans, *summary(dossier), "MFU goodput NIC Gb/s PUE oversubscription micro-batch bubble"]


def _assumptions(dossier: Dossier) -> tuple[Assumption, ...]:
    """The uncertain inputs, those of the advised design where there is one."""
    campaign = dossier.purchase.campaign
    return own_assumptions(campaign, dossier.advised) if dossier.advised else campaign.assumptions
