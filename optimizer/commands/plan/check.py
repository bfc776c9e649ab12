"""`optimize check`: an answer, or a plan, verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from optimizer.base.errors import InputError, InvalidFile, UnknownName
from optimizer.commands.completion import paths
from optimizer.commands.options import help_text, listed
from optimizer.commands.output import show
from optimizer.commands.request import limits_of
from optimizer.commands.waiting import waiting

if TYPE_CHECKING:
    from optimizer.answer.saved import SavedAnswer
    from optimizer.job.model import Model

BROKEN = 3
# Options that may come with a PLAN, which says everything else itself.
PLACES = ("model", "cluster", "stack")
WITH_A_PLAN = (*PLACES, "runs")
# Settings of Megatron arguments that must be the model's.
SHAPE = ("layers", "hidden", "heads", "kv_heads")


@click.command(help=help_text("check"))
@click.argument("plan", required=False, shell_complete=paths)
@listed("check")
@click.pass_context
def check(
    ctx: click.Context,
    /,
    plan: str | None,
    megatron_args: Path | None,
    as_json: bool,
    html: Path | None,
    **options: Any,
) -> None:
    """Read, verify, print."""
    if (plan is None) == (megatron_args is None):
        raise click.UsageError("give one plan: PLAN (a file, or - for stdin) or --megatron-args FILE")
    assumed: tuple[str, ...] = ()
    typed = [name for name in options if ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE]
    if plan is not None:
        if named := [f"--{name.replace('_', '-')}" for name in typed if name not in WITH_A_PLAN]:
            raise click.UsageError(f"PLAN says what {', '.join(named)} would; leave that out, or use --megatron-args")
        saved = _from_answer(plan, options)
    elif megatron_args is not None:
        saved, assumed = _from_arguments(megatron_args, options, "oom_risk" in typed)
    from optimizer.search.check.verification import verify

    with waiting("checking"):
        verification = verify(saved)
    from optimizer.reports.check_report import check_report
    from optimizer.reports.render.json import json_text

    content = {**verification.to_dict(), "assumptions": list(assumed)}
    show(html, as_json, lambda: check_report(verification, assumed), lambda: json_text(content))
    ctx.exit(BROKEN if verification.broken else 0)


def _from_answer(plan: str, options: Mapping[str, Any]) -> SavedAnswer:
    from optimizer.answer.reading import read_answer_file

    places = {name: options[name] or "" for name in PLACES}
    try:
        saved = read_answer_file(plan, **places)
    except UnknownName as error:
        if error.kind not in PLACES or places[error.kind]:
            raise
        where = f"the answer only names its {error.kind}: say where it is with --{error.kind} FILE"
        raise InputError(f"{error} Was it a file? Then {where}.") from None
    from optimizer.commands.own_runs import as_stated

    return replace(saved, job=as_stated(saved.job, options["runs"]))


def _from_arguments(path: Path, options: dict[str, Any], risked: bool) -> tuple[SavedAnswer, tuple[str, ...]]:
    """The plan in a launch, which may run already: what is predicted to fit is ruled out only by a risk asked for."""
    if options["model"] is None:
        raise click.UsageError("missing --model, as in: optimize check --megatron-args launch.sh --model llama3-70b")

    from optimizer.answer.saved import SavedAnswer
    from optimizer.catalog import load_model, load_stack
    from optimizer.commands.own_runs import with_own_runs
    from optimizer.frameworks.every import FRAMEWORKS
    from optimizer.frameworks.files import read_files
    from optimizer.frameworks.launch_as_read import Controls, launch_as_read
    from optimizer.frameworks.read import read_launch
    from optimizer.frameworks.software import switched
    from optimizer.job.job import EVEN_RISK, Limits

    limits = {**limits_of(options), **({} if risked else {"oom_risk": EVEN_RISK})}
    names = ("model", "cluster", "device", "stack", "gpus", "seq_len", "global_batch")
    controls = Controls(**{name: options[name] for name in names})
    launch = read_launch(read_files([str(path)]), controls.gpus, controls.model).launch
    _same_model(path, launch.settings, load_model(controls.model))
    if options["dtype"]:
        launch.settings["dtype"] = options["dtype"]
    question = launch_as_read(launch, controls, str(path))
    # What the software does not offer is a rule that the plan breaks.
    software = load_stack(controls.stack or FRAMEWORKS[launch.program].stack)
    stack = switched(software, question.settings, question.plan.zero_stage)
    job = with_own_runs(replace(question.job, limits=Limits(**limits), stack=stack), options["runs"])
    return SavedAnswer(job=job, plan=question.plan, knobs=question.knobs), tuple(launch.assumed)


def _same_model(path: Path, settings: Mapping[str, object], model: Model) -> None:
    """Raise InvalidFile when the arguments launch another model."""
    problems = [
        f"has {name} = {settings[name]}, but {model.name} has {getattr(model, name)}"
        for name in SHAPE
        if name in settings and settings[name] != getattr(model, name)
    ]
    if problems:
        raise InvalidFile(path, problems)
