"""What one line of a log says, in SI, whatever program printed it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

Mark = str | re.Pattern[str]
BAR_RATE = re.compile(r"\|[^|]*\[[\d:]+<[\d:?]+,\s*([\d.]+)\s?(s/it|it/s)")
BAR_STATE = re.compile(r"\|\s*(\d+)/(\d+)\s*\[([\d:]+)<[\d:?]+,\s*(?:([\d.]+)\s?(s/it|it/s))?")


class LogLine(NamedTuple):
    """The values of one line; None stands for what it does not say. A tuple, since a log has a hundred thousand.

    step, last_step: number of the step and of the run's last. micro_batch: number of the micro-batch, of a line that is
    of one. bar: state of a progress bar and how many it has. seconds: of one step [s]; `averaged` over all steps since
    the line before; `alone`: such a time counts only where no line has a numbered step; `summary`: it is the mean of a
    run that has no other line. elapsed: since the run began
    [s]. tokens_rate: tokens of one GPU per second, sequences_rate: of the whole run [1/s]. flops_rate: operations of
    one GPU per second, as the program counts them [FLOP/s]. reserved, allocated: peaks of memory [B]. skipped, nans:
    steps whose update was dropped, or whose loss was no number. facts: settings of the run by column of a table of
    runs.
    """

    step: int | None = None
    last_step: int | None = None
    micro_batch: int | None = None
    bar: tuple[int, int] | None = None
    seconds: float | None = None
    averaged: bool = False
    alone: bool = False
    summary: bool = False
    elapsed: float | None = None
    tokens_rate: float | None = None
    sequences_rate: float | None = None
    flops_rate: float | None = None
    loss: float | None = None
    grad_norm: float | None = None
    skipped: int = 0
    nans: int = 0
    reserved: float | None = None
    allocated: float | None = None
    facts: Mapping[str, str] = MappingProxyType({})


def nothing_to_settle(readings: Sequence[LogLine]) -> Sequence[LogLine | None]:
    """Every reading of a program counts as it is."""
    return readings


@dataclass(frozen=True, kw_only=True)
class LogFormat:
    """Lines of a training program.

    Attributes:
        name: what the program is called.
        marks: texts or patterns of which one is in every line that `read` understands.
        read: what a line says, None for nothing.
        tells: a text that must be somewhere in its logs, "" where its steps tell them.
        settle: what each of all readings of a file counts as, None for nothing, where a line alone does not tell.
        remark: what a reader of its numbers must know.
        rank: where a line names the process that wrote it, None where none does.
    """

    name: str
    marks: tuple[Mark, ...]
    read: Callable[[str], LogLine | None]
    tells: str = ""
    settle: Callable[[Sequence[LogLine]], Sequence[LogLine | None]] = nothing_to_settle
    remark: str = ""
    rank: re.Pattern[str] | None = None


def rate_of_bar(text: str) -> float | None:
    """The seconds of a step that a progress bar shows, None without [s].

    Source: tqdm/tqdm, tqdm/std.py (format_meter), whose rate is an exponential mean.

    >>> rate_of_bar("10%|#    | 100/1000 [03:51<34:39,  2.50it/s]"), rate_of_bar("0%|    | 0/10 [00:00<?, ?it/s]")
    (0.4, None)
    """
    match = BAR_RATE.search(text)
    return seconds_of(match[1], match[2]) if match else None


def of_bar(text: str, step: int | None = None, loss: float | None = None) -> LogLine | None:
    """What a progress bar says: its state, its clock and its running mean; its state is the step unless one is given.

    >>> found = of_bar("10%|#    | 100/1000 [03:51<34:39,  2.50it/s]")
    >>> found.bar, found.elapsed, found.seconds
    ((100, 1000), 231.0, 0.4)
    """
    match = BAR_STATE.search(text)
    if match is None:
        return None
    state, length, clock, rate, unit = match.groups()
    bar = int(state), int(length)
    return LogLine(
        step=bar[0] if step is None else step,
        last_step=bar[1] if step is None else None,
        bar=bar,
        seconds=seconds_of(rate, unit) if rate else None,
        averaged=True,
        elapsed=clock_seconds(clock),
        loss=loss,
    )


def clock_seconds(text: str) -> float:
    """The seconds of a clock of hours, minutes and seconds [s].

    >>> clock_seconds("1:00:02.5"), clock_seconds("02:05")
    (3602.5, 125.0)
    """
    seconds = 0.0
    for part in text.split(":"):
        seconds = 60 * seconds + float(part or 0)
    return seconds


def seconds_of(rate: str, unit: str) -> float | None:
    """The seconds of a step at the rate of a progress bar, None for a rate of nothing [s].

    >>> seconds_of("2.50", "it/s"), seconds_of("0.00", "s/it")
    (0.4, None)
    """
    value = float(rate)
    return (value if unit == "s/it" else 1.0 / value) if value else None


def tera(text: str | None) -> float | None:
    """A printed number of TFLOP/s, the first of a value and a mean, in FLOP/s; None where there is none.

    >>> tera("567.5/568.0"), tera(None)
    (567500000000000.0, None)
    """
    value = decimal((text or "").partition("/")[0] or None)
    return None if value is None else value * 1e12


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
