"""A folder of trials: what was asked, the candidates, and for each trial the files that run its plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from optimizer.answer.answer import Answer, job_dict, plan_dict
from optimizer.answer.reading import read_answer
from optimizer.answer.saved import SavedAnswer
from optimizer.base.errors import InputError, InvalidFile
from optimizer.catalog.readers.text import json_of, read_text
from optimizer.frameworks.export_folder import exported, write_texts
from optimizer.job.job import Job
from optimizer.trial.candidates import Candidates
from optimizer.trial.launch import LAUNCH, MANIFEST, RUNNER, launch_script, run_script, time_limit, trial_name

ANSWER = "answer.json"
SCHEMA_VERSION = 1
SBATCH = "megatron.sbatch"  # the trial's own script takes its place


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Which of the candidates are tried, in order, for how many steps; `places` are files of model, cluster, stack."""

    folder: Path
    candidates: Candidates
    chosen: tuple[int, ...]
    steps: int
    places: Mapping[str, str]

    @property
    def job(self) -> Job:
        """What is to be trained."""
        return self.candidates.job

    def trial(self, place: int) -> Path:
        """The folder of one trial, counted from 0."""
        return self.folder / trial_name(place)

    @property
    def launches(self) -> bool:
        """Whether Megatron-LM can run any of them."""
        return any((self.trial(place) / LAUNCH).exists() for place in range(len(self.chosen)))


def start(trials: Trials) -> None:
    """Write a new folder: every trial, the runner, and last the manifest, so that what is there is whole.

    Raises InputError where the folder holds trials already or cannot be written.
    """
    check_new(trials.folder)
    for place in range(len(trials.chosen)):
        _write_trial(trials, place)
    limit = time_limit(float(trials.candidates.costs.step_time.max()), trials.steps)
    write_texts({RUNNER: run_script(trials.job, trials.folder, limit)}, trials.folder, force=True)
    _write_manifest(trials)


def check_new(folder: Path) -> None:
    """Raise InputError where a folder holds trials already, or is none."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder} is a file; name a folder")
    if (folder / MANIFEST).exists():
        raise InputError(
            f"{folder} already holds trials; `optimize trial next {folder}` adds one, and another folder (--out) takes "
            "those of another job"
        )


def added(trials: Trials, index: int) -> Trials:
    """The trials with one more, of this candidate, written to their folder."""
    more = replace(trials, chosen=(*trials.chosen, index))
    _write_trial(more, len(trials.chosen))
    _write_manifest(more)
    return more


def read_folder(folder: str | Path) -> Trials:
    """The trials that were written to a folder.

    Raises InputError for a folder without them, InvalidFile for one whose manifest is damaged.
    """
    folder = Path(folder)
    path = folder / MANIFEST
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; give the one that `optimize trial --out` wrote")
    if not path.exists():
        raise InputError(f"{folder} holds no {MANIFEST}; give the folder that `optimize trial --out` wrote")
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(path, [f"cannot be read: {error}"]) from None
    try:
        manifest: Any = json_of(text, path).get("trial", {})
        places = {str(key): str(value) for key, value in manifest["places"].items()}
        chosen, steps = tuple(int(index) for index in manifest["chosen"]), int(manifest["steps"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise InvalidFile(path, ["is not what `optimize trial --out` wrote; write the trials anew"]) from None
    saved = read_answer(text, str(path), **places)
    saved_candidates = _candidates(saved)
    if not chosen or steps < 1 or not all(0 <= index < len(saved_candidates) for index in chosen):
        raise InvalidFile(path, [f"trials must be of its {len(saved_candidates)} candidates, but got {list(chosen)}"])
    return Trials(folder=folder, candidates=saved_candidates, chosen=chosen, steps=steps, places=places)


def _candidates(saved: SavedAnswer) -> Candidates:
    plans = [(saved.plan, saved.knobs), *((other.plan, other.knobs) for other in saved.alternatives)]
    return Candidates(
        job=saved.job,
        plans=tuple(plan for plan, _ in plans if plan is not None),
        knobs=tuple(knobs for plan, knobs in plans if plan is not None),
    )


def _write_trial(trials: Trials, place: int) -> None:
    """The files of one trial: its plan as an answer, its launch files, and the script that runs it."""
    index = trials.chosen[place]
    plans = trials.candidates
    answer = Answer(
        status="feasible",
        job=trials.job,
        plan=plans.plans[index],
        knobs=plans.knobs[index],
        estimate=plans.estimate(index),
    )
    files = exported(answer)
    texts = {name: text for name, text in files.texts.items() if name != SBATCH} | {ANSWER: _json(answer.to_dict())}
    if SBATCH in files.texts:
        texts[LAUNCH] = launch_script(answer, trials.steps)
    write_texts(texts, trials.trial(place), force=True)


def _write_manifest(trials: Trials) -> None:
    """The manifest is an answer whose runners-up are the candidates, so that the same reader reads it."""
    candidates = trials.candidates
    rows = [
        {"plan": plan_dict(plan), "knobs": vars(knobs)}
        for plan, knobs in zip(candidates.plans, candidates.knobs, strict=True)
    ]
    content = {
        "schema_version": SCHEMA_VERSION,
        "status": "feasible",
        "trial": {"steps": trials.steps, "chosen": list(trials.chosen), "places": dict(trials.places)},
        "job": job_dict(trials.job),
        **rows[0],
        "alternatives": rows[1:],
    }
    write_texts({MANIFEST: _json(content)}, trials.folder, force=True)


def _json(content: Mapping[str, Any] | Sequence[Any]) -> str:
    return json.dumps(content, indent=1, allow_nan=False) + "\n"
