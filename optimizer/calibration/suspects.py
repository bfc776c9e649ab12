"""The rows with the largest errors, and what may be behind each."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from optimizer.calibration.validation import Priced
from optimizer.objectives.step.formula import COMPUTE
from optimizer.objectives.step.interval import mfu
from optimizer.objectives.step.time_terms import burning

LARGE_SHARE = 0.25  # of the predicted time, for a term other than compute to be named
SLOW = 0.10


def worst(rows: Sequence[Priced], count: int = 10) -> list[Priced]:
    """The clean rows farthest from their measurement, in log; the farthest first."""
    timed = [row for row in rows if row.clean and row.ratio]
    return sorted(timed, key=lambda row: -abs(log(row.ratio or 1.0)))[:count]


def suspicion(row: Priced) -> str:
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


def _dominant(row: Priced) -> str:
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
