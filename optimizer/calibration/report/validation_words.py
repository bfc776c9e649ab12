"""What reports on a validation have in common: its figures as people read them, and its main sentences."""

from __future__ import annotations

from optimizer.calibration.scores import Errors, Verdicts
from optimizer.calibration.validation import Score, Validation
from optimizer.objectives.step.interval import LEVEL
from optimizer.reports.table import Column, Value

TITLES = {"source": "source", "stack": "software stack", "device": "device", "model": "model"}
TIME_COLUMNS = (
    Column(label="runs", unit="1"),
    Column(label="MAPE", unit="%"),
    Column(label="median", unit="%"),
    Column(label="90th pct", unit="%"),
    Column(label="bias", unit="%"),
    Column(label="in 90% interval", unit="%"),
    Column(label="fit/OOM", unit="%"),
    Column(label="regret", unit="%"),
)


def time_cells(score: Score) -> list[Value]:
    """The cells of TIME_COLUMNS for one group."""
    time = score.time
    figures: list[Value] = [None] * 5 if time is None else [time.runs, time.mape, time.median, time.p90, time.bias]
    regret = score.choice.mean_regret if score.choice else None
    return [*figures, score.coverage, score.verdicts.balanced_accuracy, regret]


def headline(validation: Validation) -> str:
    """How far step times are off, in one line."""
    overall = validation.overall
    if overall is None or overall.time is None:
        return "No clean row has a measured step time to compare with"
    time = overall.time
    return f"Step time of {time.runs:,} runs: MAPE {time.mape:.1%}, median {time.median:.1%}, bias {time.bias:+.1%}"


def coverage_line(score: Score) -> str:
    """How often the interval held the measurement."""
    if score.coverage is None or score.time is None:
        return ""
    return (
        f"{score.coverage:.1%} of the measured times lie in their {LEVEL:.0%} interval; {score.extrapolated:,} of "
        f"{score.time.runs:,} are extrapolated from what their stack was fitted to."
    )


def set_aside_line(validation: Validation) -> str:
    """Rows that do not count, and why."""
    parts = []
    if validation.doubtful:
        parts.append(
            f"{validation.doubtful:,} rows that their source doubts (column quality) or that name no micro_batch are "
            "priced but not counted"
        )
    if validation.refused:
        parts.append(f"{validation.refused:,} rows cannot be priced")
    return "; ".join(parts) + "." if parts else ""


def memory_lines(score: Score) -> list[str]:
    """Errors of memory by kind, and whether runs fit."""
    lines = [
        f"{kind} memory of {errors.runs:,} runs: {_errors(errors)}"
        for kind, errors in (("Allocated", score.allocated), ("Reserved", score.reserved))
        if errors
    ]
    if score.memory_coverage is not None:
        lines.append(f"{score.memory_coverage:.1%} of the measured peaks lie in their {LEVEL:.0%} interval.")
    return [*lines, *verdict_lines(score.verdicts)]


def verdict_lines(verdicts: Verdicts) -> list[str]:
    """Which runs fitted, and which were predicted to."""
    if not verdicts.runs:
        return []
    fits = verdicts.fits_predicted_fits + verdicts.fits_predicted_oom
    failed = verdicts.oom_predicted_fits + verdicts.oom_predicted_oom
    lines = [f"Of {_runs(fits)} that fitted, {_were(verdicts.fits_predicted_oom)} predicted to run out of memory."]
    if failed:
        lines.append(f"Of {_runs(failed)} out of memory, {_were(verdicts.oom_predicted_fits)} predicted to fit.")
        lines.append(f"Balanced accuracy {verdicts.balanced_accuracy:.1%}.")
    return lines


def _runs(count: int) -> str:
    return f"{count:,} run{'s' * (count != 1)}"


def _were(count: int) -> str:
    return f"{count:,} {'was' if count == 1 else 'were'}"


def choice_lines(score: Score) -> list[str]:
    """How good the first choice among measured plans is."""
    choice = score.choice
    if choice is None:
        return []
    groups = f"{choice.groups:,} group{'s' * (choice.groups != 1)}"
    lines = [
        f"In {groups} of runs that differ only in the plan, the one ranked first takes {choice.mean_regret:.1%} longer "
        f"than the best measured one on average, {choice.worst_regret:.1%} at worst."
    ]
    if choice.rank_correlation is not None:
        lines.append(f"Mean rank correlation of predicted and measured times: {choice.rank_correlation:.2f}.")
    return lines


def _errors(errors: Errors) -> str:
    return f"MAPE {errors.mape:.1%}, median {errors.median:.1%}, bias {errors.bias:+.1%}"
