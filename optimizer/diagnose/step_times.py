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


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What turns a rate into seconds: sequences of a step, their tokens and the GPUs; 0 where unknown."""

    global_batch: int = 0
    seq_len: int = 0
    gpus: int = 0

    @classmethod
    def of(cls, facts: Mapping[str, str]) -> Sizes:
        """Those that a log or a user names.

        >>> Sizes.of({"gpus": "64", "seq_len": "8192.0"})
        Sizes(global_batch=0, seq_len=8192, gpus=64)
        """
        known = {name: count_in(facts[name]) for name in ("global_batch", "seq_len", "gpus") if facts.get(name)}
        return cls(**known)


def timed_steps(run: LoggedRun, sizes: Sizes) -> list[Timed]:
    """Every step of a run whose seconds can be told, in its order; all in the way that most of them are."""
    timed: list[Timed] = []
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


def _seconds(reading: LogLine, sizes: Sizes) -> float | None:
    """Seconds of one step: as printed, or tokens or sequences of a step over their rate."""
    if reading.seconds is not None:
        return reading.seconds
    tokens = sizes.global_batch * sizes.seq_len / sizes.gpus if sizes.gpus else 0.0
    if tokens and reading.tokens_rate:
        return tokens / reading.tokens_rate
    return sizes.global_batch / reading.sequences_rate if sizes.global_batch and reading.sequences_rate else None
