"""A purchase as one offline HTML page that can be mailed and printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from optimizer.purchase.report.figures import charts
from optimizer.purchase.report.rows import bottleneck, memory_use
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
    parity_sentence,
    question,
    rent_or_buy_sentence,
    summary,
    vendor_questions,
)
from optimizer.reports.page import Filters, rendered
from optimizer.units import GB

if TYPE_CHECKING:
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
    "change": lambda ratio: f"{ratio - 1:+.0%}",
}


def purchase_html(dossier: Dossier, command: str, notes: Sequence[str] = (), made: str = "") -> str:
    """The whole page; nothing in it is fetched from elsewhere. made: the day it was made, as text."""
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    purchase = dossier.purchase
    return rendered(
        "optimizer.purchase.report",
        TEMPLATE,
        FILTERS,
        dossier=dossier,
        purchase=purchase,
        campaign=purchase.campaign,
        question=question(purchase.campaign),
        summary=summary(dossier),
        infeasible=[] if purchase.front else infeasible(dossier),
        vendor=vendor_questions(dossier),
        parities=[parity_sentence(item) for item in dossier.parities],
        owning=[rent_or_buy_sentence(item) for item in dossier.rent_or_buy],
        fewest=[fewest_sentence(item) for item in dossier.fewest],
        charts={name: Markup(fragment) for name, fragment in charts(dossier).items()},
        plotly=Markup(get_plotlyjs()),
        command=command,
        notes=notes,
        most=MOST_ROWS,
        made=made,
    )
