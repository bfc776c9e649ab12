"""What every stack errs on runs left out of its fit: a source, a model, a device, a whole stack, its far ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from optimizer.calibration.calibrate import informed
from optimizer.calibration.fit import time_errors
from optimizer.calibration.groups import device_name, gathered, model_name, on_broken_network, places_by, source_name
from optimizer.calibration.leave_out import LogErrors, devices_of, ranges_of, refitted
from optimizer.calibration.memory_fit import MEMORY_PARAMETERS, memory_errors
from optimizer.calibration.runs import Run
from optimizer.catalog import load_stack
from optimizer.job.job import Job
from optimizer.job.known import TIME
from optimizer.job.stack import Stack
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.belief.places import generation
from optimizer.objectives.step.interval import outside

FEWEST = 3  # runs of a stack that a fit without the others needs
CELL, STACK, LARGEST = "stack, device and model", "stack", "largest model, GPU count or sequence"
STEPS = ("inside", "one step outside", "two steps outside or more")
ELSEWHERE, NONE = "another generation", "no run of the software"
DISTANCES = (*STEPS, ELSEWHERE, NONE)
WHOLES: Mapping[str, Callable[[Run], object]] = {
    "source": source_name,
    "model": model_name,
    "device generation": lambda run: generation(run.job.cluster.device) if run.job else "",
    CELL: lambda run: (device_name(run), model_name(run)),
}
EXTREMES: Sequence[Callable[[Job], float]] = (
    lambda job: job.model.params,
    lambda job: job.gpus,
    lambda job: job.seq_len,
)


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Runs of one stack that a fit did not see.

    Attributes:
        by: what was left out, a key of WHOLES, LARGEST or STACK.
        name: which one.
        places: of the runs left out, among all runs.
        stack: places of all runs of the stack.
        distances: of the runs left out from those that remain, positions in DISTANCES.
        errors: log(measured / predicted) of these under the stack without the runs left out [1].
    """

    by: str
    name: str
    places: NDArray[np.intp]
    stack: NDArray[np.intp]
    distances: NDArray[np.intp]
    errors: FloatArray

    @property
    def own(self) -> FloatArray:
        """Errors of the runs left out [1]."""
        return np.asarray(self.errors[np.searchsorted(self.stack, self.places)])


def left_out(runs: Sequence[Run], quantity: str) -> Iterator[LeftOut]:
    """Every part of every stack's runs, left out of its fit.

    A stack moves by one Gauss-Newton step from its fit to all its runs, as optimizer.calibration.leave_out has it; one
    of which fewer than FEWEST runs are left has the parameters that its fit started from.
    """
    errors = time_errors if quantity == TIME else memory_errors
    for name, numbers in places_by(runs, lambda run: run.stack_name).items():
        members = [runs[number] for number in numbers]
        parts = _parts(members)
        distinct = dict.fromkeys(part for _, _, part in parts)
        known = _without(members, list(distinct), load_stack(str(name)), quantity, errors)
        for by, called, part in parts:
            yield LeftOut(
                by=by,
                name=f"{name}: {called}" if called else str(name),
                places=np.array(numbers)[list(part)],
                stack=np.array(numbers),
                distances=_distances(members, part),
                errors=known[part],
            )


def _parts(members: Sequence[Run]) -> list[tuple[str, str, tuple[int, ...]]]:
    """What is left out together: by what, which one, and the places among the runs of the stack."""
    parts = [(by, str(one), tuple(part)) for by, key in WHOLES.items() for one, part in places_by(members, key).items()]
    jobs = [run.job for run in members if run.job]
    for number, extreme in enumerate(EXTREMES):
        values = np.array([extreme(job) for job in jobs])
        if values.min() < values.max():
            parts.append((LARGEST, str(number), tuple(np.flatnonzero(values == values.max()).tolist())))
    return [*parts, (STACK, "", tuple(range(len(members))))]


def _distances(members: Sequence[Run], part: tuple[int, ...]) -> NDArray[np.intp]:
    """How far each run of a part is from the rest of its stack: by how many of the reasons an answer gives."""
    left = [members[number] for number in sorted({*range(len(members))} - {*part})]
    around = Stack(name="rest", devices=devices_of(left), ranges=ranges_of(left))
    generations = {generation(run.job.cluster.device) for run in left if run.job}

    def distance(job: Job) -> str:
        if not left:
            return NONE
        if generation(job.cluster.device) not in generations:
            return ELSEWHERE
        return STEPS[min(len(outside(replace(job, stack=around))), len(STEPS) - 1)]

    return np.array([DISTANCES.index(distance(job)) for number in part if (job := members[number].job)])


def _without(
    members: Sequence[Run], parts: Sequence[tuple[int, ...]], stack: Stack, quantity: str, errors: LogErrors
) -> dict[tuple[int, ...], FloatArray]:
    """Errors of all runs of the stack without each part."""
    home = load_stack(stack.parent) if stack.parent else Stack(name="defaults")
    telling = informed(members)
    free = [
        name
        for name in stack.parameters
        if (name in MEMORY_PARAMETERS if quantity != TIME else name in telling and name not in MEMORY_PARAMETERS)
    ]
    fitting = [part for part in parts if free and len(members) - len(part) >= FEWEST]
    values = {part: {name: home[name] for name in free} for part in parts}
    values |= zip(
        fitting, refitted(members, [np.array(part) for part in fitting], stack, free, errors, home), strict=True
    )
    return {part: -errors(members, values[part]) for part in parts}


def usable(runs: Sequence[Run], quantity: str) -> list[Run]:
    """The clean runs that tell of a quantity; of time those on whole networks."""
    clean = [run for run in runs if run.job is not None and run.plan is not None and not run.doubted]
    if quantity != TIME:
        return [run for run in clean if run.memory]
    return [run for run in clean if run.step_time and not on_broken_network(run)]


def sampled(runs: Sequence[Run], most: int) -> list[Run]:
    """At most so many runs of one stack, source, device and model, by chance, the same ones every time."""
    random = np.random.default_rng(0)
    kin = gathered(
        range(len(runs)),
        lambda place: (runs[place].stack_name, *(key(runs[place]) for key in (source_name, device_name, model_name))),
    )
    fitting = [places if len(places) <= most else random.permutation(places)[:most].tolist() for places in kin.values()]
    return [runs[place] for place in sorted(place for places in fitting for place in places)]
