"""`optimize sensitivity`: what binds the best plan, how alone it is, and what is left after losing nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from optimizer.base.errors import Infeasible
from optimizer.commands.options import help_text, listed
from optimizer.commands.output import show
from optimizer.commands.request import check_complete, job_of, request_of
from optimizer.commands.waiting import waiting


@click.command(help=help_text("sensitivity"))
@listed("sensitivity")
def sensitivity(*, lost_nodes: tuple[int, ...] | None, as_json: bool, html: Path | None, **options: Any) -> None:
    """Plan, vary, print."""
    check_complete(options, "optimize sensitivity")
    job, assumed = job_of(request_of(options))
    from optimizer.search.why.resilience import losses
    from optimizer.search.why.what_binds import sensitivity as effects_of

    with waiting("planning variations"):
        lost = losses(job, lost_nodes) if lost_nodes else ()
        effects = effects_of(job)
    if effects is None:
        raise Infeasible("no plan satisfies every rule; `optimize` with the same options says which conflict")
    from optimizer.reports.render.json import json_text
    from optimizer.reports.sensitivity_report import sensitivity_report

    content = {**effects.to_dict(), "losses": [loss.to_dict() for loss in lost], "assumptions": list(assumed)}
    show(html, as_json, lambda: sensitivity_report(effects, lost, assumed), lambda: json_text(content))
