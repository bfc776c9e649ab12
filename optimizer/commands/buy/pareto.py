"""`optimize pareto`: which machines, how many and wired how give the best time, cost and energy."""

from __future__ import annotations

from datetime import date
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optimizer.base.errors import InputError
from optimizer.base.units import is_count
from optimizer.commands.help_text import help_text
from optimizer.commands.listed import listed
from optimizer.commands.output import print_screen, typed, write_page
from optimizer.commands.waiting import progress, waiting

if TYPE_CHECKING:
    from optimizer.commands.buy.campaign import PurchaseQuestion

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
        question, before = _question(options), earlier_report(since) if since else None
    from optimizer.purchase.designs.pareto import pareto as search
    from optimizer.purchase.dossier import dossier

    designs = sum(1 for _ in islice(question.grid.designs(), MOST_DESIGNS + 1))
    if designs > MOST_DESIGNS:
        raise InputError(f"more than {MOST_DESIGNS:,} designs: give --gpus and other lists fewer values, or LOW:HIGH")
    total = designs + (trials if question.ranges else 0)
    with progress("designs", total) as step:
        outcome = search(
            question.campaign,
            question.grid,
            ranges=question.ranges,
            trials=trials,
            sampler=sampler,
            seed=seed,
            on_point=step,
        )
    with progress("weighing the choices", None) as step:
        answer = dossier(
            outcome,
            question.kinds,
            deadline_for_fewest=min_gpus_for or 0.0,
            deliveries=question.deliveries,
            on_point=step,
        )
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
    within = answer.staged[0].in_limits if answer.staged else bool(outcome.front)
    return 0 if within else INFEASIBLE


def _question(options: dict[str, Any]) -> PurchaseQuestion:
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
