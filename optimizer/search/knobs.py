"""Continuous settings for the few best plans, searched with Optuna against the step time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.constraints.memory import KnobPrice
from optimizer.job import Job
from optimizer.objectives.step import price as step_price
from optimizer.plan import KnobColumns, Knobs, Plans
from optimizer.search.oracle import Points

BOX = {"bucket": (10e6, 1e9), "comm_sm_share": (0.01, 0.30), "offload": (0.0, 1.0)}
LOGARITHMIC = ("bucket",)
STUDY = "mfu-optimizer"
TUNED = 8  # plans that every trial prices at once
ROUND = 8  # trials that are asked for together, so that one pricing serves them all
STARTS = (Knobs(), Knobs(offload=1.0))  # the defaults, and what fits wherever anything does


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """Knobs and the step time [s] that the best of the plans reaches with them."""

    knobs: Knobs
    seconds: float


def tune(
    job: Job,
    plans: Plans,
    *,
    trials: int = 40,
    seed: int = 0,
    study: str | None = None,
    price: KnobPrice = step_price,
) -> Tuned | None:
    """The knobs with which the fastest of the plans that fit is fastest, or None when none fits with any.

    The defaults come first, so the result is never worse than they are. `study` is the URL of an Optuna storage to
    keep the trials in.
    """
    starts = [
        Tuned(knobs=knobs, seconds=seconds)
        for knobs, seconds in zip(STARTS, _fastest(job, plans, STARTS, price), strict=True)
        if np.isfinite(seconds)
    ]
    if not starts or trials <= 0:
        return starts[0] if starts else None
    found = min(_trials(job, plans, starts[0], trials, seed, study, price), key=lambda tuned: tuned.seconds)
    if found.seconds >= starts[0].seconds:
        return starts[0]
    return _on_device(job, plans, found, price)


def _on_device(job: Job, plans: Plans, tuned: Tuned, price: KnobPrice) -> Tuned:
    """The same knobs with all optimizer state on the device if that is no slower: trials never hit a bound."""
    knobs = replace(tuned.knobs, offload=0.0)
    (seconds,) = _fastest(job, plans, [knobs], price)
    return Tuned(knobs=knobs, seconds=seconds) if seconds <= tuned.seconds else tuned


def tunable(points: Points, usable: float) -> Plans:
    """Plans worth tuning: the fastest that fit, and faster ones that fit once optimizer state is on the host [B]."""
    order = np.argsort(points.seconds, kind="stable")
    fitting = order[points.fits[order]]
    limit = points.seconds[fitting[0]] if len(fitting) else np.inf
    rescued = order[(~points.fits & (points.offloaded <= usable) & (points.seconds < limit))[order]]
    first = fitting[: TUNED - min(len(rescued), TUNED // 2)]
    chosen: NDArray[np.intp] = np.concatenate([first, rescued[: TUNED - len(first)]])
    return points.plans.take(chosen)


def _trials(
    job: Job, plans: Plans, start: Tuned, trials: int, seed: int, study: str | None, price: KnobPrice
) -> Iterator[Tuned]:
    """What each of Optuna's trials finds; trials in which nothing fits are told as ten times the start."""
    search, box = _study(job, seed, study)
    search.enqueue_trial(asdict(start.knobs))
    for first in range(0, trials, ROUND):
        asked = [search.ask(box) for _ in range(min(ROUND, trials - first))]
        settings = [Knobs(**trial.params) for trial in asked]
        for trial, knobs, seconds in zip(asked, settings, _fastest(job, plans, settings, price), strict=True):
            search.tell(trial, seconds if np.isfinite(seconds) else 10 * start.seconds)
            yield Tuned(knobs=knobs, seconds=seconds)


def _study(job: Job, seed: int, study: str | None) -> tuple[Any, dict[str, Any]]:
    import optuna
    from optuna.distributions import FloatDistribution

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=seed, n_ei_candidates=12)
    name = f"{STUDY}-{job.model.name}-{job.gpus}" if study else None
    search = optuna.create_study(storage=study, study_name=name, load_if_exists=bool(study), sampler=sampler)
    box = {name: FloatDistribution(low, high, log=name in LOGARITHMIC) for name, (low, high) in BOX.items()}
    return search, box


def _fastest(job: Job, plans: Plans, settings: Sequence[Knobs], price: KnobPrice) -> list[float]:
    """Step time of the fastest plan that fits at each setting of the knobs [s], infinite where none does."""
    every = plans.take(np.tile(np.arange(len(plans)), len(settings)))
    costs = price(job, every, KnobColumns.of(settings, repeats=len(plans)))
    seconds = np.where(costs.reserved <= job.usable_memory, costs.step_time, np.inf)
    return [float(least) for least in seconds.reshape(len(settings), len(plans)).min(axis=1)]
