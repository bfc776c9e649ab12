"""`optimize fits`: which ways of training a model fit on some cards, by length of context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from optimizer.commands.options import help_text, listed
from optimizer.commands.output import Output
from optimizer.commands.request import job_of, request_of
from optimizer.commands.study.pinned import study_options
from optimizer.commands.waiting import waiting

if TYPE_CHECKING:
    from optimizer.studies.fits import FitsStudy


@click.command(help=help_text("fits"))
@listed("fits")
@study_options
def fits(**options: Any) -> None:
    """Price every method at every length of context."""
    output = Output.taken(options)
    from optimizer.answer.answer import job_dict
    from optimizer.studies.fits_report import fits_record, fits_report

    study, assumed = study_of_options(options)
    records = [fits_record(study, fit) for fit in study.fits]
    content = {"job": job_dict(study.job), "fits": records}
    output.show(content, assumed, records, lambda: fits_report(study, assumed))


def study_of_options(options: Mapping[str, Any]) -> tuple[FitsStudy, tuple[str, ...]]:
    """The study that the options of the command ask for, and what was assumed."""
    from optimizer.catalog.stacks import TUNING
    from optimizer.catalog.usual_batch import TUNED
    from optimizer.job.method import WAYS
    from optimizer.studies.fits import LENGTHS
    from optimizer.studies.fits import fits as study_of

    context = options["context"]
    named = {"global_batch": TUNED * options["gpus"], "seq_len": (context or LENGTHS)[0], "stack": TUNING}
    job, assumed = job_of(request_of({**options, **{name: options[name] or value for name, value in named.items()}}))
    lengths = context or ((job.seq_len,) if options["seq_len"] else LENGTHS)
    methods = ((job.train, job.optimizer),) if options["train"] or job.optimizer else WAYS
    with waiting(f"pricing {len(methods):,} methods"):
        return study_of(job, lengths, methods), assumed
