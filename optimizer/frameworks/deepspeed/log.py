"""Lines of DeepSpeed: sequences per second of the last step, and memory.

Source: microsoft/DeepSpeed, deepspeed/utils/timer.py (ThroughputTimer), deepspeed/runtime/utils.py
(see_memory_usage) and deepspeed/runtime/pipe/engine.py (train_batch). Its GB are 2**30 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from optimizer.base.units import GiB
from optimizer.frameworks.log_line import LogFormat, LogLine, decimal
from optimizer.frameworks.megatron.log import settings

STEP = re.compile(
    r"(?:\bglobal_step=|\b\d+/)(\d+), RunningAvgSamplesPerSec=[\d.einf+-]+, CurrSamplesPerSec=([\d.e+-]+), "
    r"MemAllocated=[\d.]+GB, MaxMemAllocated=([\d.]+)GB"
)
MEMORY = re.compile(r"\bMA [\d.]+ GB\s+Max_MA ([\d.]+) GB\s+CA ([\d.]+) GB\s+Max_CA (\d+) GB")


def read(text: str) -> LogLine | None:
    """A line of the throughput timer, of the memory, or a printed setting.

    >>> found = read("epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=25.0, CurrSamplesPerSec=25.6, "
    ...     "MemAllocated=4.32GB, MaxMemAllocated=38.5GB")
    >>> found.step, found.sequences_rate, found.allocated / 2**30
    (10, 25.6, 38.5)
    """
    if match := STEP.search(text):
        return LogLine(step=int(match[1]), sequences_rate=float(match[2]), allocated=float(match[3]) * GiB)
    if match := MEMORY.search(text):
        return LogLine(allocated=float(match[1]) * GiB, reserved=max(float(match[2]), float(match[3])) * GiB)
    return settings(text)


STEPPED = re.compile(r"\bstep=(\d+), skipped=\d+, lr=")
PIPED = re.compile(r"\bsteps: (\d+) loss: +(\S+) iter time \(s\): ([\d.]+) samples/sec: ([\d.]+)")
SPEED = re.compile(r"\bSamplesPerSec=[\d.einf+-]+, MemAllocated=[\d.]+GB, MaxMemAllocated=([\d.]+)GB")


def read_steps(text: str) -> LogLine | None:
    """A step of the engine, which says when it was, or of its pipeline, which says how long it took.

    Before 0.6 the timer counted micro-batches and their mean rate.

    >>> read_steps("[logging.py:69:log_dist] [Rank 0] step=40, skipped=2, lr=[5e-05], mom=[[0.9, 0.999]]").step
    40
    >>> read_steps("steps: 26 loss: 10.7576 iter time (s): 26.568 samples/sec: 0.602").seconds
    26.568
    """
    if match := PIPED.search(text):
        loss, seconds, rate = (decimal(each) for each in match.groups()[1:])
        return LogLine(step=int(match[1]), seconds=seconds, sequences_rate=rate, loss=loss)
    if match := STEPPED.search(text):
        return LogLine(step=int(match[1]))
    if match := SPEED.search(text):
        return LogLine(allocated=float(match[1]) * GiB)
    return settings(text)


def known_steps(readings: Sequence[LogLine]) -> Sequence[LogLine | None]:
    """Steps that go on, those that say how long they took where any does; a few starts alone tell nothing.

    >>> known_steps([LogLine(step=0), LogLine(step=0)])
    [None, None]
    >>> timed = [LogLine(step=each, seconds=2.0) for each in (1, 2, 3)]
    >>> [line and line.step for line in known_steps([LogLine(step=10), *timed])]
    [None, 1, 2, 3]
    """
    if any(reading.seconds is not None for reading in readings):
        readings = [line if line.seconds is not None or line.step is None else LogLine() for line in readings]
    steps = {reading.step for reading in readings if reading.step is not None}
    return readings if len(steps) > 2 else [None] * len(readings)


STEPS_LOG = LogFormat(
    name="DeepSpeed's steps",
    marks=("skipped=", " SamplesPerSec=", " iter time (s): ", " ...."),
    read=read_steps,
    settle=known_steps,
)
LOG = LogFormat(name="DeepSpeed", marks=("SamplesPerSec=", "Max_MA", " ...."), read=read)
