"""From a study to its jobs: every combination once, in the order of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import product
from typing import Any

from optimizer.answer.answer import job_dict
from optimizer.base.errors import InputError
from optimizer.constraints.pins import as_limits
from optimizer.job.fields import DEFAULT_CLUSTER, LIMITS
from optimizer.job.job import Job
from optimizer.sweep.study import AXES, Axes, Study, holds
from optimizer.sweep.task import Task, content, key_of


@dataclass(frozen=True, kw_only=True)
class Combination:
    """One value of every axis, by the field of the option that it is; None stands for what was left out."""

    scenario: str = ""
    options: Mapping[str, Any]


MakeJob = Callable[[Combination], Job]


def combinations(scenario: str, axes: Axes) -> Iterator[Combination]:
    """Every combination of one scenario, the last axes varying fastest."""
    for chosen in product(*(axes[field.axis] or (None,) for field in AXES)):
        options = dict(zip((field.name for field in AXES), chosen, strict=True))
        yield Combination(scenario=scenario, options={**options, "fix": tuple(options["fix"].items())})


def tasks_of(study: Study, make_job: MakeJob, version: str) -> tuple[Task, ...]:
    """The jobs of a study without the excluded ones; equal jobs of two scenarios are one job."""
    tasks: dict[str, Task] = {}
    memo: dict[int, tuple[Any, str]] = {}
    for scenario, axes in study.scenarios.items():
        for combination in combinations(scenario, axes):
            task = _task(study, combination, make_job, version, memo)
            if any(_matches(task, exclusion) for exclusion in study.exclude):
                continue
            known = tasks.get(task.key)
            if known is None:
                tasks[task.key] = task
            elif scenario not in known.scenario.split(", "):
                tasks[task.key] = replace(known, scenario=f"{known.scenario}, {scenario}")
    return tuple(tasks.values())


def _task(
    study: Study, combination: Combination, make_job: MakeJob, version: str, memo: dict[int, tuple[Any, str]]
) -> Task:
    """One job, or the reason why the combination is none: a count too high, a dtype the device lacks."""
    effort, scenario = study.effort, combination.scenario
    try:
        job = make_job(combination)
    except InputError as error:
        asked = _asked_in_vain(combination)
        key = key_of(replace(combination, scenario=""), effort, version, memo)
        return Task(key=key, version=version, asked=asked, scenario=scenario, problem=str(error), effort=effort)
    asked = content(job_dict(job)) | {"family": job.model.family}
    key = key_of(job, effort, version, memo)
    return Task(key=key, version=version, asked=asked, scenario=scenario, job=job, effort=effort)


def _asked_in_vain(combination: Combination) -> dict[str, Any]:
    """What was asked, in the words of job_dict as far as they are known."""
    from optimizer.catalog import load_cluster, load_model

    options = combination.options
    model = load_model(options["model"])
    cluster = load_cluster(options["cluster"] or options["device"] or DEFAULT_CLUSTER)
    limits = {name: options[field.name] for name, field in LIMITS.items()} | as_limits(dict(options["fix"]))
    return {
        **{name: options[name] for name in ("gpus", "seq_len", "global_batch")},
        "model": model.name,
        "cluster": cluster.name,
        "device": cluster.device.name,
        "stack": options["stack"] or "",
        "dtype": options["dtype"] or "",
        "minimize": options["minimize"],
        **{name: options[name] or "" for name in ("train", "base", "optimizer", "loss", "lengths", "packing")},
        "limits": content(limits),
        "family": model.family,
    }


def _matches(task: Task, exclusion: Mapping[str, tuple[Any, ...]]) -> bool:
    """Whether a job agrees with every key of an exclusion."""
    names = {field.axis: field.name for field in AXES}
    for key, wanted in exclusion.items():
        value = task.scenario if key == "scenarios" else task.asked.get(names[key])
        if isinstance(value, str):
            if not any(fnmatchcase(value, str(pattern)) for pattern in wanted):
                return False
        elif value is None or not holds(value, wanted):
            return False
    return True
