"""`optimize calibrate`: fit a software stack to measured runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from optimizer.base.errors import InputError
from optimizer.commands.options import help_text, listed
from optimizer.commands.output import OutFile, refuse_inputs, show, write_output
from optimizer.commands.waiting import waiting

if TYPE_CHECKING:
    from optimizer.calibration.runs import Run
    from optimizer.job.stack import Stack


@click.command(help=help_text("calibrate"))
@listed("calibrate", out=OutFile("toml"))
def calibrate(
    runs: Path,
    stack: str,
    out: Path | None,
    evaluations: int,
    keep: str | None,
    anew: bool,
    as_json: bool,
    html: Path | None,
) -> None:
    """Fit, print, write."""
    from optimizer.calibration.calibrate import calibrate as fit

    if out is not None:
        refuse_inputs(out)
    with waiting("fitting") as say:
        start, rows = _runs_of(runs, stack)
        calibration = fit(
            rows,
            start,
            name=out.stem if out else start.name,
            date=_day_of(runs),
            evaluations=evaluations,
            keep=keep or "",
            anew=anew,
            report=lambda text: say(f"calibrate: {text}"),
        )
    if out is not None:
        from optimizer.calibration.stack_file import stack_toml

        write_output(out, stack_toml(calibration.stack), "toml")
    from optimizer.calibration.calibration_report import calibration_json, calibration_report

    show(html, as_json, lambda: calibration_report(calibration), lambda: calibration_json(calibration))


def _day_of(path: Path) -> str:
    """The day on which a file was last changed: the same runs give the same stack, whenever they are fitted."""
    import datetime

    try:
        return datetime.date.fromtimestamp(path.stat().st_mtime).isoformat()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; give a CSV of measured runs") from None


def _runs_of(path: Path, name: str) -> tuple[Stack, list[Run]]:
    """The stack to start from and the rows that count for it.

    Raises InputError when the rows name several stacks and none was chosen.
    """
    from optimizer.calibration.runs import read_runs
    from optimizer.catalog import load_stack

    rows = read_runs(path)
    named = Counter(run.stack_name for run in rows if run.row.get("stack"))
    if name:
        start = load_stack(name)
        started = read_runs(path, start)
        own = [run for run, as_named in zip(started, rows, strict=True) if as_named.stack_name == start.name]
        return start, own if start.name in named else started
    used = Counter(run.stack_name for run in rows)
    if len(used) > 1:
        listed = ", ".join(f"{stack} ({count} rows)" for stack, count in (named or used).most_common(8))
        raise InputError(f"{path} holds runs of several stacks: {listed}. Choose one with --stack NAME.")
    if not used:
        raise InputError(f"{path} holds no rows")
    return load_stack(next(iter(used))), rows
