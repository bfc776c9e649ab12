"""`optimize` itself: one job in, the best plan out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optimizer.commands import options
from optimizer.commands.output import print_screen, typed, write_page
from optimizer.commands.pins import ALTERNATIVE
from optimizer.commands.plan.answering import answered
from optimizer.commands.request import check_complete
from optimizer.commands.values import FILE, TOKENS
from optimizer.commands.waiting import waiting
from optimizer.constraints.pin_text import Pinned

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job
    from optimizer.objectives.step.explain import TermExplanation
    from optimizer.reports.plan_tiles import Budget
    from optimizer.reports.report import Report
    from optimizer.search.why.comparison import Comparison
    from optimizer.search.why.robustness import Robustness

EXIT_CODES = {"optimal": 0, "feasible": 0, "infeasible": 3, "unknown": 4}
FIRST_OF_PLAN = ("why_not", "explained", "export")  # options of plans alone that `optimize --help` has

plan_options = options.given(
    (
        *options.ANSWER,
        click.option(
            "--why-not", type=ALTERNATIVE, metavar="VAR=VALUE,...", help="Compare with the best such plan: tp=4,pp=8."
        ),
        click.option("--tokens", type=TOKENS, metavar="N", help="Of the run: hours and dollars."),
        click.option("--samples", type=TOKENS, metavar="N", help="Of the run, such as 50k, instead of --tokens."),
        click.option("--epochs", type=TOKENS, metavar="N", help="How often it sees its samples. [1]"),
        click.option("--robust", is_flag=True, help="Add the chance that each plan listed is the fastest."),
        click.option("--explain", "explained", is_flag=True, help="All that is known of it, with the formulas."),
        options.as_json("Print the answer as JSON."),
        options.html(),
        click.option(
            "--export",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help="Write launch files there.",
        ),
        click.option(
            "--like",
            type=FILE,
            metavar="SCRIPT",
            help="With --export: a Slurm script of yours that ours are like.",
        ),
        options.force("Let --export overwrite files."),
    )
)


def run_plan(
    *,
    as_json: bool,
    why_not: Mapping[str, Pinned] | None,
    tokens: float | None,
    samples: float | None,
    epochs: float | None,
    robust: bool,
    explained: bool,
    html: Path | None,
    export: Path | None,
    like: Path | None,
    force: bool,
    **asked: Any,
) -> int:
    """Plan, print, export; the exit code."""
    check_complete(asked, "optimize")
    if like and export is None:
        raise click.UsageError("--like says how the files of --export look; give --export DIR too")
    if export is not None and not force:
        from optimizer.frameworks.export_folder import check_free

        check_free(export)
    if (epochs and not samples) or (tokens and samples):
        raise click.UsageError("a run is --tokens 300M, or --samples 50k with or without --epochs 3")
    with waiting("planning"):
        answer = answered(asked)
    budget = _budget(answer.job, tokens, samples, epochs)
    assumed, steady, comparison, terms = answer.assumptions or (), None, None, []
    with waiting("comparing"):
        if why_not and answer.plan is not None:
            from optimizer.search.why.comparison import why_not as compared

            comparison = compared(answer.job, answer, why_not)
        if robust:
            from optimizer.search.why.robustness import robustness

            steady = robustness(answer)
        if explained and answer.plan is not None and answer.knobs is not None:
            from optimizer.objectives.step.explain import explain

            terms = explain(answer.job, answer.plan, answer.knobs)
    if as_json:
        from optimizer.reports.answer_json import json_text

        click.echo(json_text(answer, assumed, terms, comparison, steady, budget))
    else:
        print_screen(_report(answer, assumed, steady, comparison, terms, budget, whole=explained))
    write_page(html, partial(_report, answer, assumed, steady, comparison, terms, budget))
    if export is not None and answer.plan is not None:
        from optimizer.frameworks.export_folder import write_exports

        paths, refused = write_exports(answer, export, force=force, like=str(like or ""))
        for path in paths:
            click.echo(f"wrote {path}", err=True)
        for why in dict.fromkeys(refused.values()):
            names = ", ".join(name for name, reason in refused.items() if reason == why)
            click.echo(f"not {names}: {why}", err=True)
    return EXIT_CODES[answer.status]


def _budget(job: Job, tokens: float | None, samples: float | None, epochs: float | None) -> Budget | None:
    """The run that is asked about: its tokens without padding, of as many documents where samples are given."""
    if samples:
        sequences = samples * (epochs or 1.0) * job.training_loss.together
        tokens = sequences * (job.documents.mean if job.documents else job.seq_len)
    if not tokens:
        return None
    from optimizer.purchase.price.run_cost import whole_run

    return whole_run(job, tokens)


def _report(
    answer: Answer,
    assumed: Sequence[str],
    steady: Robustness | None,
    comparison: Comparison | None,
    terms: Sequence[TermExplanation],
    budget: Budget | None,
    *,
    whole: bool = True,
) -> Report:
    """The answer with what was asked about it, whole or in a few lines."""
    from optimizer.reports.plan_report import plan_report
    from optimizer.reports.why_report import comparison_section, explain_sections, robustness_section

    report = plan_report(answer, assumed, budget, command=typed(), whole=whole)
    more = (
        *([robustness_section(answer, steady, whole=whole)] if steady else []),
        *([comparison_section(answer.job, comparison)] if comparison else []),
        *explain_sections(terms),
    )
    return replace(report, sections=(*report.sections, *more))
