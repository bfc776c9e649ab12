"""Every view by its name: what a worker is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from optimizer.page.plan.question import PlanQuestion
from optimizer.page.plan.views.answer import answer_view, proven_view
from optimizer.page.plan.views.cells import map_view
from optimizer.page.plan.views.downloads import answer_json, launch_folder, report
from optimizer.page.plan.views.mine import mine_view
from optimizer.page.plan.views.paste import paste_view
from optimizer.page.plan.views.pipeline import pipeline_view
from optimizer.page.plan.views.runs import runs_view
from optimizer.page.plan.views.scaling import scaling_view
from optimizer.page.plan.views.sensitivity import sensitivity_view

if TYPE_CHECKING:
    from optimizer.page.plan.workers import PageTask

VIEWS: Mapping[str, Callable[[PlanQuestion], Any]] = {
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
}
PASTE = "paste"


def result(task: PageTask) -> Any:
    """What a view says of a question; raises OptimizerError as the engine does."""
    return paste_view(task.asked, task.body) if task.view == PASTE else VIEWS[task.view](task.asked)
