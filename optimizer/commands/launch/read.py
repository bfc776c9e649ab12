"""`optimize read`: what the logs of a training run say, and why it is slower than its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from optimizer.base.errors import InputError, InvalidFile
from optimizer.commands.options import ReadingCommand, help_text, listed
from optimizer.commands.output import show
from optimizer.commands.waiting import waiting

if TYPE_CHECKING:
    from optimizer.diagnose.diagnosis import Diagnosis
    from optimizer.diagnose.measured import Measured
    from optimizer.diagnose.reference import Reference
    from optimizer.frameworks.log_line import LogFormat

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(cls=ReadingCommand, help=help_text("read"))
@click.argument("logs", nargs=-1, required=True, type=FILE)
@listed("read")
def read(
    logs: Sequence[Path],
    plan: str | None,
    scripts: Sequence[str],
    model: str,
    cluster: str,
    append: Path | None,
    settings: Sequence[str],
    pattern: str,
    watch: bool,
    as_json: bool,
    html: Path | None,
) -> None:
    """Read, compare, print; the table of runs is written last, when everything else has worked."""
    from optimizer.answer.reading import read_answer_file
    from optimizer.commands.own_runs import as_stated
    from optimizer.diagnose.measured import logged_runs, measured
    from optimizer.diagnose.pattern import format_of
    from optimizer.diagnose.reference import answer_reference, script_reference
    from optimizer.frameworks.every import LOGS

    if plan and scripts:
        raise click.UsageError("give one of --plan and --script")
    for name, value in (("model", model), ("cluster", cluster)):
        if value and not scripts:
            raise click.UsageError(f"--{name} goes with --script")
    if watch and as_json:
        raise click.UsageError("--watch prints lines; leave out --json")
    columns, expected = ({"model": model} if model else {}) | _settings(settings), None
    formats = (format_of(pattern),) if pattern else LOGS
    if watch:
        _await_steps(logs, formats)
    with waiting("reading"):
        logged = logged_runs(logs, formats)
        if plan:
            saved = read_answer_file(plan)
            expected = answer_reference(replace(saved, job=as_stated(saved.job, "")), plan)
        elif scripts:  # what the launch leaves open the logs may say
            expected = script_reference(scripts, columns, [measured(run, columns) for run in logged], cluster)
        facts = {**(expected.sizes if expected else {}), **columns}
    if watch:
        _watch(logs, formats, facts, expected, scripts)
    with waiting("reading"):
        logged = logged_runs(logs, formats) if watch else logged
        runs = [measured(run, facts) for run in logged]
        diagnoses = diagnoses_of(runs, expected)
    if append is not None:
        _append(append, runs, expected)
    from optimizer.diagnose.report import logs_json, logs_report

    show(html, as_json, lambda: logs_report(runs, diagnoses, expected), lambda: logs_json(runs, diagnoses, expected))


def _await_steps(logs: Sequence[Path], formats: Sequence[LogFormat]) -> None:
    """Wait until logs of a run that has just started tell of a step."""
    from optimizer.commands.launch.watch import grown
    from optimizer.diagnose.measured import logged_runs

    if absent := [str(log) for log in logs if not log.exists()]:
        click.echo(f"optimize: waiting for {', '.join(absent)}, not there yet", err=True)
    with waiting("waiting for a step") as say:
        reported = False
        for still in grown(logs):
            try:
                if not still and logged_runs([log for log in logs if log.exists()], formats):
                    return
            except InvalidFile as error:
                if not reported:
                    say(f"optimize: no step yet: {error.problems[0]}")
                reported = True


def _watch(
    logs: Sequence[Path],
    formats: Sequence[LogFormat],
    facts: Mapping[str, str],
    expected: Reference | None,
    scripts: Sequence[str],
) -> None:
    """Follow one run, a line at a time."""
    from optimizer.commands.launch.watch import next_edit, watch
    from optimizer.diagnose.measured import logged_runs, measured

    def look() -> tuple[Measured, Diagnosis | None]:
        run = measured(logged_runs(logs, formats)[-1], facts)
        return run, diagnoses_of([run], expected)[0]

    with waiting("planning"):
        edit = next_edit(scripts, expected)
    watch(logs, look, edit, click.echo)


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    """Columns of a table of runs that were typed; raises InputError for others."""
    from optimizer.base.errors import nearest
    from optimizer.calibration.rows.numbers import number_problems
    from optimizer.diagnose.row import COLUMNS

    columns = {}
    for pair in pairs:
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not value:
            raise InputError(f"--set {pair} must be COLUMN=VALUE, such as --set gpus=64")
        if name not in COLUMNS:
            close = " or ".join(nearest(name, COLUMNS))
            raise InputError(f"--set {pair}: a table of runs has no column {name!r}; did you mean {close or 'gpus'}?")
        columns[name] = value
    if problems := number_problems(columns):
        raise InputError(f"--set: {'; '.join(problems)}")
    return columns


def diagnoses_of(runs: Sequence[Measured], expected: Reference | None) -> list[Diagnosis | None]:
    """Why each run is slower than the plan, None for one without a step time or where there is no plan."""
    if expected is None:
        return [None] * len(runs)
    from optimizer.diagnose.causes.cause import SlowStep
    from optimizer.diagnose.diagnosis import diagnose

    question = SlowStep(job=expected.job, plan=expected.plan, knobs=expected.knobs)
    return [diagnose(question, run, expected.unlike(run)) if run.steady else None for run in runs]


def _append(path: Path, runs: Sequence[Measured], expected: Reference | None) -> None:
    from optimizer.diagnose.row import append_rows, row_of

    if not path.absolute().parent.is_dir():
        raise InputError(f"{path} cannot be written: its folder does not exist")
    rows: list[Mapping[str, str]] = [row_of(run, *((expected.job, expected.plan) if expected else ())) for run in runs]
    append_rows(path, rows)
    click.echo(f"added {len(rows)} row{'s' * (len(rows) > 1)} to {path}", err=True)
