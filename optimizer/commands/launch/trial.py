"""`optimize trial`: which plans to try, and what their logs decide."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optimizer.base.errors import InputError
from optimizer.commands.options import help_text, listed
from optimizer.commands.output import show, write_output
from optimizer.commands.request import check_complete, job_of, request_of
from optimizer.commands.waiting import waiting

if TYPE_CHECKING:
    from optimizer.trial.verdict import Verdict

FOLDER = click.Path(file_okay=False, path_type=Path)


@click.group(
    help=help_text("trial"),
    invoke_without_command=True,
    no_args_is_help=True,
    subcommand_metavar="[read | next] ...",
)
@listed("trial", folder=FOLDER, plans=click.IntRange(1, 9))
@click.pass_context
def trial(ctx: click.Context, /, *, out: Path | None, plans: int, steps: int, seed: int, **options: Any) -> None:
    """Choose, write, print; nothing where a subcommand was named."""
    if ctx.invoked_subcommand is not None:
        return
    as_json, html = options.pop("as_json"), options.pop("html")
    check_complete(options, "optimize trial")
    if out is None:
        raise click.UsageError("missing --out, as in: optimize trial --model gpt3 --gpus 1024 --out trials/")
    if "," in options["dtype"] or options["dtype"] == "any":
        raise InputError("--dtype must be one number format for trials, such as bf16: write a folder for each")
    job, assumed = job_of(request_of(options))
    from optimizer.trial.candidates import candidates
    from optimizer.trial.choice import chosen_trials
    from optimizer.trial.folder import Trials, check_new, start

    check_new(out)
    with waiting("planning"):
        leading = candidates(job, seed=seed)
        belief = leading.belief()
        chosen = tuple(chosen_trials(belief, plans))
    places = _places({name: options[name] for name in ("model", "cluster", "stack")})
    if "stack" in places and options["target"]:
        places["stack"] += f"@{options['target']}"
    trials = Trials(folder=out, candidates=leading, chosen=chosen, steps=steps, places=places)
    with waiting("writing launch files"):
        start(trials)
    click.echo(f"wrote {out}", err=True)
    from optimizer.catalog.offers import PriceBook
    from optimizer.trial.report import started_dict, started_report

    rent = PriceBook().rent(job.cluster.device.name, job.cluster.name)
    show(
        html,
        as_json,
        lambda: started_report(trials, belief, assumed, rent),
        lambda: started_dict(trials, belief, assumed),
    )


@trial.command("read", help=help_text("trial read"), short_help="What the logs of trials decide.")
@click.argument("folder", type=FOLDER)
@listed("trial read")
def read(folder: Path, tokens: float | None, as_json: bool, html: Path | None) -> None:
    """Read, decide, move the stack, print."""
    import datetime

    from optimizer.calibration.stack_file import stack_toml
    from optimizer.trial.local_stack import local_stack

    verdict = _verdict(folder, tokens)
    local = local_stack(verdict.trials.candidates, verdict.outcomes, datetime.date.today().isoformat())
    written = ""
    if local is not None:
        path = folder / f"{local.stack.name}.toml"
        write_output(path, stack_toml(local.stack), "toml")
        written = str(path)
    from optimizer.trial.report import verdict_dict, verdict_report

    show(html, as_json, lambda: verdict_report(verdict, local, written), lambda: verdict_dict(verdict, local, written))


@trial.command("next", help=help_text("trial next"), short_help="Add the trial that pays most.")
@click.argument("folder", type=FOLDER)
@listed("trial next")
def next_(folder: Path, tokens: float | None, as_json: bool) -> None:
    """Read, choose, write one more."""
    from optimizer.trial.folder import added

    verdict = _verdict(folder, tokens)
    if verdict.open:
        names = ", ".join(outcome.name for outcome in verdict.open)
        raise InputError(f"{folder}: {names} has no result yet; run it first, with bash {folder / 'run.sh'}")
    if verdict.next is None:
        raise InputError(f"{folder}: every one of its {len(verdict.trials.candidates)} candidates was tried")
    trials = added(verdict.trials, verdict.next.index)
    path = trials.trial(len(trials.chosen) - 1)
    click.echo(f"wrote {path}", err=True)
    from optimizer.trial.report import candidate_dict, pays_words

    if as_json:
        row = candidate_dict(trials, verdict.belief, verdict.next.index)
        content = {"name": path.name, **row, "expected_gain": verdict.next.gain, "pays": verdict.pays}
        click.echo(json.dumps(content, indent=2, allow_nan=False))
        return
    click.echo(f"{path.name}: {trials.candidates.plans[verdict.next.index].summary()}")
    click.echo(f"pays: {pays_words(verdict).split(';')[0]}")


def _verdict(folder: Path, tokens: float | None) -> Verdict:
    from optimizer.commands.own_runs import as_stated
    from optimizer.trial.folder import read_folder
    from optimizer.trial.outcome import outcomes
    from optimizer.trial.verdict import verdict

    with waiting("reading logs"):
        trials = read_folder(folder)
        candidates = replace(trials.candidates, job=as_stated(trials.job, ""))
        trials = replace(trials, candidates=candidates)
        return verdict(trials, outcomes(trials), tokens)


def _places(named: dict[str, str]) -> dict[str, str]:
    """Where files that were named lie, whatever folder they are read from later."""
    from optimizer.catalog.places import file_of

    files = {name: file_of(value) for name, value in named.items() if value}
    return {name: str(path.resolve()) for name, path in files.items() if path and path.exists()}
