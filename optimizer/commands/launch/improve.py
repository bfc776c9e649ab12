"""`optimize improve`: from a launch as it is to a better one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optimizer.base.errors import InputError, InvalidFile
from optimizer.commands.completion import paths
from optimizer.commands.options import ReadingCommand, book, help_text, listed
from optimizer.commands.output import show
from optimizer.commands.values import TextType, shell_variable, words
from optimizer.commands.waiting import waiting

if TYPE_CHECKING:
    from optimizer.catalog.offers import PriceBook
    from optimizer.frameworks.files import File
    from optimizer.frameworks.launch import Source
    from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead
    from optimizer.improve.edits import Improvement
    from optimizer.improve.report import Flags
    from optimizer.improve.state import Edit, WholeRun

SECONDS = 3600.0  # of an hour
NOTHING = "nothing to patch: no plan of the space that is sure to fit is faster"


@click.command(cls=ReadingCommand, help=help_text("improve"))
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=paths)
@listed("improve", variable=TextType("name=value", shell_variable))
def improve(*, files: tuple[str, ...], as_json: bool, html: Path | None, diff: bool, take: str, **options: Any) -> None:
    """Read, price, search, print."""
    from optimizer.catalog.readers.lengths import lengths_text
    from optimizer.frameworks.files import read_files
    from optimizer.frameworks.launch_as_read import Controls, launch_as_read
    from optimizer.frameworks.read import read_launch
    from optimizer.improve.writable import improve_files

    if diff and (as_json or html):
        raise click.UsageError("--diff prints a patch alone; leave out --json and --html")
    tokens, price, flex = options.pop("tokens"), options.pop("price"), options.pop("flex")
    hbm, started = options.pop("hbm_limit"), (words(options.pop("arguments")), dict(options.pop("env")))
    prices, root, runs = book(options), options.pop("root"), options.pop("runs")
    texts = read_files(files, *started, root, options.pop("section") or "")
    controls = Controls(hbm=hbm or 0.0, lengths=lengths_text(options.pop("lengths")), **options)
    try:
        source = read_launch(texts, controls.gpus, controls.model)
    except InvalidFile:
        _refuse_logs(files)
        raise
    question = launch_as_read(source.launch, controls, ", ".join(files))
    if runs:
        from optimizer.commands.own_runs import with_own_runs

        question = replace(question, job=with_own_runs(question.job, runs))
    with waiting("planning"):
        improvement = improve_files(question, source, flex_batch=flex == "batch")
    if diff:
        with waiting("writing the patch"):
            patch = patch_of(improvement, source, texts, controls, take)
        click.echo(patch, nl=False)
        if better := beyond_of(improvement, source):
            click.echo(better, err=True)
        return
    flags = flags_of(improvement, source, texts, controls)
    run = run_of(tokens or question.settings.get("tokens"), price, prices, question)
    from optimizer.improve.report import improve_report, improvement_dict

    show(
        html,
        as_json,
        lambda: improve_report(improvement, files, flags, run),
        lambda: improvement_dict(improvement, flags, run),
    )


def _refuse_logs(paths: Sequence[str]) -> None:
    """Raise InvalidFile where one of the files is a training log, which the reader of launches cannot tell."""
    from optimizer.diagnose.log import read_log

    for path in paths:
        try:
            is_log = any(run.program for run in read_log(path))
        except InputError:
            continue
        if is_log:
            raise InvalidFile(path, [f"a training log, no launch; `optimize read {path}` reads it"])


def flags_of(improvement: Improvement, source: Source, files: Sequence[File], controls: Controls) -> Flags:
    """What to write otherwise for every edit, by its id; what cannot be written goes to the launch."""
    from optimizer.improve.edits import unset
    from optimizer.improve.patch import changes_of

    launch = improvement.question.launch
    launch.unsearched += unset(improvement)
    better = beyond_of(improvement, source)
    launch.unwritten += [better] if better else []
    launch.unwritten += unpatched(improvement, source, files, controls)
    return {id(edit): changes_of(source, improvement.question, edit) for edit in improvement.every}


def unpatched(improvement: Improvement, source: Source, files: Sequence[File], controls: Controls) -> list[str]:
    """The edits told of which --diff writes none, by their names, and why."""
    from optimizer.improve.report import shown_edits

    reasons: dict[str, list[str]] = {}
    for name, edit in shown_edits(improvement):
        try:
            edited(improvement, source, edit, files, controls)
        except InputError as error:
            reasons.setdefault(str(error), []).append(name)
    return [f"{', '.join(names)}: {why}" for why, names in reasons.items()]


def edited(
    improvement: Improvement, source: Source, edit: Edit, files: Sequence[File], controls: Controls
) -> Mapping[str, bytes]:
    """The files with an edit made; raises InputError where there is no way to write it."""
    from optimizer.frameworks.launch_as_read import launch_as_read
    from optimizer.frameworks.read import read_launch, with_followed
    from optimizer.improve.patch import patched

    if unpriced := improvement.question.launch.unpriced:
        raise InputError(f"no patch: not priced: {', '.join(unpriced)}; what it gains is not known")
    names = ", ".join(file.name for file in files)

    def reread(written: Sequence[File]) -> LaunchAsRead:
        return launch_as_read(read_launch(written, controls.gpus, controls.model).launch, controls, names)

    return patched(source, improvement.question, edit, with_followed(files, source), reread)


def beyond_of(improvement: Improvement, source: Source) -> str:
    """The better plan that the files cannot say, why and what it gains, in words; "" for none."""
    from optimizer.improve.patch import changes_of
    from optimizer.improve.report import changes_text

    beyond, best = improvement.beyond, improvement.best
    if beyond is None:
        return ""
    why = source.lacking(changes_of(source, improvement.question, beyond))
    instead = f", not {best.gain:.1%}" if best else ""
    return f"{why}; but for that, {beyond.gain:.1%} more is in reach{instead}: {changes_text(beyond)}"


def patch_of(improvement: Improvement, source: Source, files: Sequence[File], controls: Controls, take: str) -> str:
    """The patch of one edit, two, or all of them, as `patch -p0` takes it.

    Args:
        improvement: the launch and its edits.
        source: its files as they were read.
        files: its files.
        controls: what the user said besides.
        take: "one", "two" or "all".

    Raises:
        InputError: there is nothing to patch, or no way to write it.
    """
    from optimizer.frameworks.read import with_followed
    from optimizer.improve.patch import unified

    # The edit that was asked for: of fewer changes where more gain nothing.
    usable = [edit for edit in improvement.edits if edit.sure or not improvement.current.fits]
    first = usable[0] if usable else None
    two = improvement.pair or first
    edit = first if take == "one" else two if take == "two" else improvement.best or two
    if edit is None:
        better = beyond_of(improvement, source)
        raise InputError(f"no patch: {better}" if better else NOTHING)
    return unified(with_followed(files, source), edited(improvement, source, edit, files, controls))


def run_of(tokens: float | None, price: float | None, prices: PriceBook, question: LaunchAsRead) -> WholeRun | None:
    """The run whose days and dollars are told, None where its tokens are not known; `price` [USD/h] of a GPU."""
    if not tokens:
        return None
    from optimizer.catalog.offers import quote
    from optimizer.improve.state import WholeRun

    cluster = question.job.cluster
    offer = prices.rent(cluster.device.name, cluster.name)
    if price:
        offer = quote(cluster.device.name, prices.term or "on_demand", price / SECONDS, row=f"--price {price:g}")
    return WholeRun(tokens=tokens, offer=offer)
