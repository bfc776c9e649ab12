"""What a visitor's files say: of a launch its price, edits and patches, of a log the causes, of a model the question.

Nothing of them is run, no file that they name is opened.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from optimizer.base.errors import InputError, OptimizerError
from optimizer.base.units import is_count
from optimizer.catalog.models import model_names, model_spellings, preset_model
from optimizer.catalog.offers import book_of
from optimizer.catalog.readers.model_file import model_text
from optimizer.catalog.sealed import sealed
from optimizer.commands.launch.improve import flags_of, patch_of, run_of
from optimizer.commands.launch.read import diagnoses_of
from optimizer.diagnose.measured import logged_runs, measured
from optimizer.diagnose.reference import script_reference
from optimizer.diagnose.report import logs_report
from optimizer.frameworks.files import File, launch_file
from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead, launch_as_read
from optimizer.frameworks.read import read_launch
from optimizer.improve.report import improve_report
from optimizer.improve.writable import improve_files
from optimizer.objectives.step.interval import mfu
from optimizer.page.improve.files import Named, given, is_log
from optimizer.page.improve.question import LaunchQuestion
from optimizer.page.plan.engine import answered
from optimizer.page.plan.own_files import FILE, kind_of, name_of, packed
from optimizer.page.plan.question import FILES, asked
from optimizer.page.plan.views.shown import fragment
from optimizer.reports.report import Pairs, Report, section

Own = Mapping[str, str]  # texts of files that describe a model, a cluster or runs, by kind
DESCRIBING = (".json", ".toml", ".csv")  # how they end
TAKES = {"one": "The best single edit", "two": "The best two", "all": "All of them"}
LOGGED = ("gpus", "seq_len", "global_batch")  # what a log may say of the question
DEGREES = ("tp", "cp", "ep", "pp", "vpp", "micro_batch")
EXPERTS = ("ep", "etp")
RUN = (*DEGREES, "etp", "recompute", "zero_stage")  # by which the plan of a launch is compared with the best
AT_LEFT = " (the fields Model, Machine and GPUs stand for --model, --cluster and --gpus)"


def improve_view(asks: LaunchQuestion, body: bytes = b"") -> dict[str, Any]:
    """What the files say, and the address of the question that they ask on the Plan tab.

    Raises InputError for what is no launch, log, model or cluster.
    """
    asks = replace(asks, files=tuple(given(body))) if body else asks
    given_html = fragment("given.html", "improve", asked=asks)
    values = {"answer": "", "title": "", "address": asks.address(), "put": {"given": given_html}, "pending": False}
    if not asks.files:
        return values
    rest, own = _parted(asks.files)
    with tempfile.TemporaryDirectory(prefix="pasted-") as folder, sealed(Path(folder)):
        try:
            shown = _content(asks, rest, own, Path(folder))
            title = shown["report"].title.replace(f"{folder}/", "")
            usual = {"patches": (), "machine": "", "launch": None}
            html = fragment("launch.html", "improve", **{"asked": asks, **usual, **shown})
        except OptimizerError as error:
            text = str(error).replace(f"{folder}/", "")
            raise InputError(
                text + AT_LEFT * any(word in text for word in ("--model", "--gpus", "--cluster"))
            ) from None
    return {**values, "answer": html.replace(f"{folder}/", ""), "title": title, "plan": shown["plan"]}


def _parted(files: Sequence[Named]) -> tuple[list[Named], dict[str, str]]:
    """The files of a launch or a log, and the texts of those that describe a model, a cluster or runs."""
    rest, own = [], dict[str, str]()
    for name, data in files:
        text = data.decode("utf-8", "replace")
        if kind := kind_of(text) if name.endswith(DESCRIBING) else "":
            own[kind] = text
        else:
            rest.append((name, data))
    return rest, own


def _content(asks: LaunchQuestion, files: Sequence[Named], own: Own, folder: Path) -> dict[str, Any]:
    """What launch.html shows."""
    stated: dict[str, Any] = {kind: getattr(asks, kind) for kind in ("model", "cluster")}
    for kind in stated.keys() & own.keys():
        text = own[kind]
        place = folder / f"own-{name_of(kind, text)}"
        place.write_text(text, encoding="utf-8")
        stated[kind] = str(place)
    logs = [_written(folder, file) for file in files if is_log(*file)]
    others = [launch_file(File(str(folder / name), data)) for name, data in files if not is_log(name, data)]
    scripts = [str(_written(folder, (Path(file.name).name, file.data))) for file in others if logs]
    diagnosis = _of_logs(asks, logs, scripts, stated, own) if logs else None
    if others:
        launch = _of_launch(asks, others, stated, own)
        return {**launch, "report": diagnosis["report"], "launch": launch["report"]} if diagnosis else launch
    if diagnosis:
        return diagnosis
    rows = [(kind, f"{name_of(kind, text)}, {len(text):,} characters") for kind, text in own.items()]
    report = Report(title=f"{' and '.join(own).capitalize()} of your own", sections=(section("", Pairs(rows)),))
    return {"report": report, "plan": _own_plan(asks, own)}


def _written(folder: Path, file: Named) -> Path:
    name, data = file
    (folder / name).write_bytes(data)
    return folder / name


def _of_launch(asks: LaunchQuestion, files: list[File], stated: Mapping[str, Any], own: Own) -> dict[str, Any]:
    """A launch: what was understood of it, its edits with their patches, the question that it asks."""
    controls = Controls(**stated, gpus=int(asks.gpus) if asks.gpus else None)
    names = [Path(file.name).name for file in files]
    source = read_launch(files, controls.gpus, controls.model)
    question = launch_as_read(source.launch, controls, ", ".join(names))
    improvement = improve_files(question, source)
    flags = flags_of(improvement, source, files, controls)
    patches: list[tuple[str, str, str]] = []
    for take, title in TAKES.items():
        try:
            text = patch_of(improvement, source, files, controls, take)
        except InputError as error:
            text = str(error)
        if text not in [before for *_, before in patches]:
            patches.append((take, title, text))
    run = run_of(question.settings.get("tokens"), None, book_of(), question)
    return {
        "report": improve_report(improvement, names, flags, run),
        "patches": patches,
        "machine": source.launch.machine,
        "plan": _launch_plan(asks, question, own),
    }


def _of_logs(
    asks: LaunchQuestion, logs: Sequence[Path], scripts: Sequence[str], stated: Mapping[str, Any], own: Own
) -> dict[str, Any]:
    """Logs, held to the launch that started them where it was given too."""
    logged, columns = logged_runs(logs), {"model": stated["model"]} if stated["model"] else {}
    expected = None
    if scripts:
        expected = script_reference(scripts, columns, [measured(run, columns) for run in logged], stated["cluster"])
    runs = [measured(run, {**(expected.sizes if expected else {}), **columns}) for run in logged]
    report = logs_report(runs, diagnoses_of(runs, expected))  # what was assumed of the launch stands in its own
    chosen = {name: value for name in ("model", "cluster") if (value := getattr(asks, name))}
    stated, took = {**_logged(runs[0].facts), **chosen}, runs[0].step_time
    if expected or not (took or asks.plan or "model" in stated):  # else it would be the plan of any job
        return {"report": report, "plan": ""}
    plan = replace(asks.before(), **stated)
    best = answered(plan).answer
    rows = []
    if took and best.estimate:
        share, title = mfu(best.job, took), best.job.model.title or best.job.model.name
        rows = [("MFU", "more than the peak: it trained something else, choose the model")]
        if share <= 1:
            rows = [
                ("MFU", f"{share:.1%} of the peak, if the model is {title}"),
                ("the best plan", f"{took / best.estimate.step_time:.2f} times as fast, if it is that job"),
            ]
    more = section("Beside the best plan", "Give the script that started it too: it tells why.", Pairs(rows))
    return {"report": replace(report, sections=(*report.sections, more)), "plan": plan.address()}


def _logged(facts: Mapping[str, str]) -> dict[str, Any]:
    """What a log printed of the question."""
    whole = {name: value.removesuffix(".0") for name, value in facts.items()}
    positive = {name: value for name, value in whole.items() if is_count(value) and int(value) > 0}
    changes: dict[str, Any] = {name: int(positive[name]) for name in LOGGED if name in positive}
    spelled = {key.lower(): name for key, name in model_spellings().items()}
    if model := spelled.get(facts.get("model", "").lower()):
        changes["model"] = model
    degrees = [name for name in DEGREES if name in facts]
    if degrees and set(degrees) <= positive.keys():
        changes["mine"] = (",".join(f"{name}={positive[name]}" for name in degrees),)
    return changes


def _own_plan(asks: LaunchQuestion, own: Own) -> str:
    """The address on the Plan tab of the question there about a model, a cluster or runs of the visitor's own."""
    changes: dict[str, Any] = {**dict.fromkeys(own, FILE), **{f"{kind}_file": text for kind, text in own.items()}}
    return replace(asks.before(), **changes).address()


def _launch_plan(asks: LaunchQuestion, question: LaunchAsRead, own: Own) -> str:
    """The address of what the launch asks, its plan beside the best; "" where the Plan tab has no such question.

    A model that is no preset travels as it was read.
    """
    job, plan, before = question.job, question.plan, asks.before()
    preset = job.model.name in model_names() and preset_model(job.model.name) == job.model
    own = own if preset or "model" in own else {**own, "model": model_text(job.model)}
    values: dict[str, Any] = {
        "model": job.model.name,
        "cluster": job.cluster.name,
        "gpus": job.gpus,
        "seq_len": job.seq_len,
        "global_batch": job.global_batch,
        "dtype": job.dtype,
        "stack": question.stack.name,
        "tokens": question.settings.get("tokens") or before.tokens,
        "mine": ",".join(f"{name}={getattr(plan, name)}" for name in RUN if job.model.experts or name not in EXPERTS),
    }
    for kind, text in own.items():
        values |= {kind: FILE, f"{kind}_file": text}
    try:
        return asked([(name, packed(v) if name in FILES else str(v)) for name, v in values.items()]).address()
    except InputError:
        return ""
