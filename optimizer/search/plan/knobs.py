"""Continuous settings for the few best plans: a grid priced at once, then Optuna around its best point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.constraints.memory import KnobPrice
from optimizer.job import Job
from optimizer.objectives.step.price import price as step_price
from optimizer.plan import KnobColumns, Knobs, Plans
from optimizer.search.lattice.oracle import Points

BOX = {"bucket": (10e6, 1e9), "comm_sm_share": (0.01, 0.30), "offload": (0.0, 1.0)}
LOGARITHMIC = ("bucket", "comm_sm_share")
STUDY = "mfu-optimizer"
TUNED = 8  # plans that every trial prices at once
STARTUP = 10  # trials that TPE draws at random before it starts to learn, Optuna's own default
IMPORTING = 0.25  # seconds that it may take to import Optuna
ROUND = 8  # trials that are asked for together, so that one pricing serves them all
STARTS = (Knobs(), Knobs(offload=1.0))  # the defaults, and what fits wherever anything does
GRID = {"bucket": 8, "comm_sm_share": 8, "offload": 9}  # points along each side of the box


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """Knobs and the step time [s] that the best of the plans reaches with them."""

    knobs: Knobs
    seconds: float


def tune(
    job: Job,
    plans: Plans,
    *,
    trials: int = 8,
    seed: int = 0,
    study: str | None = None,
    time_limit: float | None = None,
    price: KnobPrice = step_price,
) -> Tuned | None:
    """The knobs with which the fastest of the plans that fit is fastest, or None when none fits with any.

    A grid over the box is priced in one go; Optuna's trials, of which the grid's best point is the first, look around
    it. The defaults come before all, so the result is never worse than they are; without trials it is they. `study`
    is the URL of an Optuna storage to keep the trials in. `time_limit` ends the trials early, and leaves them out where
    it would be over before the first [s].
    """
    deadline = np.inf if time_limit is None else perf_counter() + time_limit
    trials = 0 if time_limit is not None and time_limit <= 0 else trials
    best = _best(job, plans, (STARTS[0], *grid()) if trials > 0 else STARTS[:1], price)
    if not np.isfinite(best.seconds):
        best = _best(job, plans, STARTS[1:], price)
    if not np.isfinite(best.seconds):
        return None
    if trials <= 0:
        return best
    found = best
    if perf_counter() + IMPORTING < deadline:
        found = _least([best, *_trials(job, plans, best, trials, seed, study, deadline, price)])
    return _on_device(job, plans, found, price) if found.knobs.offload > 0 else found


def _on_device(job: Job, plans: Plans, tuned: Tuned, price: KnobPrice) -> Tuned:
    """The same knobs with all optimizer state on the device if that is no slower: trials never hit a bound."""
    other = _best(job, plans, [replace(tuned.knobs, offload=0.0)], price)
    return other if other.seconds <= tuned.seconds else tuned


@cache
def grid() -> tuple[Knobs, ...]:
    """Settings evenly spread over the box, on a logarithmic scale where that is the natural one.

    >>> len(grid()), round(grid()[0].bucket), grid()[0].offload
    (576, 10000000, 0.0)
    """
    sides = [side(name, *BOX[name], GRID[name]) for name in BOX]
    return tuple(Knobs(**dict(zip(BOX, values, strict=True))) for values in product(*sides))


def side(name: str, low: float, high: float, count: int) -> list[float]:
    """`count` values of one knob from low to high, to three digits.

    >>> side("bucket", 10e6, 1e9, 4)
    [10000000.0, 46400000.0, 215000000.0, 1000000000.0]
    """
    spread = np.geomspace if name in LOGARITHMIC else np.linspace
    return [float(f"{value:.3g}") for value in spread(low, high, count)]


def around(best: Knobs) -> dict[str, tuple[float, float]]:
    """The box one step of the grid to either side of its best point."""
    found = {}
    for name, (low, high) in BOX.items():
        value, steps = getattr(best, name), GRID[name] - 1
        if name in LOGARITHMIC:
            step = (high / low) ** (1 / steps)
            found[name] = max(low, value / step), min(high, value * step)
        else:
            step = (high - low) / steps
            found[name] = max(low, value - step), min(high, value + step)
    return found


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
    job: Job, plans: Plans, start: Tuned, trials: int, seed: int, study: str | None, deadline: float, price: KnobPrice
) -> Iterator[Tuned]:
    """What each of Optuna's trials finds until the deadline; where nothing fits, ten times the start."""
    search, box = _study(job, around(start.knobs), trials, seed, study)
    search.enqueue_trial(asdict(start.knobs))
    for first in range(0, trials, ROUND):
        if perf_counter() >= deadline:
            break
        asked = [search.ask(box) for _ in range(min(ROUND, trials - first))]
        settings = [Knobs(**trial.params) for trial in asked]
        found = _priced(job, plans, settings, price).tolist()
        for trial, knobs, seconds in zip(asked, settings, found, strict=True):
            search.tell(trial, seconds if np.isfinite(seconds) else 10 * start.seconds)
            yield Tuned(knobs=knobs, seconds=seconds)


def _study(
    job: Job, sides: Mapping[str, tuple[float, float]], trials: int, seed: int, study: str | None
) -> tuple[Any, dict[str, Any]]:
    import optuna
    from optuna.distributions import FloatDistribution

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # The first trials of TPE are random: where there are no more, it need not look through them before each.
    few = study is None and trials <= STARTUP
    samplers = optuna.samplers
    sampler = (
        samplers.RandomSampler(seed)
        if few
        else samplers.TPESampler(seed=seed, n_ei_candidates=12, n_startup_trials=STARTUP)
    )
    name = f"{STUDY}-{job.model.name}-{job.gpus}" if study else None
    search = optuna.create_study(storage=study, study_name=name, load_if_exists=bool(study), sampler=sampler)
    box = {name: FloatDistribution(low, high, log=name in LOGARITHMIC) for name, (low, high) in sides.items()}
    return search, box


def _least(found: Sequence[Tuned]) -> Tuned:
    """The fastest; of equals the first."""
    return min(found, key=lambda tuned: tuned.seconds)


def _best(job: Job, plans: Plans, settings: Sequence[Knobs], price: KnobPrice) -> Tuned:
    """The setting at which the fastest plan is fastest; of equals the first."""
    seconds = _priced(job, plans, settings, price)
    first = int(np.argmin(seconds))
    return Tuned(knobs=settings[first], seconds=float(seconds[first]))


def _priced(job: Job, plans: Plans, settings: Sequence[Knobs], price: KnobPrice) -> NDArray[np.float64]:
    """Step time of the fastest plan that fits at each setting of the knobs [s], infinite where none does."""
    costs = price(job, plans, KnobColumns.of(settings))
    return np.asarray(np.where(costs.reserved <= job.usable_memory, costs.step_time, np.inf).min(axis=1))
