"""Seconds of every logged step, from what its program prints: a duration, a rate, or the times of the lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from optimizer.base.units import count_in
from optimizer.diagnose.attempts import Record
from optimizer.diagnose.log import LoggedRun
from optimizer.frameworks.log_line import LogLine

PRINTED, RATE, CLOCK = "printed", "rate", "clock"


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One logged step: its number, how many steps its time is the mean of, its seconds, and how these were found.

    `attempt` numbers the restarts of a run.
    """

    step: int
    steps: int
    seconds: float
    basis: str
    attempt: int


def timed_steps(run: LoggedRun, facts: Mapping[str, str]) -> list[Timed]:
    """Every step of a run whose seconds can be told, in its order; all in the way that most of them are."""
    timed: list[Timed] = []
    # What turns a rate into seconds: sequences of a step, their tokens and the GPUs; 0 where unknown.
    sizes = {name: count_in(facts.get(name, "")) for name in ("global_batch", "seq_len", "gpus")}
    for number, attempt in enumerate(run.stream.attempts):
        before: Record | None = None
        for record in attempt:
            gap = record.step - before.step if before else 1
            seconds, basis = _seconds(record.reading, sizes), PRINTED
            if seconds is not None and record.reading.seconds is None:
                basis = RATE
            if seconds is None and before is not None:
                basis = CLOCK  # with all that happened between the two lines
                if gap >= 1 and before.time is not None and record.time is not None:
                    seconds = (record.time - before.time) / gap
            steps = max(1, gap) if record.reading.averaged or basis == CLOCK else 1
            if seconds is not None and isfinite(seconds) and seconds > 0:
                timed.append(Timed(step=record.step, steps=steps, seconds=seconds, basis=basis, attempt=number))
            before = record
    ways = [step.basis for step in timed]
    usual = max(set(ways), key=ways.count, default=PRINTED)
    return [step for step in timed if step.basis == usual]


def _seconds(reading: LogLine, sizes: Mapping[str, int]) -> float | None:
    """Seconds of one step: as printed, or tokens or sequences of a step over their rate."""
    if reading.seconds is not None:
        return reading.seconds
    batch, gpus = sizes["global_batch"], sizes["gpus"]
    if gpus and batch and sizes["seq_len"] and reading.tokens_rate:
        return batch * sizes["seq_len"] / gpus / reading.tokens_rate
    return batch / reading.sequences_rate if batch and reading.sequences_rate else None
