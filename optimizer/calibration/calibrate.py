"""Fit a Stack to measured runs: times, then memory, then what they say of its errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from optimizer.base.errors import InputError
from optimizer.calibration import settle
from optimizer.calibration.fit import TIME_PARAMETERS, fit_times, time_errors
from optimizer.calibration.groups import BY, places_by, source_name
from optimizer.calibration.known import with_known
from optimizer.calibration.least_squares import Optimum
from optimizer.calibration.memory_fit import MEMORY_PARAMETERS, MemoryFit, fit_memory
from optimizer.calibration.rows.recipe import stated_parameters
from optimizer.calibration.runs import Run, nothing_to_fit
from optimizer.calibration.scores import Errors, errors_of
from optimizer.catalog import load_stack, stack_names
from optimizer.job.model import Provenance
from optimizer.job.stack import PARAMETERS, Stack
from optimizer.objectives.arrays import FloatArray

SLOW_LAUNCH = 3e-5  # the second start: a host that launches kernels slowly is another valley of the loss
STARTS: tuple[Mapping[str, float], ...] = ({}, {"launch": SLOW_LAUNCH})
WRONG_Z, SMALLEST_SPREAD = 4.0, 0.01
NORMAL_MAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
LONGEST_SOURCE = 300

Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A fitted stack and how it came about."""

    stack: Stack  # with the fitted parameters
    start: Stack  # the stack that the fit started from
    timed: tuple[Run, ...]  # the runs whose step times were fitted
    errors: FloatArray  # log(predicted / measured) of the timed runs [1]
    spreads: Mapping[str, float]  # of the fitted parameters, after the runs / before them [1]
    memory: MemoryFit  # the fit of the memory
    refused: tuple[Run, ...]  # runs that cannot be priced
    doubtful: int  # number of runs that are no clean measurement
    suspects: tuple[tuple[Run, float], ...]  # timed runs that look wrong, with their robust z [1]

    def groups(self) -> dict[str, dict[str, Errors]]:
        """Residuals by source, device and model."""
        places = {by: places_by(self.timed, key) for by, key in BY.items() if by != "stack"}
        return {
            by: {str(name): _errors(self.errors[members]) for name, members in groups.items()}
            for by, groups in places.items()
        }


def calibrate(
    runs: Sequence[Run],
    start: Stack,
    *,
    name: str = "",
    date: str = "",
    evaluations: int = 20,
    keep: str = "",
    anew: bool = False,
    report: Report = lambda text: None,
) -> Calibration:
    """Fit the parameters of `start` to clean runs, but for those to `keep`: "times", "all" or none of them.

    Two starts guard against the two valleys of the launch time; the one of less cost wins. Parameters that the runs do
    not tell keep the values of `start`, or `anew` their defaults; those on a bound are fixed there (see settle). Memory
    parameters follow, then the errors, the ranges and the residuals.

    Raises InputError when no clean run has a step time and all that pricing needs.
    """
    clean = [run for run in runs if run.job is not None and not run.doubted]
    timed = [run for run in clean if run.step_time]
    if not timed:
        raise InputError(nothing_to_fit(runs))
    names = () if keep == "all" else MEMORY_PARAMETERS if keep else tuple(PARAMETERS)
    parent = load_stack(start.parent) if (anew or keep) and start.parent else None
    origin = settle.anew(start, tuple(PARAMETERS), parent) if anew or keep else start
    home = settle.anew(start, names, parent) if anew else start
    clean = [_under(run, home) for run in clean]
    stack, solutions = home, []
    if not keep:
        stack, fit = _settled_times(clean, home, start.parameters, evaluations, report)
        solutions.append(fit)
    stack, memory = _settled_memory(clean, stack, start.parameters, keep == "all", report)
    if memory.solution:
        solutions.append(memory.solution)
    identified = tuple(name for solution in solutions for name in solution.names)
    stack = settle.inherited(stack, start.parent if anew else start.name, set(names).difference(identified))
    clean = [_under(run, stack) for run in clean]
    timed = [run for run in clean if run.step_time]
    errors = time_errors(timed, stack.parameters)
    source = "fitted to " + ", ".join(sorted({source_name(run) for run in timed}))
    report("errors: runs left out")
    stack = with_known(replace(stack, name=name or start.name, residuals={}), clean, home=origin)
    stack = replace(
        stack,
        parent=start.parent if anew or start.name not in stack_names() else start.name,
        runs=len(timed),
        residuals=_residuals(errors, memory) | dict(stack.residuals),
        provenance=start.provenance
        if keep == "all"
        else Provenance(source=source[:LONGEST_SOURCE], date=date, grade="A", note=start.provenance.note),
    )
    return Calibration(
        stack=stack,
        start=start,
        timed=tuple(timed),
        errors=errors,
        spreads={name: spread for solution in solutions for name, spread in solution.spreads.items()},
        memory=memory,
        refused=tuple(run for run in runs if run.job is None),
        doubtful=sum(run.job is not None and bool(run.doubted) for run in runs),
        suspects=_suspects(timed, errors),
    )


def _settled_times(
    clean: Sequence[Run], home: Stack, guess: Mapping[str, float], evaluations: int, report: Report
) -> tuple[Stack, Optimum]:
    """The parameters of time that the runs identify, fitted from the better of two starts."""
    timed = [run for run in clean if run.step_time]
    free = tuple(name for name in informed(timed) if name not in home.fixed)

    def fit(stack: Stack, names: Sequence[str], begin: Mapping[str, float]) -> Optimum:
        report(f"times: {len(timed)} runs, {len(names)} parameters")
        under = [_under(run, stack) for run in timed]
        return fit_times(under, stack, free=names, evaluations=evaluations, guess=begin)

    first = min((fit(home, free, {**guess, **other}) for other in STARTS), key=lambda optimum: optimum.cost)
    return settle.settled(fit, lambda optimum: optimum, home, free, first, len(timed))


def _settled_memory(
    clean: Sequence[Run], home: Stack, guess: Mapping[str, float], keep: bool, report: Report
) -> tuple[Stack, MemoryFit]:
    """The parameters of memory that the runs identify."""
    free = () if keep else tuple(name for name in MEMORY_PARAMETERS if name not in home.fixed)

    def fit(stack: Stack, names: Sequence[str], begin: Mapping[str, float]) -> MemoryFit:
        report(f"memory: {sum(bool(run.memory) for run in clean)} peaks, {len(names)} parameters")
        return fit_memory([_under(run, stack) for run in clean], stack, free=names, guess=begin)

    first = fit(home, free, guess)
    return settle.settled(fit, lambda fitted: fitted.solution, home, free, first, first.informative)


def informed(runs: Sequence[Run]) -> tuple[str, ...]:
    """The time parameters that at least one run depends on, so that no evaluation is spent on the others."""
    plans = [run.plan for run in runs if run.plan]
    jobs = [run.job for run in runs if run.job]
    flash = {job.stack.features.attention.startswith("flash") for job in jobs}
    nodes = any(job.gpus > job.cluster.gpus_per_node for job in jobs)
    informing = {
        "attention_efficiency": True in flash,
        "score_passes": False in flash,
        "tp_overlap": any(plan.tp > 1 for plan in plans),
        "dp_overlap": any(plan.dp * plan.cp > 1 for plan in plans),
        "p2p_overlap": any(plan.pp > 1 for plan in plans),
        "scale_up_efficiency": any(plan.gpus > 1 for plan in plans),
        "network_efficiency": nodes,
        "straggler": nodes,
        "cp_overlap": any(plan.cp > 1 for plan in plans),
        "ep_overlap": any(plan.ep > 1 for plan in plans),
        "expert_imbalance": any(job.model.experts and not job.stack.features.balanced_experts for job in jobs),
        "expert_efficiency": any(job.model.experts for job in jobs),
        "expert_host": any(job.model.experts and job.stack.features.eager_experts for job in jobs),
        "pipelined_collective": any(job.stack["pipelined_collective"] > 0 for job in jobs),
    }
    return tuple(name for name in dict.fromkeys((*TIME_PARAMETERS, *informing)) if informing.get(name, True))


def _under(run: Run, stack: Stack) -> Run:
    """The run priced with the fitted parameters; features stay those of its row, and so do parameters that it says."""
    if run.job is None:
        return run
    stated = stated_parameters(run.job.stack)
    parameters = {name: value for name, value in stack.parameters.items() if name not in stated}
    priced_by = replace(run.job.stack, parameters=parameters, fixed={**stack.fixed, **stated})
    return replace(run, job=replace(run.job, stack=priced_by))


def _errors(log_errors: FloatArray) -> Errors:
    nothing = Errors(runs=0, mape=0.0, median=0.0, p90=0.0, bias=0.0)
    return errors_of(np.exp(log_errors), np.ones(len(log_errors))) or nothing


def _residuals(errors: FloatArray, memory: MemoryFit) -> dict[str, float]:
    time = _errors(errors)
    residuals = {"mape": time.mape, "median": time.median, "p90": time.p90, "bias": time.bias}
    if len(memory.residuals):
        residuals |= {"memory_mape": _errors(memory.residuals).mape, "memory_runs": float(len(memory.residuals))}
    return residuals


def _suspects(timed: Sequence[Run], errors: FloatArray) -> tuple[tuple[Run, float], ...]:
    """Runs whose error lies more than WRONG_Z robust standard deviations from the median, the farthest first.

    z = (e - median) / (1.4826 MAD). Source: Iglewicz and Hoaglin, How to Detect and Handle Outliers (1993).
    """
    scores = robust_z(errors)
    order: NDArray[np.intp] = np.argsort(-np.abs(scores), kind="stable")
    return tuple((timed[place], float(scores[place])) for place in order if abs(scores[place]) > WRONG_Z)


def robust_z(errors: FloatArray) -> FloatArray:
    """Distance from the median in robust standard deviations, of at least one percent each [1].

    >>> robust_z(np.array([3.0, 3.1, 2.9, 3.05, 2.95, 5.0])).round(1).tolist()[-1]
    17.8
    """
    centre = np.median(errors)
    spread = max(NORMAL_MAD * float(np.median(np.abs(errors - centre))), SMALLEST_SPREAD)
    return np.asarray((errors - centre) / spread, dtype=np.float64)
