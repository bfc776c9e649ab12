"""`optimize timeline`: a plan's pipeline, pass by pass."""

from __future__ import annotations

from typing import Any

import click

from optimizer.commands.options import help_text, listed
from optimizer.commands.output import Output
from optimizer.commands.request import job_of, request_of
from optimizer.commands.study.pinned import study_options, study_plan, warn
from optimizer.commands.waiting import waiting


@click.command(help=help_text("timeline"))
@listed("timeline")
@study_options
def timeline(*, best: bool, layout: str, **options: Any) -> None:
    """Simulate, print, draw. CSV has one row per pass, JSON one record per stage."""
    output = Output.taken(options)
    job, assumed = job_of(request_of(options))
    from optimizer.answer.answer import job_dict, plan_dict
    from optimizer.frameworks.megatron.layout import runs_layout
    from optimizer.studies.timeline import timeline_of
    from optimizer.studies.timeline_report import check_drawn, pass_records, timeline_records, timeline_report

    chosen = study_plan(job, best or not options["fix"])
    if output.html is not None:
        check_drawn(chosen[0])
    with waiting("simulating"):
        study = timeline_of(job, *chosen, best=layout == "best")
    warn(study.memory)
    content = {
        "job": job_dict(job),
        "plan": plan_dict(study.plan),
        "layout": runs_layout(study.layout.kinds),
        "layout_proven": study.layout.proven,
        **study.memory.to_dict(),
        "makespan_s": study.timeline.makespan,
        "closed_form_s": study.closed_form,
        "stages": timeline_records(study),
    }
    drawn = output.html is not None
    output.show(content, assumed, pass_records(study), lambda: timeline_report(study, assumed, drawn=drawn))
