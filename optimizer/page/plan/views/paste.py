"""A pasted launch script, config or log: what it says, what it is worth, and the question that it asks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from optimizer.errors import InputError, OptimizerError
from optimizer.improve.edits import Improvement, improve, unset
from optimizer.improve.patch import changes_of
from optimizer.improve.report import SHOWN, changes_text, flag_text, value_text
from optimizer.logs.measured import Measured, read_runs_of
from optimizer.objectives.step.interval import mfu
from optimizer.page.plan.engine import answered
from optimizer.page.plan.question import Asked, asked
from optimizer.page.plan.sealed import sealed
from optimizer.page.plan.views.shown import fragment
from optimizer.plan import Plan
from optimizer.presets.models import model_spellings
from optimizer.reports.answer_page.words import pins_of_plan
from optimizer.reports.plan_report import show_gigabytes
from optimizer.scripts.launch import WORDS
from optimizer.scripts.question import Controls, Question, question_of
from optimizer.scripts.read import LARGEST, File, read_launch
from optimizer.scripts.source import Source
from optimizer.units import seconds

KINDS = (".sh", ".json", ".toml", ".yaml", ".py")  # what a pasted text may be, told by which of them it reads as
NAME = "pasted"
LOGGED = ("gpus", "seq_len", "global_batch")  # what a log may say of the question
DEGREES = ("tp", "cp", "ep", "pp", "vpp", "micro_batch")


@dataclass(frozen=True, kw_only=True)
class Read:
    """A launch that was read, with what it asks; `taken` says what the room had to add."""

    source: Source
    question: Question
    taken: str = ""


def paste_view(before: Asked, body: bytes) -> dict[str, Any]:
    """What was pasted, and the address of the question that it asks.

    Nothing of it is run, no file that it names is opened. Raises InputError for what is no launch and no log.
    """
    if len(body) > LARGEST:
        raise InputError(f"{len(body) / 1e6:.1f} MB were pasted: at most {LARGEST / 1e6:.0f} MB are read")
    if not body.strip():
        raise InputError("nothing was pasted; put a launch script, a config or a log into the box")
    with tempfile.TemporaryDirectory(prefix="pasted-") as folder, sealed(Path(folder)):
        found = _launch(before, body, Path(folder))
        if isinstance(found, Read):
            return _of_launch(before, found)
        path = Path(folder) / f"{NAME}.log"
        path.write_bytes(body)
        try:
            runs = read_runs_of([path], {})
        except OptimizerError:
            raise InputError(found.replace(str(folder) + "/", "")) from None
    return _of_log(before, runs[0])


def _launch(before: Asked, body: bytes, folder: Path) -> Read | str:
    """The launch, or why it is none: the reason of the kind that came furthest."""
    reasons = []
    for kind in KINDS:
        files = [File(str(folder / f"{NAME}{kind}"), body)]
        try:
            source = read_launch(files)
        except (OptimizerError, OSError, ValueError) as error:
            reasons.append(str(error))
            continue
        try:
            return Read(source=source, question=question_of(source.launch, Controls(), NAME))
        except OptimizerError as error:
            first = str(error)
        try:
            source = read_launch(files, before.gpus, before.model)
            controls = Controls(model=before.model, gpus=before.gpus, cluster=before.cluster)
            return Read(
                source=source,
                question=question_of(source.launch, controls, NAME),
                taken="The text leaves some of model, GPUs and cluster open: those of the room were taken.",
            )
        except OptimizerError:
            return first
    return reasons[0]


def _of_launch(before: Asked, read: Read) -> dict[str, Any]:
    question, launch = read.question, read.question.launch
    found = improve(question)
    launch.kept += unset(found)
    asks, told = _asks(before, question)
    html = fragment(
        "pasted.html",
        program=launch.program,
        understood=[(WORDS[name], value_text(said["value"])) for name, said in launch.understood().items()],
        now=found.current,
        rows=list(_edits(read.source, found)),
        notes=[text for text in (read.taken, told) if text],
        assumed=launch.assumed,
        kept=launch.kept,
        ignored=launch.ignored,
        step=seconds(found.current.estimate.step_time),
        memory=show_gigabytes(found.current.estimate.reserved),
    )
    return {"html": html, "address": asks.address() if asks else ""}


def _edits(source: Source, found: Improvement) -> Iterator[tuple[str, ...]]:
    """Every edit with what it gains and how to write it."""
    named = [(f"one {place}", edit) for place, edit in enumerate(found.edits[:SHOWN], 1)]
    named += [(name, edit) for name, edit in (("two", found.pair), ("all", found.best)) if edit]
    for name, edit in named:
        flags = changes_of(source, found.question, edit)
        yield (
            name,
            changes_text(edit),
            "; ".join(map(flag_text, flags)),
            seconds(edit.after.estimate.step_time),
            f"{edit.gain:+.1%}",
            show_gigabytes(edit.after.estimate.reserved),
            f"{edit.after.chance:.0%}",
        )


def _asks(before: Asked, question: Question) -> tuple[Asked | None, str]:
    """The question of the room that the launch asks, its plan held against the best; None where it has no such."""
    job = question.job
    values: dict[str, Any] = {
        "model": job.model.name,
        "cluster": job.cluster.name,
        "gpus": job.gpus,
        "seq_len": job.seq_len,
        "global_batch": job.global_batch,
        "dtype": job.dtype,
        "stack": question.stack.name,
        "tokens": question.settings.get("tokens") or before.tokens,
        "mine": _mine(question.plan),
    }
    try:
        return asked([(name, str(value)) for name, value in values.items()]), ""
    except InputError as error:
        return None, f"The controls keep their values: {error}"


def _mine(plan: Plan) -> str:
    return ",".join((pins_of_plan(plan), f"recompute={plan.recompute}", f"zero_stage={plan.zero_stage}"))


def _of_log(before: Asked, run: Measured) -> dict[str, Any]:
    """A log: its steady step time beside the best plan of the question that it asks."""
    asks = _logged(before, run.facts)
    answer = answered(asks).answer
    took = run.steady.seconds if run.steady else None
    rows = [("program", run.program), ("status", run.status)]
    if run.steady and took:
        rows.append(("steady step", f"{seconds(took)}, {run.steady.steps_used} steps, spread {run.steady.spread:.1%}"))
        share, title = mfu(answer.job, took), answer.job.model.title or answer.job.model.name
        says = (
            f"{share:.1%} of the peak"
            if share <= 1
            else "more than the peak: it trained something else, choose the model"
        )
        rows.append(("MFU", f"{says}, if the model is {title}" if share <= 1 else says))
    if run.memory:
        rows.append(("memory", f"{show_gigabytes(run.memory)} {run.memory_kind}"))
    if took and answer.estimate:
        best = answer.estimate.step_time
        rows.append(("the best plan", f"{seconds(best)} per step; the log's take {took / best:.2f} times as long"))
    rows += [("settings", ", ".join(f"{name} {value}" for name, value in run.facts.items()))] if run.facts else []
    html = fragment("logged.html", rows=rows, warnings=run.warnings)
    return {"html": html, "address": asks.address()}


def _logged(before: Asked, facts: Mapping[str, str]) -> Asked:
    """The question with what the log printed instead of the room's."""
    changes: dict[str, Any] = {}
    for name in LOGGED:
        number = facts.get(name, "").removesuffix(".0")
        if number.isdecimal() and int(number) > 0:
            changes[name] = int(number)
    spelled = {key.lower(): name for key, name in model_spellings().items()}
    if model := spelled.get(facts.get("model", "").lower()):
        changes["model"] = model
    degrees = {name: facts[name].removesuffix(".0") for name in DEGREES if name in facts}
    if degrees and all(value.isdecimal() and int(value) > 0 for value in degrees.values()):
        changes["mine"] = (",".join(f"{name}={value}" for name, value in degrees.items()),)
    return replace(before, **changes)
