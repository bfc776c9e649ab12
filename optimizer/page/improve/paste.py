"""A pasted launch script, config or log: what it says, what it is worth, and the question that it asks."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from optimizer.base.errors import InputError, OptimizerError
from optimizer.base.units import seconds
from optimizer.catalog.models import model_spellings
from optimizer.diagnose.measured import Measured, read_runs_of
from optimizer.frameworks.launch import WORDS, Source
from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead, launch_as_read
from optimizer.frameworks.read import LARGEST, File, read_launch
from optimizer.improve.edits import Improvement, improve, unset
from optimizer.improve.patch import changes_of
from optimizer.improve.report import SHOWN, changes_text, flag_text, value_text
from optimizer.improve.state import State
from optimizer.objectives.step.interval import mfu
from optimizer.page.plan.engine import answered
from optimizer.page.plan.own_files import FILE, KINDS, described_as, kind_of, name_of, packed, sealed
from optimizer.page.plan.question import FILES, PlanQuestion, asked
from optimizer.page.plan.views.shown import fragment
from optimizer.reports.known_values import step_words
from optimizer.reports.plan_words import pins_of_plan, show_gigabytes

ENDINGS = (".sh", ".json", ".toml", ".yaml", ".py")  # what a pasted text may be, told by which of them it reads as
Own = Mapping[str, Any]  # what files of the visitor say of a question: model="file", model_file=its text
DESCRIBING = (".json", ".toml")  # how files end that describe a model or a cluster
MOST_FILES, LONGEST_NAME = 8, 80
HEAD = re.compile(rb"^==> (.+) <==[ \t]*\r?\n", re.MULTILINE)
NAME = "pasted"
LOGGED = ("gpus", "seq_len", "global_batch")  # what a log may say of the question
# What a launch may leave open, by what it is called, and what is taken from the controls until it is enough.
LEFT_OPEN = {"model": "the model", "gpus": "the number of GPUs", "cluster": "the cluster"}
TAKEN = ((), ("model",), ("gpus",), ("model", "gpus"), ("model", "gpus", "cluster"))
DEGREES = ("tp", "cp", "ep", "pp", "vpp", "micro_batch")


@dataclass(frozen=True, kw_only=True)
class Read:
    """A launch that was read, with what it asks."""

    source: Source
    question: LaunchAsRead
    taken: str = ""  # a sentence: what the controls had to add


def paste_view(before: PlanQuestion, body: bytes) -> dict[str, Any]:
    """What was pasted, and the address of the question that it asks.

    Nothing of it is run, no file that it names is opened. Raises InputError for what is no launch, log, model or
    cluster.
    """
    files, own = _parted(_files(body))
    if not files:
        return _of_own(replace(before, **own), own)
    with tempfile.TemporaryDirectory(prefix="pasted-") as folder, sealed(Path(folder)):
        try:
            launch = _launch(before, files, own, Path(folder))
        except InputError as error:
            raise InputError(str(error).replace(str(folder) + "/", "")) from None
        if isinstance(launch, Read):
            return _of_launch(before, launch, own)
        path = Path(folder) / f"{NAME}.log"
        path.write_bytes(files[0][1])
        try:
            runs = read_runs_of([path], {})
        except OptimizerError:
            raise InputError(launch.replace(str(folder) + "/", "")) from None
    return _of_log(replace(before, **own), runs[0])


def _files(body: bytes) -> list[tuple[str, bytes]]:
    r"""What was sent, by name: {"pasted": [[name, text], ...]}, or a text of no name.

    In a text of no name, a line ==> name <== begins a file, as `head` and `tail` print several.

    >>> _files(b'{"pasted": [["../run.sh", "torchrun"]]}'), _files(b"torchrun")
    ([('run.sh', b'torchrun')], [('', b'torchrun')])
    >>> _files(b"==> a.sh <==\ntorchrun\n==> b.json <==\n{}")
    [('a.sh', b'torchrun\n'), ('b.json', b'{}')]
    """
    try:
        sent = json.loads(body)["pasted"]
        files = [(_harmless(str(name)), str(text).encode("utf-8", "replace")) for name, text in sent]
    except (ValueError, TypeError, KeyError, RecursionError):
        files = [("", body)]
    if len(files) == 1 and not files[0][0]:
        first, *more = HEAD.split(files[0][1])
        names = (_harmless(name.decode("utf-8", "replace")) for name in more[::2])
        files = [("", first), *zip(names, more[1::2], strict=True)]
    size = sum(len(data) for _, data in files)
    if size > LARGEST:
        raise InputError(f"{size / 1e6:.1f} MB were pasted: at most {LARGEST / 1e6:.0f} MB are read")
    if len(files) > MOST_FILES:
        raise InputError(f"{len(files)} files are more than the {MOST_FILES} that one launch may have")
    files = [(name, data) for name, data in files if data.strip()]
    if not files:
        raise InputError("nothing was pasted; put a launch script, a config or a log into the box")
    return files


def _harmless(name: str) -> str:
    """A name that means nothing but itself: no folder, plain characters."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name.replace("\\", "/").rpartition("/")[2])[-LONGEST_NAME:].lstrip(".")


def _parted(files: Sequence[tuple[str, bytes]]) -> tuple[list[tuple[str, bytes]], dict[str, Any]]:
    """The files of a launch or a log, and what the others say of the question: a model, a cluster."""
    rest, own = [], dict[str, Any]()
    for name, data in files:
        text = data.decode("utf-8", "replace")
        if kind := kind_of(text) if not name or name.endswith(DESCRIBING) else "":
            own |= {kind: FILE, f"{kind}_file": text}
        else:
            rest.append((name, data))
    return rest, own


def _of_own(asks: PlanQuestion, own: Own) -> dict[str, Any]:
    """A model or a cluster alone: the question about it."""
    job = answered(asks).answer.job
    rows = [(kind, f"{getattr(job, kind).name}, of your file") for kind in KINDS if kind in own]
    return {
        "html": fragment("logged.html", title="What the file describes", rows=rows, warnings=()),
        "address": asks.address(),
    }


def _launch(before: PlanQuestion, files: Sequence[tuple[str, bytes]], own: Own, folder: Path) -> Read | str:
    """The launch, or why it is none: the reason of the kind that it looks like, else of a bash script.

    A text without a name is tried as each kind of file; files with names are what their names say.
    """
    named = len(files) > 1 or bool(Path(files[0][0]).suffix)
    given: dict[str, Any] = {}
    for kind in (kind for kind in KINDS if kind in own):
        text = own[f"{kind}_file"]
        place = folder / f"own-{name_of(kind, text)}"
        place.write_text(text, encoding="utf-8")
        given[kind] = str(place)
    reasons: list[str] = []
    for ending in ("",) if named else ENDINGS:
        if launch := _read_as(before, _named(files, ending, folder), given, reasons):
            return launch
    like = "" if named else described_as(files[0][1].decode("utf-8", "replace"))
    return reasons[ENDINGS.index(like)] if like else reasons[0]


def _named(files: Sequence[tuple[str, bytes]], ending: str, folder: Path) -> list[File]:
    """The files by names of their own; a text without one is a bash script beside other files."""
    names = [name or f"{NAME}{ending or ENDINGS[0]}" for name, _ in files]
    names = [name if names.index(name) == at else f"{at}-{name}" for at, name in enumerate(names)]
    return [File(str(folder / name), data) for name, (_, data) in zip(names, files, strict=True)]


def _read_as(before: PlanQuestion, files: list[File], given: Own, reasons: list[str]) -> Read | str:
    """The launch in these files, or why it is none, "" where they are not even of this kind.

    What it leaves open is taken from the controls, no more than that.
    """
    shown = {kind: given.get(kind, getattr(before, kind)) for kind in LEFT_OPEN}
    first = ""
    for taken in TAKEN:
        had: dict[str, Any] = {**given, **{kind: shown[kind] for kind in taken if shown[kind] != FILE}}
        try:
            source = read_launch(files, had.get("gpus"), had.get("model", ""))
        except (OptimizerError, OSError, ValueError) as error:
            if not taken:
                reasons.append(str(error))
            continue
        try:
            question = launch_as_read(source.launch, Controls(**had), NAME)
        except OptimizerError as error:
            first = first or str(error)
            continue
        named = " and ".join(LEFT_OPEN[kind] for kind in taken if kind not in given)
        sentence = f"Left open by the text, taken from the room: {named}." if named else ""
        return Read(source=source, question=question, taken=sentence)
    return first


def _of_launch(before: PlanQuestion, read: Read, own: Own) -> dict[str, Any]:
    question, launch = read.question, read.question.launch
    improvement = improve(question)
    launch.unsearched += unset(improvement)
    asks, problem = _asks(before, question, own)
    html = fragment(
        "pasted.html",
        program=launch.program,
        understood=[(WORDS[name], value_text(entry["value"])) for name, entry in launch.understood().items()],
        now=improvement.current,
        rows=list(_edits(read.source, improvement)),
        notes=[text for text in (read.taken, problem) if text],
        assumed=launch.assumed,
        kept=launch.unsearched,
        ignored=launch.ignored,
        unpriced=launch.unpriced,
        step=_step(improvement.current),
        memory=show_gigabytes(improvement.current.estimate.reserved),
    )
    return {"html": html, "address": asks.address() if asks else ""}


def _step(state: State) -> str:
    return step_words(state.job, state.plan, state.estimate.step_time)


def _edits(source: Source, improvement: Improvement) -> Iterator[tuple[str, ...]]:
    """Every edit with what it gains and how to write it."""
    named = [(f"one {place}", edit) for place, edit in enumerate(improvement.edits[:SHOWN], 1)]
    named += [(name, edit) for name, edit in (("two", improvement.pair), ("all", improvement.best)) if edit]
    for name, edit in named:
        flags = changes_of(source, improvement.question, edit)
        yield (
            name,
            changes_text(edit),
            "; ".join(map(flag_text, flags)),
            _step(edit.after),
            f"{edit.gain:+.1%}",
            show_gigabytes(edit.after.estimate.reserved),
            f"{edit.after.chance:.0%}",
        )


def _asks(before: PlanQuestion, question: LaunchAsRead, own: Own) -> tuple[PlanQuestion | None, str]:
    """The question that the launch asks, its plan compared with the best; None and why where the page has no such."""
    job, plan = question.job, question.plan
    values: dict[str, Any] = {
        "model": job.model.name,
        "cluster": job.cluster.name,
        "gpus": job.gpus,
        "seq_len": job.seq_len,
        "global_batch": job.global_batch,
        "dtype": job.dtype,
        "stack": question.stack.name,
        "tokens": question.settings.get("tokens") or before.tokens,
        "mine": ",".join((pins_of_plan(plan), f"recompute={plan.recompute}", f"zero_stage={plan.zero_stage}")),
    }
    values |= {name: packed(text) if name in FILES else text for name, text in own.items()}
    try:
        return asked([(name, str(value)) for name, value in values.items()]), ""
    except InputError as error:
        return None, f"The controls keep their values: {error}"


def _of_log(before: PlanQuestion, run: Measured) -> dict[str, Any]:
    """A log: its steady step time and the best plan of the question that it asks."""
    asks = _logged(before, run.facts)
    answer = answered(asks).answer
    took = run.steady.seconds if run.steady else None
    rows = [("program", run.program), ("status", run.status)]
    if run.steady and took:
        rows.append(("steady step", f"{seconds(took)}, {run.steady.steps_used} steps, spread {run.steady.spread:.1%}"))
        share, title = mfu(answer.job, took), answer.job.model.title or answer.job.model.name
        known = f"{share:.1%} of the peak, if the model is {title}"
        rows.append(("MFU", known if share <= 1 else "more than the peak: it trained something else, choose the model"))
    if run.memory:
        rows.append(("memory", f"{show_gigabytes(run.memory)} {run.memory_kind}"))
    if took and answer.estimate:
        best = answer.estimate.step_time
        rows.append(("the best plan", f"{seconds(best)} per step; the log's take {took / best:.2f} times as long"))
    if run.facts:
        rows.append(("settings", ", ".join(f"{name} {value}" for name, value in run.facts.items())))
    html = fragment("logged.html", title="What the log says", rows=rows, warnings=run.warnings)
    return {"html": html, "address": asks.address()}


def _logged(before: PlanQuestion, facts: Mapping[str, str]) -> PlanQuestion:
    """The question with what the log printed instead of the controls'."""
    whole = {name: value.removesuffix(".0") for name, value in facts.items()}
    positive = {name: value for name, value in whole.items() if value.isdecimal() and int(value) > 0}
    changes: dict[str, Any] = {name: int(positive[name]) for name in LOGGED if name in positive}
    spelled = {key.lower(): name for key, name in model_spellings().items()}
    if model := spelled.get(facts.get("model", "").lower()):
        changes["model"] = model
    degrees = [name for name in DEGREES if name in facts]
    if degrees and set(degrees) <= positive.keys():
        changes["mine"] = (",".join(f"{name}={positive[name]}" for name in degrees),)
    return replace(before, **changes)
