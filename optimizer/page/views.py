"""Every view by its name, which a worker is asked for, and what a visitor takes away: JSON, launch files, a report."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

from optimizer.base.errors import InputError
from optimizer.frameworks.export_folder import exported
from optimizer.page.improve.view import improve_view
from optimizer.page.learn.ledger import class_page, entry_view, takeaways_view
from optimizer.page.learn.panel import panel_view, reveal_view
from optimizer.page.plan.engine import answered
from optimizer.page.plan.question import PlanQuestion
from optimizer.page.plan.views.answer import answer_view, proven_view
from optimizer.page.plan.views.compared import mine_view, runs_view
from optimizer.page.plan.views.map import map_view
from optimizer.page.plan.views.studies import pipeline_view, scaling_view, sensitivity_view
from optimizer.page.studies.batch import batch_view
from optimizer.page.studies.view import board_page, buy_view, designs_csv, designs_json, fits_view
from optimizer.page.task import PageTask
from optimizer.reports.answer_json import json_text
from optimizer.reports.plan_report import plan_report
from optimizer.reports.render.html import report_page

REFUSED = "NOT-WRITTEN.txt"


def answer_json(asked: PlanQuestion) -> bytes:
    """What `optimize --json` prints for the question; `optimize check` reads it."""
    whole = answered(asked, whole=True)
    return (json_text(whole.answer, whole.assumed) + "\n").encode()


def report(asked: PlanQuestion) -> bytes:
    """The report that `optimize --html` writes, with the days and dollars of the run."""
    whole = answered(asked, whole=True)
    return report_page(plan_report(whole.answer, whole.assumed, whole.budget, asked.flags())).encode()


def launch_folder(asked: PlanQuestion) -> bytes:
    """The files of `optimize --export` in a zip, those that cannot be had with the reason in a file of their own.

    Raises InputError when there is no plan or no file can be written.
    """
    launch = exported(answered(asked).answer)
    if not launch.texts:
        raise InputError("; ".join(dict.fromkeys(launch.refused.values())))
    texts = dict(launch.texts)
    if launch.refused:
        texts[REFUSED] = "".join(f"{name}: {why}\n" for name, why in launch.refused.items())
    written = BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(f"launch/{name}", text)
    return written.getvalue()


VIEWS: Mapping[str, Callable[..., Any]] = {
    "answer": answer_view,
    "proven": proven_view,
    "mine": mine_view,
    "map": map_view,
    "pipeline": pipeline_view,
    "scaling": scaling_view,
    "sensitivity": sensitivity_view,
    "runs": runs_view,
    "answer.json": answer_json,
    "report.html": report,
    "launch.zip": launch_folder,
    "improve": improve_view,
    "buy": buy_view,
    "board.html": board_page,
    "designs.json": designs_json,
    "designs.csv": designs_csv,
    "fits": fits_view,
    "batch": batch_view,
    "panel": panel_view,
    "reveal": reveal_view,
    "entry": entry_view,
    "takeaways": takeaways_view,
    "class.html": class_page,
}


def result(task: PageTask) -> Any:
    """What a view says of a question; raises OptimizerError as the engine does."""
    return VIEWS[task.view](task.asked, *([task.body] if task.body else []))
