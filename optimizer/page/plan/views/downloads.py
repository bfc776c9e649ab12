"""What a visitor takes away: the answer as JSON, its launch files in a zip, the report as a page."""

from __future__ import annotations

import zipfile
from io import BytesIO

from optimizer.base.errors import InputError
from optimizer.frameworks.export_folder import exported
from optimizer.page.plan.engine import answered
from optimizer.page.plan.question import PlanQuestion
from optimizer.reports.answer_json import json_text
from optimizer.reports.plan_report import plan_report
from optimizer.reports.render.html import report_page

REFUSED = "NOT-WRITTEN.txt"


def answer_json(asked: PlanQuestion) -> bytes:
    """What `optimize --json` prints for the question; `optimize check` reads it."""
    found = answered(asked, whole=True)
    return (json_text(found.answer, found.assumed) + "\n").encode()


def report(asked: PlanQuestion) -> bytes:
    """The report that `optimize --html` writes, with the days and dollars of the run."""
    found = answered(asked, whole=True)
    return report_page(plan_report(found.answer, found.assumed, found.budget, asked.flags())).encode()


def launch_folder(asked: PlanQuestion) -> bytes:
    """The files of `optimize --export` in a zip, those that cannot be had with the reason in a file of their own.

    Raises InputError when there is no plan or no file can be written.
    """
    found = exported(answered(asked).answer)
    if not found.texts:
        raise InputError("; ".join(dict.fromkeys(found.refused.values())))
    texts = dict(found.texts)
    if found.refused:
        texts[REFUSED] = "".join(f"{name}: {why}\n" for name, why in found.refused.items())
    written = BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(f"launch/{name}", text)
    return written.getvalue()
