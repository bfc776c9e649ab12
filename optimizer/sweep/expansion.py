"""From a study to its jobs: every combination once, in the order of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import product
from typing import TYPE_CHECKING, Any

from optimizer.answer.answer import job_dict
from optimizer.base.errors import InputError
from optimizer.constraints.pins import as_limits
from optimizer.job.job import TIME, Job, Limits
from optimizer.job.variables import LIMITS
from optimizer.sweep.study import Study
from optimizer.sweep.task import Task, content, key_of

if TYPE_CHECKING:
    from optimizer.sweep.schema import AxesTable


@dataclass(frozen=True, kw_only=True)
class Combination:
    """One value of every axis, as `optimize` would be asked; None and "" stand for what was left out."""

    scenario: str = ""
    model: str
    gpus: int
    cluster: str = ""
    device: str = ""
    seq_len: int | None = None
    global_batch: int | None = None
    tokens_per_batch: int | None = None
    dtype: str = ""
    stack: str = ""
    minimize: str = TIME
    limits: Mapping[str, Any] = field(default_factory=lambda: asdict(Limits()))


MakeJob = Callable[[Combination], Job]


def combinations(scenario: str, axes: AxesTable) -> Iterator[Combination]:
    """Every combination of one scenario, the last axes varying fastest."""
    limits = [
        {**dict(zip(LIMITS.values(), chosen, strict=True)), **as_limits(fix)}
        for *chosen, fix in product(*(getattr(axes, key) or (None,) for key in LIMITS), axes.fix)
    ]
    for model, cluster, device, gpus, seq_len, batch, tokens, dtype, stack, minimize, limit in product(
        axes.models,
        axes.clusters or ("",),
        axes.devices or ("",),
        axes.gpus,
        axes.seq_lens or (None,),
        axes.global_batches or (None,),
        axes.tokens_per_batch or (None,),
        axes.dtypes or ("",),
        axes.stacks or ("",),
        axes.minimize,
        limits,
    ):
        yield Combination(
            scenario=scenario,
            model=model,
            cluster=cluster,
            device=device,
            gpus=gpus,
            seq_len=seq_len,
            global_batch=batch,
            tokens_per_batch=tokens,
            dtype=dtype,
            stack=stack,
            minimize=minimize,
            limits=limit,
        )


def tasks_of(study: Study, make_job: MakeJob, version: str) -> tuple[Task, ...]:
    """The jobs of a study without the excluded ones; equal jobs of two scenarios are one job."""
    found: dict[str, Task] = {}
    memo: dict[int, tuple[Any, str]] = {}
    for scenario, axes in study.scenarios.items():
        for combination in combinations(scenario, axes):
            task = _task(study, combination, make_job, version, memo)
            if any(_matches(task, exclusion) for exclusion in study.exclude):
                continue
            known = found.get(task.key)
            if known is None:
                found[task.key] = task
            elif scenario not in known.scenario.split(", "):
                found[task.key] = replace(known, scenario=f"{known.scenario}, {scenario}")
    return tuple(found.values())


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

    model = load_model(combination.model)
    cluster = load_cluster(combination.cluster or combination.device or "dgx-h100")
    return {
        "model": model.name,
        "cluster": cluster.name,
        "device": cluster.device.name,
        "stack": combination.stack,
        "gpus": combination.gpus,
        "seq_len": combination.seq_len,
        "global_batch": combination.global_batch,
        "dtype": combination.dtype,
        "minimize": combination.minimize,
        "limits": content(combination.limits),
        "family": model.family,
    }


def _matches(task: Task, exclusion: Mapping[str, tuple[Any, ...]]) -> bool:
    """Whether a job agrees with every key of an exclusion."""
    from optimizer.sweep.schema import holds

    singular = {"global_batches": "global_batch", "gpus": "gpus"}
    for key, wanted in exclusion.items():
        value = task.scenario if key == "scenarios" else task.asked[singular.get(key, key.removesuffix("s"))]
        if isinstance(value, str):
            if not any(fnmatchcase(value, str(pattern)) for pattern in wanted):
                return False
        elif value is None or not holds(value, wanted):
            return False
    return True
