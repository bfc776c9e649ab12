"""`optimize pareto`: which machines, how many and wired how give the best time, cost and energy."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optimizer.base.errors import InputError
from optimizer.base.units import is_count
from optimizer.commands.options import help_text, listed
from optimizer.commands.output import print_screen, typed, write_page
from optimizer.commands.waiting import progress, waiting

if TYPE_CHECKING:
    from optimizer.commands.buy.campaign import PurchaseQuestion
    from optimizer.purchase.designs.points import Planner
    from optimizer.purchase.dossier import Dossier

INFEASIBLE = 3
MOST_DESIGNS = 20_000


@click.command(help=help_text("pareto"))
@listed("pareto")
@click.pass_context
def pareto(ctx: click.Context, /, **options: Any) -> None:
    """Run the command; the exit code says what came of it."""
    ctx.exit(run_pareto(**options))


def run_pareto(
    *,
    as_json: bool,
    as_csv: bool,
    as_markdown: bool,
    html: Path | None,
    trials: int,
    sampler: str,
    seed: int,
    min_gpus_for: float | None,
    since: Path | None,
    **options: Any,
) -> int:
    """Ask, search, print; the exit code."""
    if as_json + as_csv + as_markdown > 1:
        raise click.UsageError("choose one of --json, --csv and --markdown")
    from optimizer.purchase.since import earlier_report

    with waiting("reading"):
        question, before = question_of_options(options), earlier_report(since) if since else None
    answer = bought(question, trials=trials, sampler=sampler, seed=seed, fewest_for=min_gpus_for or 0.0)
    from optimizer.purchase.as_json import purchase_csv, purchase_json
    from optimizer.purchase.report import purchase_report

    command = typed()
    report = partial(purchase_report, answer, question.assumed, command, date.today(), before)
    if as_json:
        click.echo(purchase_json(answer, command, question.assumed))
    elif as_csv:
        click.echo(purchase_csv(answer), nl=False)
    elif as_markdown:
        from optimizer.reports.render.markdown import markdown_text

        click.echo(markdown_text(report()), nl=False)
    else:
        print_screen(report())
    write_page(html, report)
    within = answer.staged[0].in_limits if answer.staged else bool(answer.purchase.front)
    return 0 if within else INFEASIBLE


def bought(
    question: PurchaseQuestion,
    *,
    trials: int = 0,
    sampler: str = "tpe",
    seed: int = 0,
    fewest_for: float = 0.0,
    planner: Planner | None = None,
    most: int = MOST_DESIGNS,
) -> Dossier:
    """Search every design of a question, and weigh the choices.

    Args:
        question: what a buyer asks.
        trials: within its continuous ranges.
        sampler: how they are chosen.
        seed: of them.
        fewest_for: the time for which the fewest GPUs are sought too [s].
        planner: plans a job; the usual one without it.
        most: designs that may be asked for.

    Raises:
        InputError: for more designs.
    """
    from optimizer.purchase.designs.pareto import pareto as search
    from optimizer.purchase.designs.points import default_planner
    from optimizer.purchase.dossier import dossier

    planner = planner or default_planner
    designs = sum(1 for _ in islice(question.grid.designs(), most + 1))
    if designs > most:
        raise InputError(f"more than {most:,} designs: give --gpus and other lists fewer values, or LOW:HIGH")
    with progress("designs", designs + (trials if question.ranges else 0)) as step:
        outcome = search(
            question.campaign,
            question.grid,
            planner=planner,
            ranges=question.ranges,
            trials=trials,
            sampler=sampler,
            seed=seed,
            on_point=step,
        )
    with progress("weighing the choices", None) as step:
        return dossier(
            outcome,
            question.kinds,
            deadline_for_fewest=fewest_for,
            deliveries=question.deliveries,
            planner=planner,
            on_point=step,
        )


def question_of_options(options: Mapping[str, Any]) -> PurchaseQuestion:
    """The question that the options of the command ask. Raises UsageError or InputError for what cannot be used."""
    from optimizer.commands.buy.campaign import question_of
    from optimizer.purchase.campaign import Requirements

    if not options["portfolio"] and not (options["model"] and options["tokens"]):
        raise click.UsageError("missing --model and --tokens (or --portfolio), as in: --model gpt3 --tokens 300e9")
    if bool(options["gpus"]) == bool(options["stages"]):
        raise click.UsageError("give --gpus, as in --gpus 1024:4096, or --stages, as in --stages 2048,2048@180d")
    limits = {name: options[name] or float("inf") for name in ("deadline", "budget", "power", "racks")}
    for name, text in options["on_hand"]:
        if not is_count(text):
            raise InputError(f"--on-hand {name}={text} must be a number of GPUs")
    on_hand = {name: int(text) for name, text in options["on_hand"]}
    named = {name: dict(options[name]) for name in ("rent", "purchase", "assume")}
    return question_of({**options, **named}, Requirements(**limits, on_hand=on_hand))
