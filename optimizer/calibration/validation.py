"""Predictions against measured runs: every row priced, and the errors by source, stack, device and model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log, log1p

import numpy as np

from optimizer.calibration.groups import BY, gathered, places_by, plan_group, site_name
from optimizer.calibration.known import known_errors
from optimizer.calibration.memory_fit import ALLOCATED, COUNTED, counted, predicted_memory
from optimizer.calibration.predict import batches, predict
from optimizer.calibration.runs import Run
from optimizer.calibration.scores import Errors, PlanChoice, Verdicts, choice_of, errors_of
from optimizer.job.known import MEMORY, TIME, RunError
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.belief.belief import error_of
from optimizer.objectives.step.formula import COMPUTE
from optimizer.objectives.step.interval import SIDES, Interval, around, mfu
from optimizer.objectives.step.time_terms import burning

LARGE_SHARE = 0.25  # of the predicted time, for a term other than compute to be named
SLOW = 0.10  # MFU below which a measurement is suspect


@dataclass(frozen=True, kw_only=True)
class PricedRun:
    """One row and what was predicted for it, all None where it is refused."""

    run: Run  # the row
    step_time: float | None = None  # predicted, with what given runs say of it [s]
    without: float | None = None  # predicted without them [s]
    interval: Interval | None = None  # of the step time
    reserved: float | None = None  # memory of the fullest GPU [B]
    allocated: float | None = None  # the same without fragments [B]
    as_measured: float = 0.0  # the memory that the run's own figure counts [B]
    memory_spread: float = 0.0  # standard deviation of log(measured / predicted memory) [1]
    fits: bool | None = None  # whether that is usable
    terms: Mapping[str, float] | None = None  # the step time by term [s]

    @property
    def clean(self) -> bool:
        """Whether the row counts in the summaries: priced, and not doubted."""
        return self.step_time is not None and not self.run.doubted

    @property
    def ratio(self) -> float | None:
        """Predicted over measured step time."""
        return self.step_time / self.run.step_time if self.step_time and self.run.step_time else None

    @property
    def error(self) -> float:
        """The same less one; 0 where it is not known."""
        return (self.ratio or 1.0) - 1.0


@dataclass(frozen=True, kw_only=True)
class Score:
    """All errors of one group of rows, `by` one of BY or "all"; None where no row tells."""

    by: str
    name: str
    rows: int
    time: Errors | None
    coverage: float | None
    extrapolated: int
    allocated: Errors | None
    reserved: Errors | None
    memory: Errors | None
    memory_coverage: float | None
    verdicts: Verdicts
    choice: PlanChoice | None


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Every row in its order, and the scores: of all rows first, then by what BY has."""

    rows: tuple[PricedRun, ...]
    scores: tuple[Score, ...]
    given: int = 0  # runs that every prediction knew

    @property
    def doubtful(self) -> int:
        """Rows that were priced but do not count in the scores, as Run.doubted says."""
        return sum(row.step_time is not None and not row.clean for row in self.rows)

    @property
    def refused(self) -> int:
        """Rows that could not be priced."""
        return sum(row.step_time is None for row in self.rows)

    @property
    def overall(self) -> Score | None:
        """The score of all clean rows; None when there is none."""
        return next((score for score in self.scores if score.by == "all"), None)

    def by(self, kind: str) -> list[Score]:
        """The scores of one kind of group."""
        return [score for score in self.scores if score.by == kind]


def validate(runs: Sequence[Run], given: Sequence[Run] = ()) -> Validation:
    """Price every run with the stack it names, knowing the given ones, and compare; a given run is not judged."""
    known, seen = known_errors(given, site_name), {tuple(run.row.items()) for run in given}
    rows = priced([_knowing(run, known) for run in runs if tuple(run.row.items()) not in seen])
    clean = [row for row in rows if row.clean]
    scores = [score("all", "all", clean)] if clean else []
    of_clean = [row.run for row in clean]
    for by, key in BY.items():
        groups = sorted((str(name), places) for name, places in places_by(of_clean, key).items())
        scores += [score(by, name, [clean[place] for place in places]) for name, places in groups]
    return Validation(
        rows=tuple(rows), scores=tuple(scores), given=sum(run.job is not None and not run.doubted for run in given)
    )


def _knowing(run: Run, known: tuple[RunError, ...]) -> Run:
    if run.job is None or not known:
        return run
    return replace(run, job=replace(run.job, stack=replace(run.job.stack, known=known)))


def priced(runs: Sequence[Run]) -> list[PricedRun]:
    """Predicted time, interval, memory and verdict of every run, in order."""
    grouped = batches(runs)
    costs, counts = predict(grouped, len(runs)), predicted_memory(grouped, len(runs), {})
    rows = []
    for place, run in enumerate(runs):
        if run.job is None or run.plan is None:
            rows.append(PricedRun(run=run))
            continue
        step, site = float(costs.step_time[place]), site_name(run)
        error = error_of(run.job, run.plan, mfu(run.job, step), TIME, site)
        more, spread = error_of(run.job, run.plan, 1.0, MEMORY, site)
        reserved = float(costs.reserved[place]) * exp(more)
        rows.append(
            PricedRun(
                run=run,
                step_time=step * exp(error[0]),
                without=step,
                interval=around(run.job, run.plan, step, error),
                reserved=reserved,
                allocated=float(costs.allocated[place]) * exp(more),
                as_measured=float(counts[COUNTED.index(counted(run))][place]) * exp(more),
                memory_spread=spread,
                fits=reserved <= run.job.usable_memory,
                terms={term: float(seconds[place]) for term, seconds in costs.time.items()},
            )
        )
    return rows


def score(by: str, name: str, rows: Sequence[PricedRun]) -> Score:
    """The errors of one group of clean rows."""
    timed = [row for row in rows if row.step_time and row.run.step_time]
    covered = [
        row.interval.low <= row.run.step_time <= row.interval.high
        for row in timed
        if row.interval and row.run.step_time is not None
    ]
    measured = [row for row in rows if row.run.memory]
    return Score(
        by=by,
        name=name,
        rows=len(rows),
        time=errors_of([row.step_time or 0.0 for row in timed], [row.run.step_time or 1.0 for row in timed]),
        coverage=_share(covered),
        extrapolated=sum(bool(row.interval and row.interval.reasons) for row in timed),
        allocated=_memory_errors([row for row in measured if counted(row.run) == ALLOCATED]),
        reserved=_memory_errors([row for row in measured if counted(row.run) != ALLOCATED]),
        memory=_memory_errors(measured),
        memory_coverage=_share(
            [abs(log((row.run.memory or 1.0) / row.as_measured)) <= SIDES * row.memory_spread for row in measured]
        ),
        verdicts=_verdicts(rows),
        choice=choice_of(_choices(timed)),
    )


def _share(hits: Sequence[bool]) -> float | None:
    return sum(hits) / len(hits) if hits else None


def _memory_errors(rows: Sequence[PricedRun]) -> Errors | None:
    return errors_of([row.as_measured for row in rows], [row.run.memory or 1.0 for row in rows])


def _verdicts(rows: Sequence[PricedRun]) -> Verdicts:
    outcomes = [(row.run.out_of_memory, bool(row.fits)) for row in rows if row.run.out_of_memory is not None]
    return Verdicts(
        fits_predicted_fits=outcomes.count((False, True)),
        fits_predicted_oom=outcomes.count((False, False)),
        oom_predicted_fits=outcomes.count((True, True)),
        oom_predicted_oom=outcomes.count((True, False)),
    )


def _choices(timed: Sequence[PricedRun]) -> list[tuple[FloatArray, FloatArray]]:
    """(predicted, measured) times of every group of runs with at least two plans."""
    groups = []
    for members in gathered(timed, lambda row: plan_group(row.run)).values():
        if len({row.run.plan for row in members}) >= 2:
            predicted = np.array([row.step_time for row in members], dtype=np.float64)
            measured = np.array([row.run.step_time for row in members], dtype=np.float64)
            groups.append((predicted, measured))
    return groups


def worst(rows: Sequence[PricedRun], count: int = 10) -> list[PricedRun]:
    """The clean rows farthest from their measurement, in log; the farthest first."""
    timed = [row for row in rows if row.clean and row.ratio]
    return sorted(timed, key=lambda row: -abs(log1p(row.error)))[:count]


def suspicion(row: PricedRun) -> str:
    """What may be wrong with a prediction or a row: extrapolation, assumptions, a doubtful term, the row itself."""
    reasons = list(row.interval.reasons) if row.interval else []
    if row.run.assumed:
        reasons.append("assumed " + ", ".join(row.run.assumed))
    if row.run.job and row.run.step_time and (measured := mfu(row.run.job, row.run.step_time)) < SLOW:
        reasons.append(f"measured MFU {measured:.1%}: bound by the host or the network")
    if row.fits is False and row.run.out_of_memory is False:
        reasons.append("predicted not to fit")
    if row.run.doubted:
        reasons.append(row.run.doubted)
    return "; ".join([*reasons, _dominant(row)])


def _dominant(row: PricedRun) -> str:
    """The largest term of the predicted time besides compute if it is large, otherwise compute."""
    terms = {name: value for name, value in (row.terms or {}).items() if name not in burning(COMPUTE)}
    if not terms or not row.step_time:
        return "not priced"
    name = max(terms, key=lambda term: terms[term])
    share = terms[name] / row.step_time
    if share >= LARGE_SHARE:
        return f"{name.replace('_', ' ')} is {share:.0%} of the predicted time"
    compute = sum((row.terms or {}).get(term, 0.0) for term in burning(COMPUTE)) / row.step_time
    return f"matrix products and attention are {compute:.0%} of the predicted time"
