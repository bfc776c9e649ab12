"""What a run takes in days and in dollars at the speed of a plan."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.improve.edits import State
from optimizer.units import DAY


@dataclass(frozen=True, kw_only=True)
class Run:
    """A whole run: its tokens, and the rent of one GPU [USD/s], None where no price is known."""

    tokens: float
    rent: float | None


def days(run: Run, state: State) -> float:
    """Days of computing at a plan's throughput, without failures [day]."""
    return run.tokens / state.throughput / DAY


def dollars(run: Run, state: State) -> float | None:
    """Rent of all GPUs over that time [USD], None without a price."""
    return None if run.rent is None else run.rent * state.job.gpus * run.tokens / state.throughput
