"""Launches of every form, read to the last word: `readings.json` holds files, what they say, how an edit is written.

What the other tests read, as few of it as run every line of the readers. A wanted change:
`python -m tests.frameworks.test_readings`, and the difference tells what reads otherwise.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from contextlib import chdir
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from optimizer.base.errors import OptimizerError
from optimizer.catalog.models import load_model, model_names
from optimizer.constraints.space import domains
from optimizer.frameworks.files import File
from optimizer.frameworks.launch import Source
from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead, launch_as_read
from optimizer.frameworks.read import read_launch
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.job.variables import VARIABLES

PLACE = Path(__file__).with_name("readings.json")
READINGS: list[dict[str, Any]] = json.loads(PLACE.read_text())
# What stands for nothing, which most launches leave alone.
BARE = ([], {}, "", 0, 0.0, False, None, ())


def reading(files: Mapping[str, str], gpus: int | None, model: str) -> dict[str, Any]:
    """All that is read, and what up to seven other plans would have written otherwise; or why it is refused."""
    given = [File(name, text.encode("latin-1")) for name, text in files.items()]
    try:
        with chdir(PLACE.anchor):  # a machine may be told by the folder of its files
            source = read_launch(given, gpus, model)
        asked = launch_as_read(source.launch, Controls(gpus=gpus, model=model), "the launch")
    except OptimizerError as error:
        return {"refused": str(error)}
    said = {
        name: value
        for name, value in vars(source.launch).items()
        if value not in BARE and name not in ("leaves", "settings", "written", "following", "lacks", "clashes")
    }
    understood = {
        name: [asked.settings.get(name), source.launch.written.get(name, "")]
        for name in sorted(asked.settings)
        if asked.settings[name] not in BARE
    }
    plan = {name: value for name, value in asdict(asked.plan).items() if value != getattr(Plan(), name)}
    edits = [edit for after in _others(asked) if (edit := _edit(source, asked, after, files))]
    return {**said, "settings": understood, **_of_job(asked.job), "plan": plan, "edits": edits}


def _of_job(job: Job) -> dict[str, Any]:
    """What else is asked, and of which model: the name of a preset, or all sizes of another."""
    names = ("gpus", "seq_len", "global_batch", "dtype", "train", "base", "optimizer", "loss", "lengths", "packing")
    asked = {name: value for name in names if (value := getattr(job, name)) not in BARE}
    known = job.model.name in model_names() and load_model(job.model.name) == job.model
    sizes = {name: value for name, value in vars(job.model).items() if isinstance(value, str | int | float) and value}
    model = job.model.name if known else sizes
    return {"job": {**asked, "cluster": job.cluster.name, "stack": job.stack.name}, "model": model}


def _others(asked: LaunchAsRead) -> Iterator[Plan]:
    """Other plans that are searched: another recomputation, another ZeRO stage, larger micro-batches, tensors or stages
    in two where replicas were, no sequence parallelism, experts split as other weights or not.
    """
    plan, searched = asked.plan, domains(asked.job)
    after: list[dict[str, Any]] = [
        {"recompute": "none" if plan.recompute == "full" else "full", "recompute_layers": ()},
        {"zero_stage": 3 if plan.zero_stage < 3 else 1},
    ]
    if plan.num_microbatches % 2 == 0:
        after.append({"micro_batch": 2 * plan.micro_batch, "num_microbatches": plan.num_microbatches // 2})
    if plan.dp % 2 == 0 and not plan.layers_per_stage:
        fewer = {"dp": plan.dp // 2, "num_microbatches": 2 * plan.num_microbatches, "shard": 0}
        after += [{"tp": 2 * plan.tp, **fewer}, {"pp": 2 * plan.pp, **fewer}]
    if plan.tp > 1:
        after.append({"sequence_parallel": not plan.sequence_parallel})
    if plan.ep > 1:
        after.append({"etp": plan.tp if plan.etp == 1 else 1})
    for changes in after:
        name = next(iter(changes))
        if changes[name] in map(VARIABLES[name].pinned, searched[name]):
            yield replace(plan, **changes)


def _edit(source: Source, asked: LaunchAsRead, after: Plan, files: Mapping[str, str]) -> list[str]:
    """What changes, in words and by the first way to write it."""
    changes = source.changes(asked.job, asked.plan, after, {})
    told = [" -> ".join(change.written()) for change in changes]
    if why := source.lacking(changes):
        return [*told, f"no patch: {why}"]
    try:
        texts = next(iter(source.edited(changes)), {})
    except OptimizerError as error:
        return [*told, str(error)]
    for name in filter(texts.__contains__, files):
        before, now = files[name].splitlines(), texts[name].decode("latin-1").splitlines()
        told += [line for line in difflib.ndiff(before, now) if line[0] in "+-"]
    return told


def _plain(value: object) -> Any:
    """The same as JSON has it."""
    return json.loads(json.dumps(value, default=str))


@pytest.mark.parametrize("number", range(len(READINGS)))
def test_a_launch_is_read_to_the_last_word(number: int) -> None:
    known = READINGS[number]
    assert _plain(reading(known["files"], known["gpus"], known["model"])) == known["reading"]


def write() -> None:
    """The readings as they are today, a line for each of their fields."""
    shown = []
    for known in READINGS:
        now = _plain(reading(known["files"], known["gpus"], known["model"]))
        fields = (f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in now.items())
        asked = json.dumps({**known, "reading": 0}, ensure_ascii=False).removesuffix("0}")
        shown.append(asked + "{\n" + ",\n".join(fields) + "\n}}")
    PLACE.write_text("[\n" + ",\n".join(shown) + "\n]\n")


if __name__ == "__main__":
    write()
