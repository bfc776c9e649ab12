"""`optimize scaling`: a job over GPU counts, data parallelism alone against the best plan at each."""

from __future__ import annotations

from typing import Any

import click

from optimizer.base.errors import InputError
from optimizer.base.units import is_count, parse
from optimizer.commands.options import help_text, listed
from optimizer.commands.output import Output
from optimizer.commands.request import job_of, request_of
from optimizer.commands.study.pinned import study_options
from optimizer.commands.values import TextType
from optimizer.commands.waiting import waiting


def measured_mfu(text: str) -> tuple[int, float]:
    """GPUs and the MFU that was measured on them: "512=19%"."""
    count, _, value = text.partition("=")
    try:
        mfu = parse(value, "1")
    except InputError:
        mfu = 0.0
    if not is_count(count) or not 0 < mfu <= 1:
        raise InputError(f"{text!r} is no measured MFU; write GPUs=MFU, such as 512=19%")
    return int(count), mfu


@click.command(help=help_text("scaling"))
@listed("scaling", mfu=TextType("gpus=mfu", measured_mfu))
@study_options
def scaling(*, gpus: tuple[int, ...], weak: bool, measured: tuple[tuple[int, float], ...], **options: Any) -> None:
    """Study the job at each count and print both series."""
    output, counts = Output.taken(options), sorted(set(gpus))
    job, assumed = job_of(request_of(options, gpus=counts[0]))
    from optimizer.answer.answer import job_dict
    from optimizer.studies.scaling import scaling as study_of
    from optimizer.studies.scaling_report import scaling_record, scaling_report

    with waiting(f"planning {len(counts):,} numbers of GPUs"):
        study = study_of(job, counts, "weak" if weak else "strong")
    records = [scaling_record(study, point) for point in study.points]
    content = {"job": job_dict(job), "points": records}
    output.show(content, assumed, records, lambda: scaling_report(study, assumed, dict(measured)))
