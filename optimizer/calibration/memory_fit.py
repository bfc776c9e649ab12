"""Fit a Stack's memory parameters to measured peaks and to which runs fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optimizer.calibration.least_squares import PRIOR, SCALE, Optimum, solve
from optimizer.calibration.predict import PlanBatch, batches
from optimizer.calibration.runs import Run
from optimizer.job.stack import Stack
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.step.linear_stage import stage_memory

MEMORY_PARAMETERS = ("context_memory", "fragmentation", "workspace", "logit_memory", "activation_factor")
RESERVED = "reserved"  # what the framework took from the device
ALLOCATED = "allocated"  # what tensors took of that
USED = "used of the device"  # all that is used of it, with its context
FIRST = "reserved by the first stage"  # of a pipeline, where the first rank alone prints its memory
COUNTED = (RESERVED, ALLOCATED, USED, FIRST)
FEWEST = 10  # peaks, or runs out of memory, that a fit needs
SOFTNESS = 0.02  # log distance from the limit within which a verdict is not yet certain
EVALUATIONS = 30  # most steps of the search
VERDICTS = 0.5  # weight of all verdicts against as many measured peaks


@dataclass(frozen=True, kw_only=True)
class MemoryFit:
    """The parameters of memory at the least cost."""

    solution: Optimum | None  # None where the runs are too few to fit any
    residuals: FloatArray  # log(predicted / measured) of the runs with a peak [1]
    informative: int  # number of peaks, runs out of memory or verdicts wrong before the fit, whichever are most
    verdicts: int  # number of runs of which it is known whether they fitted
    wrong_verdicts: int  # how many of these the fit predicts wrongly

    @property
    def parameters(self) -> Mapping[str, float]:
        """The fitted values."""
        return self.solution.parameters if self.solution else {}


def counted(run: Run) -> str:
    """What a run's memory counts, of COUNTED: what was reserved from the device where its kind does not say.

    >>> [counted(Run(id="1", row={}, stack_name="mine", memory_kind=kind)) for kind in ("torch allocated", "")]
    ['allocated', 'reserved']
    """
    kind = run.memory_kind.lower()
    if whole := [each for each in (USED, FIRST) if each in kind]:
        return whole[0]
    reserved = "reserved" in kind or not ("alloc" in kind or "alloc" in run.row.get("notes", "").lower())
    return RESERVED if reserved else ALLOCATED


def log_memory_error(grouped: Sequence[PlanBatch], runs: Sequence[Run], parameters: Mapping[str, float]) -> FloatArray:
    """log(predicted / measured) peak of every run, each of which has one [1]."""
    kinds = np.array([COUNTED.index(counted(run)) for run in runs], dtype=np.intp)
    measured = np.array([run.memory for run in runs], dtype=np.float64)
    return np.asarray(np.log(np.choose(kinds, predicted_memory(grouped, len(runs), parameters)) / measured))


def memory_errors(runs: Sequence[Run], parameters: Mapping[str, float]) -> FloatArray:
    """log(predicted / measured memory) of every run [1]."""
    return log_memory_error(batches(runs), runs, parameters)


def predicted_memory(
    grouped: Sequence[PlanBatch], count: int, parameters: Mapping[str, float]
) -> tuple[FloatArray, ...]:
    """Peaks of every run as each of COUNTED, without pricing its time [B]."""
    reserved, allocated, used, first = (np.full(count, np.nan) for _ in COUNTED)
    for batch in grouped:
        job = batch.under(parameters)
        stage_bytes = stage_memory(layer_costs_of(job, batch.plans), batch.stages)
        places, fullest = list(batch.places), stage_bytes.reserved.argmax(axis=0)
        reserved[places] = stage_bytes.reserved.max(axis=0)
        fragments = np.take_along_axis(stage_bytes.terms["fragmentation"], fullest[None], axis=0)[0]
        allocated[places] = reserved[places] - fragments
        used[places] = reserved[places] + job.stack["context_memory"]
        first[places] = stage_bytes.reserved[0]
    return reserved, allocated, used, first


def fit_memory(
    runs: Sequence[Run],
    start: Stack,
    free: Sequence[str] = MEMORY_PARAMETERS,
    prior: float = PRIOR,
    guess: Mapping[str, float] | None = None,
) -> MemoryFit:
    """Fit `free` so that measured peaks are met and runs fit, or run out of memory, as they did.

    Peaks enter as log errors under a soft-L1 loss; a verdict as softplus(log distance on the wrong side of the usable
    memory / SOFTNESS), runs out of memory and runs that fitted weighing alike. Runs with neither are left aside.
    Fewer than FEWEST peaks, runs out of memory and wrong verdicts at the values of `start` fit nothing: runs that all
    fitted, as they should, say only that memory is not larger, and would pull every parameter down.
    """
    known = [run for run in runs if run.job is not None and run.memory]
    judged = [run for run in runs if run.job is not None and run.out_of_memory is not None]
    failed = np.array([bool(run.out_of_memory) for run in judged], dtype=bool)
    grouped_peaks, grouped_verdicts = batches(known), batches(judged)
    balance = _balance(failed) * np.sqrt(VERDICTS * max(len(known), len(judged)))

    def errors(values: Mapping[str, float]) -> FloatArray:
        values = {**start.parameters, **values}
        excess = _excess(grouped_verdicts, judged, start, values)
        beyond = np.where(failed, -excess, excess) / SOFTNESS
        doubt = SCALE * np.sqrt(np.logaddexp(0.0, beyond))
        return np.concatenate([log_memory_error(grouped_peaks, known, values), balance * doubt])

    wrong = _wrong(_excess(grouped_verdicts, judged, start, start.parameters), failed)
    informative = max(len(known), int(failed.sum()), wrong)
    solution = None
    if free and informative >= FEWEST:
        home = {name: start[name] for name in free}
        solution = solve(errors, free, home, home | dict(guess or {}), prior=prior, evaluations=EVALUATIONS)
    values = {**start.parameters, **(solution.parameters if solution else {})}
    excess = _excess(grouped_verdicts, judged, start, values)
    return MemoryFit(
        solution=solution,
        residuals=log_memory_error(grouped_peaks, known, values),
        informative=informative,
        verdicts=len(judged),
        wrong_verdicts=_wrong(excess, failed),
    )


def _wrong(excess: FloatArray, failed: NDArray[np.bool_]) -> int:
    """Verdicts that are not those of the runs; what takes all of the usable memory fits.

    >>> _wrong(np.array([-1.0, 0.0, 1.0, 1.0]), np.array([True, False, True, False]))
    2
    """
    return int(np.sum((excess > 0) != failed))


def _balance(failed: NDArray[np.bool_]) -> FloatArray:
    """Weights under which runs out of memory count as much as runs that fitted, and sum to one."""
    if not len(failed):
        return np.zeros(0)
    share = np.where(failed, 0.5 / max(1, int(failed.sum())), 0.5 / max(1, int((~failed).sum())))
    return np.asarray(np.sqrt(share), dtype=np.float64)


def _excess(grouped: Sequence[PlanBatch], runs: Sequence[Run], start: Stack, values: Mapping[str, float]) -> FloatArray:
    """log(reserved / usable memory) of every run, above zero where it cannot fit [1]."""
    if not runs:
        return np.zeros(0)
    memory = np.array([run.job.limits.hbm or run.job.cluster.device.memory for run in runs if run.job is not None])
    usable = memory - values.get("context_memory", start["context_memory"])
    return np.asarray(np.log(predicted_memory(grouped, len(runs), values)[0] / usable))
