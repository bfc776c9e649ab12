"""What one line of a log says, in SI, whatever program printed it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """The values of one line; None stands for what it does not say.

    step, last_step: number of the step and of the run's last. seconds: of one step [s]; `averaged` over all steps since
    the line before; `alone`: such a time counts only where no line has a numbered step. tokens_rate: tokens of one GPU
    per second, sequences_rate: of the whole run [1/s]. reserved, allocated: peaks of memory [B]. skipped, nans: steps
    whose update was dropped, or whose loss was no number. facts: settings of the run by column of a table of runs.
    """

    step: int | None = None
    last_step: int | None = None
    seconds: float | None = None
    averaged: bool = False
    alone: bool = False
    tokens_rate: float | None = None
    sequences_rate: float | None = None
    loss: float | None = None
    grad_norm: float | None = None
    skipped: int = 0
    nans: int = 0
    reserved: float | None = None
    allocated: float | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


def nothing_to_settle(readings: Sequence[LogLine]) -> Sequence[bool]:
    """Every reading of a program counts."""
    return [True] * len(readings)


@dataclass(frozen=True, kw_only=True)
class LogFormat:
    """Lines of a training program.

    Attributes:
        name: what the program is called.
        marks: texts of which one is in every line that `read` understands.
        read: what a line says, None for nothing.
        tells: a text that must be somewhere in its logs, "" where its steps tell them.
        settle: which of all lines of a file count, where a line alone does not tell.
        remark: what a reader of its numbers must know.
        rank: where a line names the process that wrote it, None where none does.
    """

    name: str
    marks: tuple[str, ...]
    read: Callable[[str], LogLine | None]
    tells: str = ""
    settle: Callable[[Sequence[LogLine]], Sequence[bool]] = nothing_to_settle
    remark: str = ""
    rank: re.Pattern[str] | None = None


def decimal(text: str | None) -> float | None:
    """The number in a text, None where there is none; thousands may be set apart by commas.

    >>> decimal("12,345.5"), decimal("nan"), decimal("1.2.3"), decimal(None)
    (12345.5, nan, None, None)
    """
    if text is None:
        return None
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
