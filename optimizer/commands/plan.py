"""`optimize` itself: one job in, the best plan out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from optimizer.commands import options
from optimizer.commands.answering import FAST, SIMPLE, answered
from optimizer.commands.completion import paths
from optimizer.commands.defaults import Usual
from optimizer.commands.numbers import SECONDS, Whole
from optimizer.commands.study import typed, write_page
from optimizer.commands.values import AtMost, Share
from optimizer.commands.waiting import waiting
from optimizer.commands.why import Pins, comparison_of
from optimizer.constraints.pin_text import Pinned

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer

Command = TypeVar("Command", bound=Callable[..., Any])

EXIT_CODES = {"optimal": 0, "feasible": 0, "infeasible": 3, "unknown": 4}

GPUS_AT_MOST = click.option(
    "--gpus", type=AtMost(), metavar="N", help="Number of GPUs, or at-most:N: fewer where that is faster."
)
JOB_OPTIONS = (options.model(), options.gpus(), *options.PLANNED)
# What decides the answer.
ANSWER_OPTIONS = (
    options.model(),
    GPUS_AT_MOST,
    *options.PLANNED,
    options.flex(cls=Usual),
    options.MINIMIZE,
    click.option("--top", type=Whole(0), default=5, metavar="N", help="Runners-up to show. [5]", cls=Usual),
    click.option(
        "--within", type=Share(), metavar="SHARE", help="Show all runners-up so close, such as 3%.", cls=Usual
    ),
    options.TRIALS_OPTION,
    click.option("--time-limit", type=SECONDS, metavar="S", help="Seconds to search: 90, 2min.", cls=Usual),
    options.seed(cls=Usual),
    click.option(
        "--study", metavar="FILE|URL", help="Keep the trials there, for the Optuna dashboard.", shell_complete=paths
    ),
    click.option(
        "--prefer",
        type=click.Choice([FAST, SIMPLE]),
        default=FAST,
        help="The fastest plan, or of those as fast within 1% the one with the fewest moving parts. [fast]",
        cls=Usual,
    ),
)
OPTIONS = (
    *ANSWER_OPTIONS,
    click.option("--why-not", type=Pins(), metavar="VAR=VALUE,...", help="Compare with the best such plan: tp=4,pp=8."),
    click.option("--robust", is_flag=True, help="Add the chance that each plan listed is the fastest."),
    click.option("--explain", "explained", is_flag=True, help="Add each term's formula, inputs, source and label."),
    options.as_json(help="Print the answer as JSON."),
    options.html(),
    click.option(
        "--export", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Write launch files there."
    ),
    options.force(help="Let --export overwrite files."),
)


def job_options(command: Command) -> Command:
    """Give a command the options that describe a job and its limits."""
    return options.given(command, JOB_OPTIONS)


def answer_options(command: Command) -> Command:
    """Give a command the options that decide the answer to one job."""
    return options.given(command, ANSWER_OPTIONS)


def plan_options(command: Command) -> Command:
    """Give a command every option of planning."""
    return options.given(command, OPTIONS)


def run_plan(
    *,
    model: str | None,
    gpus: tuple[int, bool] | None,
    as_json: bool,
    why_not: Mapping[str, Pinned] | None,
    robust: bool,
    explained: bool,
    html: Path | None,
    export: Path | None,
    force: bool,
    **asked: Any,
) -> int:
    """Plan, print, export; the exit code."""
    model, count = required_job(model, gpus and gpus[0], "optimize")
    if export is not None and not force:
        from optimizer.exports.folder import check_free

        check_free(export)
    with waiting("planning"):
        answer = answered(model=model, gpus=count, at_most=bool(gpus and gpus[1]), **asked)
    job, assumed = answer.job, answer.assumptions or ()
    steady, terms = None, []
    with waiting("comparing"):
        comparison = comparison_of(answer, why_not)
        if robust:
            from optimizer.search.why.robustness import robustness

            steady = robustness(answer)
        if explained and answer.plan is not None and answer.knobs is not None:
            from optimizer.objectives.step.explain import explain

            terms = explain(job, answer.plan, answer.knobs)
    if as_json:
        from optimizer.reports.as_json import json_text

        click.echo(json_text(answer, assumed, terms, comparison, steady))
    else:
        from optimizer.reports.explain_report import explain_report
        from optimizer.reports.plan_report import plan_report
        from optimizer.reports.screen import screen_text

        click.echo(screen_text(plan_report(answer, assumed)), nl=False)
        if steady:
            from optimizer.reports.robustness_report import robustness_report

            click.echo(screen_text(robustness_report(answer, steady)), nl=False)
        if comparison:
            from optimizer.reports.comparison_report import comparison_report

            click.echo(screen_text(comparison_report(comparison)), nl=False)
        if terms:
            click.echo(screen_text(explain_report(terms)), nl=False)
    write_page(html, partial(_page, answer, assumed))
    if export is not None and answer.plan is not None:
        from optimizer.exports.folder import write_exports

        paths, refused = write_exports(answer, export, force=force)
        for path in paths:
            click.echo(f"wrote {path}", err=True)
        for name, why in refused.items():
            click.echo(f"not {name}: {why}", err=True)
    return EXIT_CODES[answer.status]


def _page(answer: Answer, assumed: Sequence[str]) -> str:
    """The answer as a page, with the command that was typed."""
    from optimizer.reports.answer_page.html import plan_html

    return plan_html(answer, typed(), assumed)


def required_job(model: str | None, gpus: int | None, command: str) -> tuple[str, int]:
    """Model and number of GPUs; click.UsageError names what is missing."""
    if model is None or gpus is None:
        missing = " and ".join(name for name, value in (("--model", model), ("--gpus", gpus)) if value is None)
        raise click.UsageError(f"missing {missing}, as in: {command} --model gpt3 --gpus 1024")
    return model, gpus
