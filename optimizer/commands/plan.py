"""`optimize` itself: one job in, the best plan out."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from optimizer.commands.answering import FAST, SIMPLE, answered
from optimizer.commands.numbers import BATCH, COUNT, SECONDS, SEED, SEQUENCE, TRIALS
from optimizer.commands.request import DEFAULT_CLUSTER, STACKS
from optimizer.commands.study import HTML_FILE, write_page
from optimizer.commands.values import AtMost, Bytes, Fixed, Flex, Share, joined
from optimizer.commands.waiting import waiting
from optimizer.commands.why import Pins, comparison_of
from optimizer.constraints.pin_text import Pinned
from optimizer.names import without_passwords

if TYPE_CHECKING:
    from optimizer.answer import Answer

Command = TypeVar("Command", bound=Callable[..., Any])

EXIT_CODES = {"optimal": 0, "feasible": 0, "infeasible": 3, "unknown": 4}

POSITIVE = COUNT

MODEL = click.option("--model", metavar="NAME|FILE", help="Model preset, or a file that describes one.")
GPUS = click.option("--gpus", type=POSITIVE, metavar="N", help="Number of GPUs.")
GPUS_AT_MOST = click.option(
    "--gpus", type=AtMost(), metavar="N", help="Number of GPUs, or at-most:N: fewer where that is faster."
)
ABOUT_THE_JOB = (
    click.option("--cluster", default="", metavar="NAME|FILE", help=f"Cluster preset or file. [{DEFAULT_CLUSTER}]"),
    click.option("--device", default="", metavar="NAME", help="Device preset: picks its default cluster."),
    click.option("--stack", default="", metavar="NAME|FILE", help=f"Training software. [{STACKS}]"),
    click.option("--target", default="", metavar="NAME", help="Launcher of the plan, or any. [the stack's own]"),
    click.option("--seq-len", type=SEQUENCE, metavar="N", help="Tokens per sequence."),
    click.option("--global-batch", type=BATCH, metavar="N", help="Sequences per optimizer step."),
    click.option("--dtype", default="", metavar="TYPE,...", help="bf16, fp16, fp8, fp4, several or any. [bf16]"),
    click.option("--bubble-ceiling", type=Share(), default=0.10, metavar="SHARE", help="Largest bubble. [10%]"),
    click.option("--hbm-limit", type=Bytes(), default=0.0, metavar="SIZE", help="Usable memory per GPU: 75GB, 70GiB."),
    click.option("--oom-risk", type=Share(), metavar="SHARE", help="Largest chance not to fit. [10%]"),
    click.option("--max-tp", type=POSITIVE, metavar="N", help="Largest tp. [the scale-up domain]"),
    click.option("--max-micro-batch", type=POSITIVE, default=16, metavar="N", help="Largest micro-batch. [16]"),
    click.option("--max-vpp", type=POSITIVE, default=16, metavar="N", help="Most virtual stages per stage. [16]"),
    click.option("--min-cp-tokens", type=POSITIVE, default=2048, metavar="N", help="Fewest tokens per cp rank. [2048]"),
    click.option("--vocab-padding", type=Share(), default=0.25, metavar="SHARE", help="Most vocabulary padding. [25%]"),
    click.option(
        "--fix",
        type=Fixed(),
        callback=joined,
        multiple=True,
        metavar="VAR=VALUE",
        help="Pin variables: tp=8, pp=2..8, vpp=1,6, tp=1,pp=1; repeatable.",
    ),
    click.option("--routing", default="", metavar="HOW", help="Of tokens: forced, trained, fresh, or a factor."),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="FIELD=VALUE",
        help="Change a field of model, cluster or stack: layers=4; repeatable.",
    ),
)
JOB_OPTIONS = (MODEL, GPUS, *ABOUT_THE_JOB)
PREFER = click.option(
    "--prefer",
    type=click.Choice([FAST, SIMPLE]),
    default=FAST,
    help="The fastest plan, or of those as fast within 1% the one with the fewest moving parts. [fast]",
)
# What decides the answer.
ANSWER_OPTIONS = (
    MODEL,
    GPUS_AT_MOST,
    *ABOUT_THE_JOB,
    click.option("--flex", type=Flex(), metavar="batch=SHARE", help="The batch may move so far: batch=5%."),
    click.option("--top", type=POSITIVE, default=5, metavar="N", help="Runners-up to show. [5]"),
    click.option("--within", type=Share(), metavar="SHARE", help="Show all runners-up so close, such as 3%."),
    click.option("--trials", type=TRIALS, default=8, metavar="N", help="Trials on the knobs. [8]"),
    click.option("--time-limit", type=SECONDS, metavar="S", help="Seconds to search."),
    click.option("--seed", type=SEED, default=0, metavar="N", help="Seed of the search. [0]"),
    click.option("--study", metavar="FILE|URL", help="Keep the trials there, for the Optuna dashboard."),
    PREFER,
)
OPTIONS = (
    *ANSWER_OPTIONS,
    click.option("--why-not", type=Pins(), metavar="VAR=VALUE,...", help="Compare with the best such plan: tp=4,pp=8."),
    click.option("--robust", is_flag=True, help="Add the chance that each plan listed is the fastest."),
    click.option("--explain", "explained", is_flag=True, help="Add each term's formula, inputs, source and label."),
    click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON."),
    click.option("--html", type=HTML_FILE, metavar="FILE", help="Write a report there, a page of its own."),
    click.option(
        "--export", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Write launch files there."
    ),
    click.option("--force", is_flag=True, help="Let --export overwrite files."),
)


def job_options(command: Command) -> Command:
    """Give a command the options that describe a job and its limits."""
    for option in reversed(JOB_OPTIONS):
        command = option(command)
    return command


def answer_options(command: Command) -> Command:
    """Give a command the options that decide the answer to one job."""
    for option in reversed(ANSWER_OPTIONS):
        command = option(command)
    return command


def plan_options(command: Command) -> Command:
    """Give a command every option of planning."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


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
    **options: Any,
) -> int:
    """Plan, print, export; the exit code."""
    model, count = required_job(model, gpus and gpus[0], "optimize")
    if export is not None and not force:
        from optimizer.exports.folder import check_free

        check_free(export)
    with waiting("planning"):
        answer = answered(model=model, gpus=count, at_most=bool(gpus and gpus[1]), **options)
    job, assumed = answer.job, answer.assumptions or ()
    comparison = comparison_of(answer, why_not)
    steady = None
    if robust:
        from optimizer.search.why.robustness import robustness

        steady = robustness(answer)
    terms = []
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

    return plan_html(answer, without_passwords(shlex.join(["optimize", *sys.argv[1:]])), assumed)


def required_job(model: str | None, gpus: int | None, command: str) -> tuple[str, int]:
    """Model and number of GPUs; click.UsageError names what is missing."""
    if model is None or gpus is None:
        missing = " and ".join(name for name, value in (("--model", model), ("--gpus", gpus)) if value is None)
        raise click.UsageError(f"missing {missing}, as in: {command} --model gpt3 --gpus 1024")
    return model, gpus
