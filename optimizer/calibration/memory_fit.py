"""Fit a Stack's memory parameters to measured peaks and to which runs fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from optimizer.calibration.fit import from_unit, to_unit
from optimizer.calibration.predict import Batch, batches, with_parameters
from optimizer.calibration.runs import Run
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.bill import bill_of
from optimizer.objectives.pipeline.stages import stages_of
from optimizer.objectives.step.memory import stage_memory
from optimizer.stack import Stack

MEMORY_PARAMETERS = ("context_memory", "fragmentation", "workspace", "logit_memory", "activation_factor")
SCALE = 0.05  # of the soft-L1 loss [1 in log]
PRIOR = 0.02
FEWEST = 10  # peaks, or runs out of memory, that a fit needs
SOFTNESS = 0.02  # log distance from the limit within which a verdict is not yet certain
VERDICTS = 0.5  # weight of all verdicts against as many measured peaks


@dataclass(frozen=True, kw_only=True)
class MemoryFit:
    """Fitted parameters, those at a bound, log(predicted / measured) of the runs with a peak, and wrong verdicts."""

    parameters: Mapping[str, float]
    at_bound: tuple[str, ...]
    residuals: FloatArray
    verdicts: int
    wrong_verdicts: int


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """Measured peaks [B] and whether each counts what the framework reserved or only what it allocated."""

    memory: FloatArray
    reserved: NDArray[np.bool_]


def counts_reserved(run: Run) -> bool:
    """Whether a run's memory is what was reserved from the device; a kind that does not say is taken so.

    >>> counts_reserved(Run(id="1", row={}, stack_name="mine", memory_kind="torch allocated"))
    False
    """
    kind = run.memory_kind.lower()
    return "reserved" in kind or not ("alloc" in kind or "alloc" in run.row.get("notes", "").lower())


def measured_memory(runs: Sequence[Run]) -> Peaks:
    """The peaks of runs that have one."""
    return Peaks(
        memory=np.array([run.memory for run in runs], dtype=np.float64),
        reserved=np.array([counts_reserved(run) for run in runs], dtype=bool),
    )


def log_memory_error(grouped: Sequence[Batch], peaks: Peaks, parameters: Mapping[str, float]) -> FloatArray:
    """log(predicted / measured) peak of every run [1]."""
    reserved, allocated = predicted_memory(grouped, len(peaks.memory), parameters)
    return np.asarray(np.log(np.where(peaks.reserved, reserved, allocated) / peaks.memory))


def predicted_memory(
    grouped: Sequence[Batch], count: int, parameters: Mapping[str, float]
) -> tuple[FloatArray, FloatArray]:
    """Reserved and allocated peak of every run, without pricing its time [B]."""
    reserved, allocated = np.full(count, np.nan), np.full(count, np.nan)
    for batch in grouped:
        job = replace(batch.job, stack=with_parameters(batch.job.stack, parameters))
        held = stage_memory(bill_of(job, batch.plans), stages_of(job.model, batch.plans))
        places, fullest = list(batch.places), held.reserved.argmax(axis=0)
        reserved[places] = held.reserved.max(axis=0)
        fragments = np.take_along_axis(held.terms["fragmentation"], fullest[None], axis=0)[0]
        allocated[places] = reserved[places] - fragments
    return reserved, allocated


def fit_memory(
    runs: Sequence[Run],
    start: Stack,
    free: Sequence[str] = MEMORY_PARAMETERS,
    evaluations: int = 30,
    prior: float = PRIOR,
) -> MemoryFit:
    """Fit `free` so that measured peaks are met and runs fit, or run out of memory, as they did.

    Peaks enter as log errors under a soft-L1 loss; a verdict as softplus(log distance on the wrong side of the usable
    memory / SOFTNESS), runs out of memory and runs that fitted weighing alike. Runs with neither are left aside.
    Fewer than FEWEST peaks and fewer than FEWEST runs out of memory fit nothing: runs that all fitted say only that
    memory is not larger, and would pull every parameter down.
    """
    from scipy.optimize import least_squares

    known = [run for run in runs if run.job is not None and run.memory]
    judged = [run for run in runs if run.job is not None and run.out_of_memory is not None]
    failed = np.array([bool(run.out_of_memory) for run in judged])
    if not known and not judged:
        return MemoryFit(parameters={}, at_bound=(), residuals=np.zeros(0), verdicts=0, wrong_verdicts=0)
    peaks, grouped_peaks, grouped_verdicts = measured_memory(known), batches(known), batches(judged)
    balance = _balance(failed) * np.sqrt(VERDICTS * max(len(known), len(judged)))
    origin = np.array([to_unit(name, start[name]) for name in free])
    weight = prior * np.sqrt(len(known) + len(judged))

    def values_at(unit: FloatArray) -> dict[str, float]:
        return {name: from_unit(name, u) for name, u in zip(free, unit, strict=True)}

    def residuals(unit: FloatArray) -> FloatArray:
        values = values_at(unit)
        excess = _excess(grouped_verdicts, judged, start, values)
        wrong = np.where(failed, -excess, excess) / SOFTNESS
        doubt = SCALE * np.sqrt(np.logaddexp(0.0, wrong))
        return np.concatenate(
            [log_memory_error(grouped_peaks, peaks, values), balance * doubt, weight * (unit - origin)]
        )

    best = origin
    if free and max(len(known), int(failed.sum())) < FEWEST:
        free = ()
        best = origin = origin[:0]
    if free:
        guess = np.clip(origin, 0.02, 0.98)
        best = least_squares(
            residuals, guess, bounds=(0, 1), loss="soft_l1", f_scale=SCALE, diff_step=1e-3, max_nfev=evaluations
        ).x
    values = values_at(best)
    excess = _excess(grouped_verdicts, judged, start, values)
    return MemoryFit(
        parameters=values,
        at_bound=tuple(name for name, u in zip(free, best, strict=True) if u < 0.005 or u > 0.995),
        residuals=log_memory_error(grouped_peaks, peaks, values),
        verdicts=len(judged),
        wrong_verdicts=int(np.sum((excess > 0) != failed)),
    )


def _balance(failed: NDArray[np.bool_]) -> FloatArray:
    """Weights under which runs out of memory count as much as runs that fitted, and sum to one."""
    if not len(failed):
        return np.zeros(0)
    share = np.where(failed, 0.5 / max(1, failed.sum()), 0.5 / max(1, (~failed).sum()))
    return np.asarray(np.sqrt(share), dtype=np.float64)


def _excess(grouped: Sequence[Batch], runs: Sequence[Run], start: Stack, values: Mapping[str, float]) -> FloatArray:
    """log(reserved / usable memory) of every run, above zero where it cannot fit [1]."""
    if not runs:
        return np.zeros(0)
    context = values.get("context_memory", start["context_memory"])
    usable = np.array(
        [(run.job.limits.hbm or run.job.cluster.device.memory) - context for run in runs if run.job is not None]
    )
    return np.asarray(np.log(predicted_memory(grouped, len(runs), values)[0] / usable))
