"""Lines of litgpt: the time of one micro-batch, and at which step of the optimizer.

Source: Lightning-AI/litgpt, litgpt/pretrain.py (the last micro-batch of a step) and litgpt/finetune (every one).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from optimizer.frameworks.log_line import LogFormat, LogLine, decimal

LINE = re.compile(
    r"\biter +(\d+) step +(\d+)(?: \||:)\s*loss(?: train:)? ([-\d.]+|nan|inf),.*?\biter time: ([\d.]+) ?(m?s)\b"
    r"( \((?:optimizer\.)?step\))?"
)


def read(text: str) -> LogLine | None:
    """One micro-batch; its step is told by the last of them.

    >>> found = read("Epoch 1 | iter 512 step 64 | loss train: 2.9, val: n/a | iter time: 125.00 ms (step)")
    >>> found.step, found.micro_batch, found.seconds
    (64, 512, 0.125)
    >>> read("iter 77 step 39: loss 10.8259, iter time: 214.40ms (optimizer.step)").step
    39
    """
    match = LINE.search(text)
    if match is None:
        return None
    step = int(match[2]) if match[6] else None
    seconds = float(match[4]) / (1e3 if match[5] == "ms" else 1.0)
    return LogLine(step=step, micro_batch=int(match[1]), seconds=seconds, loss=decimal(match[3]))


def steps_of(readings: Sequence[LogLine]) -> list[LogLine | None]:
    """A step takes what its micro-batches take; where only the last is printed, as many times that as there are.

    >>> parts = [LogLine(micro_batch=1, seconds=1.0), LogLine(step=1, micro_batch=2, seconds=1.5)]
    >>> [found.seconds for found in steps_of(parts) if found]
    [2.5]
    >>> lasts = [LogLine(step=step, micro_batch=8 * step, seconds=0.25) for step in (1, 2, 3)]
    >>> [found.seconds for found in steps_of(lasts) if found]
    [2.0, 2.0, 2.0]
    """
    steps: list[LogLine | None] = []
    printed: list[float] = []
    before: LogLine | None = None
    for reading in readings:
        printed.append(reading.seconds or 0.0)
        if reading.step is None or reading.micro_batch is None:
            steps.append(None)
            continue
        passed = reading.step - (before.step or 0 if before else 0)
        done = reading.micro_batch - (before.micro_batch or 0 if before else 0)
        each = done / passed if passed > 0 and done > 0 else 1.0
        mean = sum(printed) / len(printed)
        steps.append(reading._replace(seconds=mean * each))
        before, printed = reading, []
    return steps


LOG = LogFormat(
    name="litgpt",
    marks=("iter time: ",),
    read=read,
    settle=steps_of,
    remark="litgpt prints micro-batches: a step is as many of them as it accumulates",
)
