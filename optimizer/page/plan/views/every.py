"""Every view by its name: what a worker is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optimizer.page.plan.views.answer import answer_view

if TYPE_CHECKING:
    from optimizer.page.plan.workers import Task

VIEWS = {"answer": answer_view}


def result(task: Task) -> Any:
    """What a view says of a question; raises OptimizerError as the engine does."""
    return VIEWS[task.view](task.asked)
