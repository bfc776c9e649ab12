"""The stack moved to what the trials measured: no farther than they ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optimizer.calibration.least_squares import PRIOR, Optimum, solve
from optimizer.calibration.memory_fit import MEMORY_PARAMETERS
from optimizer.calibration.predict import with_parameters
from optimizer.catalog import stack_names
from optimizer.diagnose.failures import OK, OOM
from optimizer.job.job import Job
from optimizer.job.known import MEMORY, TIME
from optimizer.job.model import Provenance
from optimizer.job.plan import KnobColumns, Plans
from optimizer.job.stack import Stack
from optimizer.job.target import AT
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.belief.belief import likeness
from optimizer.objectives.belief.places import Places
from optimizer.objectives.step.flops import useful_flops
from optimizer.objectives.step.linear_stage import reserved_memory
from optimizer.objectives.step.price import price
from optimizer.search.lattice.knobs import columns, joined_knobs
from optimizer.trial.candidates import Candidates
from optimizer.trial.outcome import Outcome

STRENGTHS = tuple(PRIOR * 4.0**power for power in (3, 2, 1, 0))  # of the prior, the strongest first
EVALUATIONS = 8
MOVED = 1e-3  # share of a parameter's value from which on a change is reported

Parameters = Mapping[str, float]
Errors = Callable[[Parameters], FloatArray]


@dataclass(frozen=True, kw_only=True)
class LocalStack:
    """A stack after trials."""

    stack: Stack
    prior: float  # strength of its prior, in runs
    before: float  # root mean square error of the trials before
    after: float  # and after
    moved: Mapping[str, tuple[float, float]]  # parameters with their values before and after


def local_stack(candidates: Candidates, outcomes: Sequence[Outcome], date: str) -> LocalStack | None:
    """The stack of the job after these outcomes, None where none tells of time or memory.

    Times and memory are fitted apart, each parameter held at the stack's value by a prior that is weakened until what
    is left of the errors is what no parameter explains, the noise of one run; at the weakest it counts as one run, as
    in optimizer.calibration.

    Source: Engl, Hanke and Neubauer, Regularization of Inverse Problems (1996), section 4.3 (discrepancy principle).
    """
    start = candidates.job.stack
    timed = [outcome for outcome in outcomes if outcome.status == OK and outcome.seconds]
    finished = [outcome for outcome in outcomes if outcome.status in (OK, OOM)]
    if not finished:
        return None
    fits = [fit for fit in (_times(candidates, timed), _memory(candidates, finished)) if fit]
    moved = {name: value for _, solution in fits for name, value in solution.parameters.items()}
    after = with_parameters(start, moved)
    changed = {
        name: (start[name], value)
        for name, value in moved.items()
        if abs(value - start[name]) > MOVED * max(abs(start[name]), abs(value))
    }
    name = start.name.partition(AT)[0]
    origin = name if name in stack_names() else start.parent
    source = f"{name}, moved to {len(finished)} trials of {candidates.job.model.name} on {candidates.job.gpus} GPUs"
    stack = replace(
        after,
        name=f"{name}-{date}",
        parent=origin,
        provenance=Provenance(
            source=source,
            date=date,
            grade=start.provenance.grade,
            note=f"residuals, intervals and ranges are those of {name}, before the trials",
        ),
    )
    return LocalStack(
        stack=stack,
        prior=min((strength for strength, _ in fits), default=STRENGTHS[0]) / PRIOR,
        before=_error(candidates, timed, start),
        after=_error(candidates, timed, stack),
        moved=changed,
    )


def _times(candidates: Candidates, timed: Sequence[Outcome]) -> tuple[float, Optimum] | None:
    """The parameters of time that the trials ask to be moved, and the strength of the prior; None where they do not."""
    if not timed:
        return None
    job = candidates.job
    plans, knobs = _tried(candidates, timed)
    measured = np.array([outcome.seconds for outcome in timed], dtype=np.float64)

    def errors(values: Parameters) -> FloatArray:
        return np.asarray(np.log(price(_under(job, values), plans, knobs).step_time / measured))

    names = [name for name in job.stack.parameters if name not in MEMORY_PARAMETERS]
    shares = useful_flops(job) / (measured * job.gpus * job.peak_flops)
    return _fitted(job.stack, names, errors, _noise(job, plans, shares, TIME))


def _memory(candidates: Candidates, finished: Sequence[Outcome]) -> tuple[float, Optimum] | None:
    """The same for memory: peaks are met, and what ran, or did not fit, is predicted so."""
    job = candidates.job
    plans, knobs = _tried(candidates, finished)
    peaks = np.array([np.nan if outcome.memory is None else outcome.memory for outcome in finished])
    failed = np.array([outcome.status == OOM for outcome in finished])

    def errors(values: Parameters) -> FloatArray:
        under = _under(job, values)
        share = np.log(reserved_memory(under, plans, knobs) / under.usable_memory)
        wrong = np.where(failed, np.minimum(share, 0.0), np.maximum(share, 0.0))
        return np.where(np.isnan(peaks), wrong, share - np.log(np.where(np.isnan(peaks), 1.0, peaks)))

    names = [name for name in MEMORY_PARAMETERS if name not in job.stack.fixed or name in job.stack.parameters]
    return _fitted(job.stack, names, errors, _noise(job, plans, np.ones(len(finished)), MEMORY))


def _noise(job: Job, plans: Plans, shares: FloatArray, quantity: str) -> float:
    """What no parameter explains of the error of a run: the least of these plans, of such MFUs [1].

    Of one machine: that published runs of a software lie far apart says nothing of it.
    """
    usual = replace(likeness(quantity), noises={})
    return float(usual.single(Places.around(job, plans, shares, quantity)).min())


def _fitted(stack: Stack, names: Sequence[str], errors: Errors, own: float) -> tuple[float, Optimum] | None:
    """The fit under the strongest prior that leaves no more error than a run's own."""
    home = {name: stack[name] for name in names}
    if not names or _size(errors(home)) <= own:
        return None
    solution, guess = None, home
    for strength in STRENGTHS:
        solution = solve(errors, names, home, guess, prior=strength, evaluations=EVALUATIONS)
        guess = solution.parameters
        if _size(errors(solution.parameters)) <= own:
            return strength, solution
    return (STRENGTHS[-1], solution) if solution else None


def _tried(candidates: Candidates, outcomes: Sequence[Outcome]) -> tuple[Plans, KnobColumns]:
    places = [outcome.index for outcome in outcomes]
    knobs = joined_knobs([columns(candidates.knobs[place], 1) for place in places])
    return Plans.of([candidates.plans[place] for place in places]), knobs


def _under(job: Job, values: Parameters) -> Job:
    return replace(job, stack=with_parameters(job.stack, values))


def _size(errors: FloatArray) -> float:
    """Root of the mean square [1]."""
    return float(np.sqrt(np.mean(errors**2)))


def _error(candidates: Candidates, timed: Sequence[Outcome], stack: Stack) -> float:
    """Root of the mean square error of the predicted steps of the trials [1]: what a fit brings down."""
    if not timed:
        return 0.0
    plans, knobs = _tried(candidates, timed)
    predicted = price(replace(candidates.job, stack=stack), plans, knobs).step_time
    return _size(predicted / np.array([outcome.seconds for outcome in timed], dtype=np.float64) - 1.0)
