"""How accurate the shipped stacks are: errors on the published runs by source, and on the runs of each fit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from optimizer.calibration.runs import read_runs
from optimizer.calibration.validation import Score, Validation, validate
from optimizer.calibration.validation_report import TIME_COLUMNS, coverage_line, headline, time_cells
from optimizer.catalog import load_stack, stack_names
from optimizer.catalog.files import presets_folder
from optimizer.job.stack import Stack
from optimizer.reports.report import cell

PAGE = "accuracy.md"
START, END = "<!-- validation: start -->", "<!-- validation: end -->"
LEFT_OUT = "left_out_mape"
EXPLAINED = """
The stacks on all clean runs that they were fitted to, and with groups of like runs (a model on a device; where these
are few, of one length and number of GPUs) left out of the fit. Of the parameters those that the runs tell are fitted,
some are fixed as facts about the software or taken from another stack, and the others are at their defaults;
`optimize presets show STACK` says which and why.
"""


def sections() -> list[str]:
    """The accuracy of the shipped stacks on the published runs, as Markdown between the markers."""
    return [section(published(), [load_stack(name) for name in stack_names()])]


@cache
def published() -> Validation:
    """The predictions for the published runs."""
    return validate(read_runs(presets_folder() / "published.csv"))


def section(validation: Validation, stacks: Sequence[Stack] = ()) -> str:
    """Headline, coverage and the errors by source; then those of the stacks on all that they were fitted to."""
    overall = validation.overall
    lines = [headline(validation) + "."]
    if overall:
        lines.append(coverage_line(overall))
    scores = [score for score in validation.by("source") if score.time]
    fitted = [stack for stack in stacks if LEFT_OUT in stack.residuals]
    tables = [*_table(scores), *([EXPLAINED, *_fitted(fitted)] if fitted else [])]
    return "\n".join([START, "", *lines, "", *tables, "", END])


def _table(scores: Sequence[Score]) -> list[str]:
    labels = ["source", *(column.label for column in TIME_COLUMNS[:6])]
    lines = [f"| {' | '.join(labels)} |", f"|{'---|' * len(labels)}"]
    for score in sorted(scores, key=lambda score: -(score.time.runs if score.time else 0)):
        values = [
            cell(value, column.unit) for value, column in zip(time_cells(score)[:6], TIME_COLUMNS[:6], strict=True)
        ]
        lines.append(f"| {' | '.join([score.name, *values])} |")
    return lines


def _fitted(stacks: Sequence[Stack]) -> list[str]:
    """Runs, parameters and errors of every stack, in the fit and with groups of like runs left out of it."""
    labels = ("stack", "runs", "devices", "fitted", "fixed", "default", "MAPE", "median", "left out: MAPE", "median")
    lines = [f"| {' | '.join(labels)} |", f"|{'---|' * len(labels)}"]
    for stack in sorted(stacks, key=lambda stack: -stack.runs):
        residuals = stack.residuals
        shares = (residuals["mape"], residuals["median"], residuals[LEFT_OUT], residuals["left_out_median"])
        counts = map(str, stack.counts)
        values = (stack.name, f"{stack.runs:,}", ", ".join(stack.devices), *counts, *(f"{x:.1%}" for x in shares))
        lines.append(f"| {' | '.join(values)} |")
    return lines
