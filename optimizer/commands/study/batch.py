"""`optimize batch`: plan every combination of a study file, keep the results, show them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optimizer.base import files
from optimizer.base.errors import InputError, PartialFailure
from optimizer.base.interruption import INTERRUPTED, asked
from optimizer.base.units import is_count
from optimizer.commands.completion import paths
from optimizer.commands.options import book, help_text, listed
from optimizer.commands.output import print_screen, refuse_inputs
from optimizer.commands.request import job_of, request_of
from optimizer.commands.unnamed import UnnamedCommand
from optimizer.commands.values import TextType
from optimizer.commands.waiting import waiting

if TYPE_CHECKING:
    from optimizer.catalog.offers import PriceBook
    from optimizer.job.job import Job
    from optimizer.sweep.batch import Engine
    from optimizer.sweep.expansion import Combination
    from optimizer.sweep.store import Store
    from optimizer.sweep.study import Study
    from optimizer.sweep.task import Task


def part_of(text: str) -> tuple[int, int]:
    """One of n equal parts of a batch, counted from 1, and their number: "2/8"."""
    part, _, parts = text.partition("/")
    if not (is_count(part) and is_count(parts) and 1 <= int(part) <= int(parts)):
        raise InputError(f"{text!r} is not i/n with i from 1 to n, such as 1/8 for the first of eight parts")
    return int(part), int(parts)


@click.group(
    cls=UnnamedCommand,
    unnamed="run",
    help=help_text("batch"),
    no_args_is_help=True,
    subcommand_metavar="STUDY | COMMAND [ARGS]...",
)
def batch() -> None:
    """Only a name for its commands."""


@batch.command(short_help="Plan the jobs that have no answer yet.")
@click.argument("study", type=click.Path(path_type=Path))
@listed("batch run", part=TextType("i/n", part_of))
@click.pass_context
def run(
    ctx: click.Context,
    /,
    study: Path,
    store: str | None,
    engine: str,
    address: str,
    workers: int | None,
    shard: tuple[int, int] | None,
    dry_run: bool,
    **how: Any,
) -> None:
    """Plan the jobs of STUDY that have no answer yet; the same command goes on after an interruption."""
    prices, runs = book(how), how.pop("runs")
    checked, tasks = _tasks(study, runs)
    if shard is not None:
        part, parts = shard
        tasks = tasks[part - 1 :: parts]
    place = default_store(study) if store is None else store
    crew = _engine(engine, address, workers)
    if dry_run:
        click.echo(_outlook(checked, tasks, place, workers, how["as_json"]))
        return
    _check_targets(how["html"])
    from optimizer.sweep.batch import run_batch
    from optimizer.sweep.progress import progress
    from optimizer.sweep.store import Store

    with closing(Store(place)) as stored:
        if store is None:
            click.echo(f"optimize: answers go to {stored.label} in this folder; --store names another place", err=True)
        try:
            with progress(len(tasks), crew.title) as watch:
                run_batch(stored, tasks, crew, watch)
        except KeyboardInterrupt:
            click.echo(f"optimize: stopped; every answer is kept in {stored.label}, the same command goes on", err=True)
            ctx.exit(asked() or INTERRUPTED)
        wholes = _wholes(stored, checked, tasks, prices)
    _show(checked.name, wholes, rows=0, **how)
    failed = sum(whole["status"] == "failed" for whole in wholes)
    if failed:
        raise PartialFailure(
            f"{failed:,} of {len(wholes):,} jobs failed; the others are kept in {stored.label}. "
            f"`optimize batch show {study} --where status=failed` lists them; the same command tries them again"
        )


@batch.command()
@click.argument("study", required=False, type=click.Path(path_type=Path))
@listed("batch show")
def show(
    study: Path | None, store: str | None, tokens: float | None, where: tuple[str, ...], rows: int, **how: Any
) -> None:
    """Show the results of STUDY so far, or all of a --store."""
    if study is not None and study.suffix != ".toml" and store is None:
        study, store = None, str(study)
    if study is None and store is None:
        raise click.UsageError("name a study file, or a --store")
    from optimizer.sweep.results import chosen
    from optimizer.sweep.store import Store

    _check_targets(how["html"])
    prices = book(how)
    runs = how.pop("runs")
    checked, tasks = _tasks(study, runs) if study else (None, None)
    place = default_store(study or Path()) if store is None else store
    with waiting("reading the store"), closing(Store(place, read_only=True)) as stored:
        stored_wholes = _wholes(stored, checked, tasks, prices, tokens or 0.0)
        if tasks and len(stored_wholes) < len(tasks):
            click.echo(f"optimize: {_absent(len(stored_wholes), len(tasks), stored.label, study)}", err=True)
        wholes = chosen(stored_wholes, where)
    _show(checked.name if checked else Path(stored.label).name, wholes, rows=rows, **how)


@batch.command(short_help="Copy the answers of stores into one.")
@click.argument("into", shell_complete=paths)
@click.argument("stores", nargs=-1, required=True, shell_complete=paths)
def merge(into: str, stores: tuple[str, ...]) -> None:
    """Copy the answers of STORES into the store INTO, as after the shards of an array job."""
    from optimizer.sweep.store import Store

    with ExitStack() as opened:
        # Every source before the target, which is made where it is not there.
        sources = [opened.enter_context(closing(Store(name, read_only=True))) for name in stores]
        target = opened.enter_context(closing(Store(into)))
        conflicts = 0
        for source in sources:
            with waiting("copying"):
                taken = target.take_from(source)
            conflicts += len(taken.conflicts)
            click.echo(f"{source.label}: {taken.count:,} answers taken", err=True)
            if taken.conflicts:
                click.echo(
                    f"warning: {len(taken.conflicts):,} answers of {source.label} differ from those in {target.label}, "
                    f"which are kept; the first has the key {taken.conflicts[0]}",
                    err=True,
                )
    if conflicts:
        raise PartialFailure(f"{conflicts:,} answers of one key differ; plan these jobs again in a new store")


def _absent(there: int, jobs: int, store: str, study: Path | None) -> str:
    """What to know of a store that has some jobs of a study alone: a shard's, or of the study before it was changed."""
    return (
        f"{there:,} of the {jobs:,} jobs of {study} are in {store}; "
        f"`optimize batch {study} --store {store}` plans the others, `optimize batch merge` adds those of other stores"
    )


def default_store(study: Path) -> str:
    """The store of a study that names none: an SQLite file in the working folder.

    >>> default_store(Path("runs/llama.toml"))
    'llama.db'
    """
    return study.with_suffix(".db").name


def make_job(combination: Combination, runs: str = "") -> Job:
    """The job of one combination, with the defaults of `optimize` and what the user's own runs say."""
    job, _ = job_of(request_of(combination.options, runs=runs))
    tokens = combination.options["tokens_per_batch"]
    return job if tokens is None else replace(job, global_batch=max(1, tokens // job.seq_len))


def _tasks(path: Path, runs: str = "") -> tuple[Study, tuple[Task, ...]]:
    from optimizer.commands.own_runs import own_files
    from optimizer.sweep.expansion import tasks_of
    from optimizer.sweep.study_file import read_study
    from optimizer.sweep.work import cost_model_version

    with waiting("reading the study"):
        study = read_study(path)
        if named := runs or study.runs:
            own_files(named)
        tasks = tasks_of(study, partial(make_job, runs=named), cost_model_version())
    if not tasks:
        raise InputError(f"{path}: the exclusions leave no job; `optimize batch --help` shows how they are read")
    return study, tasks


def _engine(name: str, address: str, workers: int | None) -> Engine:
    if name == "ray":
        from optimizer.sweep.ray_engine import RayEngine

        return RayEngine(address=address)
    from optimizer.sweep.local import LocalEngine, processors

    return LocalEngine(workers=workers or processors())


def _outlook(study: Study, tasks: Sequence[Task], place: str, workers: int | None, as_json: bool) -> str:
    """What `--dry-run` prints."""
    from optimizer.sweep.connection import NoBatch
    from optimizer.sweep.local import processors
    from optimizer.sweep.progress import forecast, outlook_lines
    from optimizer.sweep.store import Store

    try:
        with closing(Store(place, read_only=True)) as stored:
            rows = stored.rows([task.key for task in tasks])
    except NoBatch:
        rows = []
    outlook = forecast(tasks, rows, workers or processors())
    if as_json:
        return json.dumps({"schema_version": 1, "study": study.name, **asdict(outlook)}, indent=2)
    return "\n".join(outlook_lines(study.name, outlook))


def _wholes(
    store: Store, study: Study | None, tasks: Sequence[Task] | None, prices: PriceBook, tokens: float = 0.0
) -> list[dict[str, Any]]:
    """The results of a study in its order, or everything in a store; of runs of so many tokens where they are said."""
    from optimizer.sweep.money import with_own
    from optimizer.sweep.results import nested

    if study is None or tasks is None:
        return [nested(row, token_budget=tokens, book=prices) for row in store.rows()]
    own = with_own(prices, study.prices)
    scenarios = {task.key: task.scenario for task in tasks}
    return [
        nested(replace(row, scenario=scenarios[row.key]), token_budget=tokens or study.token_budget, book=own)
        for row in store.rows(list(scenarios))
    ]


def _show(
    name: str,
    wholes: Sequence[Mapping[str, Any]],
    *,
    export: str | None,
    html: Path | None,
    dashboard: str | None,
    as_json: bool,
    rows: int,
) -> None:
    """Write the files that were asked for, then the export, the JSON or the tables on stdout."""
    if html is not None:
        from optimizer.sweep.page import write_page

        for path in write_page(name, wholes, html):
            click.echo(f"wrote {path}", err=True)
    if dashboard is not None:
        from optimizer.sweep.dashboard import publish

        count = publish(dashboard, name, wholes)
        click.echo(f"wrote {count:,} trials of the study {name!r}", err=True)
    if export is not None:
        from optimizer.sweep.results import exported

        click.echo(exported(wholes, export), nl=False)
        return
    from optimizer.sweep.report import batch_report, summary

    if as_json:
        click.echo(json.dumps(summary(name, wholes), indent=2))
        return
    print_screen(batch_report(name, wholes, rows=rows))


def _check_targets(html: Path | None) -> None:
    """Find out before the work, not after it, that the table beside the report cannot be written."""
    if html is not None:
        files.free_for(html.with_suffix(".csv"), files.CSV)
        refuse_inputs(html)
