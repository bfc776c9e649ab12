"""`optimize validate`: predictions against measured runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from optimizer.base.files import CSV
from optimizer.commands.options import help_text, listed
from optimizer.commands.output import OutFile, show, write_output
from optimizer.commands.waiting import waiting

if TYPE_CHECKING:
    from optimizer.calibration.runs import Run

PUBLISHED = "published.csv"


@click.command(help=help_text("validate"))
@listed("validate", out=OutFile(CSV))
def validate(runs: Path | None, given: Path | None, as_json: bool, html: Path | None, csv_file: Path | None) -> None:
    """Price every run, compare, print."""
    from optimizer.calibration.validation import validate as compare

    with waiting("pricing runs"):
        file, rows = measured_runs(runs)
        validation = compare(rows, measured_runs(given)[1] if given else ())
    from optimizer.calibration.validation_report import validation_json, validation_record, validation_report

    if csv_file is not None:
        from optimizer.reports.render.csv import csv_text

        write_output(csv_file, csv_text([validation_record(row) for row in validation.rows]), CSV)
    show(html, as_json, lambda: validation_report(validation, file), lambda: validation_json(validation))


def measured_runs(path: Path | None) -> tuple[str, list[Run]]:
    """The runs of a file, or the published ones, and what to call them."""
    from optimizer.calibration.runs import read_runs
    from optimizer.catalog.files import presets_folder

    if path is not None:
        return path.name, read_runs(path)
    return "published runs", read_runs(presets_folder() / PUBLISHED)
