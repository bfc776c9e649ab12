"""What the commands of studies share: options that make a job, and how a study leaves the program."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from optimizer.base.files import HTML
from optimizer.base.names import without_passwords
from optimizer.commands import options
from optimizer.commands.output import write_output
from optimizer.commands.request import Request, job_of
from optimizer.commands.values import merged
from optimizer.commands.waiting import waiting

if TYPE_CHECKING:
    from optimizer.job.job import Job
    from optimizer.job.plan import Knobs, Plan
    from optimizer.reports.report import Record, Report
    from optimizer.studies.room import Room

Command = TypeVar("Command", bound=Callable[..., Any])

OPTIONS = (
    options.model(required=True),
    *options.STUDIED,
    options.as_json(),
    click.option("--csv", "as_csv", is_flag=True, help="Print CSV."),
    options.html(),
)


def study_options(command: Command) -> Command:
    """Give a command the options of a job and of the output."""
    return options.given(command, OPTIONS)


def study_job(
    gpus: int, fix: tuple[tuple[str, Any], ...], hbm_limit: float, asked: Mapping[str, Any]
) -> tuple[Job, tuple[str, ...]]:
    """The job of the options, and what was assumed."""
    others = {name: value for name, value in asked.items() if name != "oom_risk"}
    limits = {"hbm": hbm_limit, "oom_risk": asked["oom_risk"], **merged(fix)}
    return job_of(Request(gpus=gpus, limits=limits, **others))


def study_plan(job: Job, best: bool) -> tuple[Plan, Knobs]:
    """The plan to study and its knobs: the best one, or the one that the pins make, at the default knobs.

    Raises Infeasible where there is none, InputError where the pins leave several or none.
    """
    from optimizer.base.errors import Infeasible, InputError
    from optimizer.job.plan import Knobs

    if best:
        from optimizer.search.plan.planner import plan

        with waiting("planning"):
            answer = plan(job, top=1, trials=0, priced_risk=False)
        if answer.plan is None:
            raise Infeasible("no plan satisfies every rule; `optimize` with the same options says which conflict")
        return answer.plan, answer.knobs
    from optimizer.studies.pinned import pinned_plan

    if job.limits.ranges or job.limits.choices:
        raise InputError(
            "a study needs one plan: pin variables to single values, or add --best to search among several"
        )
    return pinned_plan(job, job.limits.fixed), Knobs()


def warn(room: Room) -> None:
    """Say on stderr that a plan cannot run, whatever else is printed."""
    if room.warning:
        click.echo(f"warning: the plan {room.warning}", err=True)


def show(html: Path | None, report: Callable[[], Report], text: Callable[[], str] | None = None) -> None:
    """Print a report for people, or a text for programs instead; write the report as a page where one was asked for."""
    if text is None:
        print_screen(report())
    else:
        click.echo(text())
    write_page(html, report)


def typed() -> str:
    """The command as it was typed, without passwords."""
    return without_passwords(shlex.join(["optimize", *sys.argv[1:]]))


def print_screen(report: Report) -> None:
    """Print a report for people."""
    from optimizer.reports.render.screen import screen_text

    click.echo(screen_text(report), nl=False)


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where a study goes: JSON, CSV or the screen, and a page where one was asked for."""

    as_json: bool
    as_csv: bool
    html: Path | None

    @classmethod
    def taken(cls, options: dict[str, Any]) -> Output:
        """Take the options of the output out of the others; refuse two formats at once."""
        if options["as_json"] and options["as_csv"]:
            raise click.UsageError("--json and --csv exclude each other; give one of them")
        return cls(**{field.name: options.pop(field.name) for field in fields(cls)})

    def show(
        self,
        content: Mapping[str, Any],
        assumed: tuple[str, ...],
        records: Sequence[Record],
        report: Callable[[], Report],
    ) -> None:
        """Print the content and what was assumed, or the records, or the report; write the page."""
        from optimizer.reports.render.csv import csv_text
        from optimizer.reports.render.json import json_text

        if self.as_json:
            click.echo(json_text({**content, "assumptions": list(assumed)}))
        elif self.as_csv:
            click.echo(csv_text(records), nl=False)
        else:
            print_screen(report())
        write_page(self.html, report)


def write_page(path: Path | None, report: Callable[[], Report]) -> None:
    """Write a report as a page where one was asked for, with the command that was typed, and say so on stderr.

    Raises InputError when the file cannot be written.
    """
    if path is not None:
        from optimizer.reports.render.html import report_page

        with waiting("drawing"):
            text = report_page(replace(report(), command=typed()))
        write_output(path, text, HTML)
