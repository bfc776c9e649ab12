"""What sweeps of published runs say of plans among each other; `python -m maintain.belief` writes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from optimizer.calibration.fit import time_errors
from optimizer.calibration.groups import gathered, on_broken_network, plan_group, source_name
from optimizer.calibration.known import known_error
from optimizer.calibration.runs import Run
from optimizer.job.known import TIME, RunError, SweptError
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.belief.belief import likeness
from optimizer.objectives.belief.likeness import ErrorLikeness
from optimizer.objectives.belief.order import PlanSweep
from optimizer.objectives.belief.places import Places
from optimizer.objectives.belief.posterior import Posterior

FEWEST_PLANS, FEWEST = 4, 50  # plans of a group of runs that differ in them alone, runs in such groups that are a sweep
LEAST = 1e-5  # pull that is worth a row [1]


def swept(rows: Sequence[RunError], alike: ErrorLikeness | None = None) -> PlanSweep:
    """The errors of one software on one device as what orders its plans.

    pull_j = v g g_j w_j: v, the variance of what like plans and layers share, g, the growth at a place that is easy to
    predict, and w, the weights of the posterior given all of these runs.
    """
    alike, places = alike or likeness(TIME), Places.of(rows)
    errors = np.array([row.error for row in rows])
    known = Posterior.given(alike, places, errors, np.zeros(len(rows)))
    easy = alike.scales.get(places.roots[0], 1.0) * alike.own_scales.get(places.softwares[0], 1.0)
    pull = alike.ordering * easy * alike.growth(places) * known.weights
    return PlanSweep(size=places.size, plan=places.plan, pull=pull)


def errors_of_runs(runs: Sequence[Run], errors: FloatArray) -> list[RunError]:
    """Runs with log(measured / predicted) of each [1]."""
    pairs = zip(runs, errors.tolist(), strict=True)
    return [known_error(run, error, TIME, source_name(run)) for run, error in pairs]


def telling(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs of each software on each device that are a sweep, those on broken networks left out."""
    clean = [run for run in runs if run.job and run.plan and run.step_time and not run.doubted]
    whole = [run for run in clean if not on_broken_network(run)]
    sweeps = []
    for some in gathered(whole, lambda run: (run.stack_name, run.job and run.job.cluster.device.name)).values():
        groups = gathered(some, plan_group).values()
        several = [group for group in groups if len({run.plan for run in group}) >= FEWEST_PLANS]
        if sum(map(len, several)) >= FEWEST:
            sweeps.append(some)
    return sweeps


def sweeps(runs: Sequence[Run], alike: ErrorLikeness) -> Iterator[SweptError]:
    """The rows of presets/belief-sweeps.csv: one for all runs at one place."""
    for some in telling(runs):
        rows = errors_of_runs(some, -time_errors(some, {}))
        pulls: dict[tuple[tuple[float, ...], tuple[float, ...]], float] = {}
        for row, pull in zip(rows, swept(rows, alike).pull.tolist(), strict=True):
            pulls[row.size, row.plan] = pulls.get((row.size, row.plan), 0.0) + pull
        for (size, plan), pull in pulls.items():
            if abs(pull) >= LEAST:
                yield SweptError(software=rows[0].software, device=rows[0].device, size=size, plan=plan, pull=pull)
