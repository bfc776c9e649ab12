"""The tabs, in the order of the header."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optimizer.page.plan.controls import form_values
from optimizer.page.plan.question import PlanQuestion, asked
from optimizer.page.routes import Pairs, Tab

LATER = {
    "mine": "Mine against the best, term by term",
    "map": "TP × PP: the best plan of each cell",
    "pipeline": "The pipeline, pass by pass",
    "scaling": "MFU against GPUs",
    "sensitivity": "What more of each input buys",
    "runs": "The nearest measured runs",
}


def _plan(pairs: Pairs, question: PlanQuestion, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The controls of the Plan tab, and which of its views are open."""
    shown = [value for name, value in pairs if name == "show"]
    return {
        "later": {name: (title, name in shown) for name, title in LATER.items()},
        "form": form_values(question, answer.get("values"), answer.get("steps")),
    }


def tabs_of(sheet: Path | None) -> tuple[Tab, ...]:
    """Every tab; `sheet` gathers what students answer."""
    plan = Tab(
        name="plan",
        title="Plan",
        about="the proven best plan of a model on a cluster",
        package="optimizer.page.plan",
        asked=asked,
        shown=_plan,
        opening=("answer", "proven"),
        later=tuple(LATER),
        taken=("answer.json", "report.html", "launch.zip"),
    )
    return (plan,)
