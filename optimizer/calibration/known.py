"""Measured runs as what is known of a software's errors: one by one, or like ones together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import exp, log

import numpy as np

from optimizer.base.errors import InputError
from optimizer.calibration.fit import time_errors
from optimizer.calibration.groups import folds, gathered, on_broken_network
from optimizer.calibration.leave_out import DEFAULTS, devices_of, held_out, left_out_errors, ranges_of
from optimizer.calibration.memory_fit import MEMORY_PARAMETERS, memory_errors
from optimizer.calibration.runs import Run, nothing_to_fit, read_run
from optimizer.catalog.stacks import stack_names
from optimizer.job.known import MEMORY, TIME, YOURS, RunError
from optimizer.job.stack import Stack
from optimizer.objectives.belief.belief import likeness
from optimizer.objectives.belief.likeness import ErrorLikeness
from optimizer.objectives.belief.places import Places, place
from optimizer.objectives.belief.posterior import Posterior
from optimizer.objectives.step.interval import mfu

FEWEST = 10  # runs that are left out to see what a stack errs on new ones
MOST_SINGLE = 60  # runs that each count for themselves
FARTHEST = 30.0  # times what is predicted, or as little of it, beyond which a row is a mistake
FEW = 4  # kept of runs alike but for their plan and GPUs


def known_errors(runs: Sequence[Run], site: Callable[[Run], str] = lambda run: YOURS) -> tuple[RunError, ...]:
    """What clean runs say of the errors of their stacks, in time and in memory.

    Args:
        runs: Measured ones; those that are doubted or cannot be priced say nothing, those on broken networks nothing of
            time.
        site: Whose machines a run was on.
    """
    clean = [run for run in runs if run.job is not None and run.plan is not None and not run.doubted]
    timed = [run for run in clean if run.step_time and not on_broken_network(run)]
    sized = [run for run in clean if run.memory]
    pairs = [*zip(timed, -time_errors(timed, {}), strict=True)] if timed else []
    peaks = [*zip(sized, -memory_errors(sized, {}), strict=True)] if sized else []
    return (
        *(known_error(run, float(error), TIME, site(run)) for run, error in pairs),
        *(known_error(run, float(error), MEMORY, site(run)) for run, error in peaks),
    )


def knowing(stack: Stack, runs: Sequence[Run], name: str) -> Stack:
    """The stack with what some runs say of its errors.

    Raises InputError, with what named them, where none is clean or one is a mistake.
    """
    known = known_errors(runs)
    if not known:
        raise InputError(f"{name}: {nothing_to_fit(runs)}")
    if abs(far := max((row.error for row in known), key=abs)) > log(FARTHEST):
        raise InputError(
            f"{name}: a run measured {exp(far):.2g} times what is predicted, which is no error of a prediction; "
            "correct its units, sizes or software"
        )
    return replace(stack, known=(*stack.known, *(known if len(known) <= MOST_SINGLE else thinned(known))))


def own_rows(rows: Sequence[Mapping[str, str]], stack: Stack) -> list[Run]:
    """Rows of a table of runs; those that name no software, or this one, count as the stack's own."""
    mine = ("", stack.name)
    return [read_run(row, line, stack if row.get("stack", "") in mine else None) for line, row in enumerate(rows, 2)]


def with_known(stack: Stack, runs: Sequence[Run], home: Stack = DEFAULTS) -> Stack:
    """The fitted stack with what the runs that it was fitted to say of its errors, their devices and their ranges.

    Its residuals get the errors on groups of like runs left out, left_out_mape and left_out_median [1]. `home` has the
    values that the prior of the fit held. A shipped stack holds no runs: presets/belief.csv has them.
    """
    timed = [run for run in runs if run.job is not None and run.step_time]
    fitted = [name for name in stack.parameters if name not in MEMORY_PARAMETERS]
    residuals = dict(stack.residuals)
    if len(timed) >= FEWEST:
        residuals |= left_out_errors(held_out(timed, folds(timed), stack, fitted, time_errors, home))
    own = [replace(run, job=replace(run.job, stack=replace(run.job.stack, name=stack.name))) for run in runs if run.job]
    return replace(
        stack,
        known=() if stack.name in stack_names() else thinned(known_errors(own)),
        residuals=residuals,
        ranges=ranges_of(timed),
        devices=devices_of(timed) or stack.devices,
    )


def known_error(run: Run, error: float, quantity: str, site: str) -> RunError:
    """One run with its log(measured / predicted) [1]; the run has a job."""
    if run.job is None:
        raise ValueError(f"{run.id} is not priced")
    share = mfu(run.job, (run.step_time or 1.0) * exp(-error)) if quantity == TIME else 1.0
    return replace(place(run.job, run.plan, share, site, quantity), error=error)


def thinned(rows: Iterable[RunError], few: int = FEW) -> tuple[RunError, ...]:
    """At most so many of the runs that are alike but for their plan and GPUs, each for those nearest to it.

    One stands for the median error of its cluster. Its spread is that of the runs around it, over the root of their
    number, and no less than a third of one run's noise: errors that all of them share remain. Those far from the
    others count less, as optimizer.objectives.belief.posterior has it.
    """
    standing: list[RunError] = []
    for quantity, some in gathered(rows, lambda row: row.quantity).items():
        alike = likeness(str(quantity))
        groups = gathered(
            some, lambda row: (row.software, row.device, row.kind, row.model, row.format, row.site)
        ).values()
        clusters = [cluster for members in groups for cluster in _clusters(members, alike, few)]
        places, errors = Places.of(clusters), np.array([row.error for row in clusters])
        unsure = np.sqrt(Posterior.given(alike, places, errors, np.zeros(len(clusters))).noise)
        far = np.maximum(unsure / (alike.single(places)), 1.0)
        standing += [replace(row, spread=row.spread * float(ratio)) for row, ratio in zip(clusters, far, strict=True)]
    return tuple(standing)


def _clusters(rows: Sequence[RunError], alike: ErrorLikeness, few: int) -> list[RunError]:
    places = Places.of(rows)
    like = alike.covariance(places, places)
    apart = np.diag(like)[:, None] + np.diag(like)[None] - 2.0 * like  # variance of the difference of two errors
    centres = [int(np.argmin(apart.sum(axis=1)))]
    while len(centres) < few and apart[:, centres].min(axis=1).max() > alike.noise**2:
        centres.append(int(np.argmax(apart[:, centres].min(axis=1))))
    nearest = np.argmin(apart[:, centres], axis=1)
    errors = np.array([row.error for row in rows])
    noise = alike.single(places)
    standing = []
    for number, centre in enumerate(centres):
        members = np.flatnonzero(nearest == number)
        own = noise[centre] ** 2 + apart[members, centre].mean()
        spread = max(np.sqrt(own / len(members)), noise[centre] / 3.0)
        standing.append(replace(rows[centre], error=float(np.median(errors[members])), spread=float(spread)))
    return standing
