"""Lines of nanotron, whose numbers have three significant digits.

Source: huggingface/nanotron, src/nanotron/trainer.py (train_step_logs) and src/nanotron/logging (human_format).
"""

from __future__ import annotations

import re

from optimizer.base.units import MiB
from optimizer.frameworks.log_line import LogFormat, LogLine, decimal

NUMBER = r"([\d.]+(?:[eE][-+]?\d+)?[KMBT]?|nan)"
STEP = re.compile(rf"\biteration: (\d+) / (\d+) \|.*?\btime_per_iteration_ms: {NUMBER} \|")
OLD_STEP = re.compile(rf"\biteration: (\d+) / (\d+) \|.*?\belapsed_time_per_iteration_ms: {NUMBER} \|")
LOSS, NORM = (re.compile(rf"\b{name}: {NUMBER}(?: \||$)") for name in ("lm_loss", "grad_norm"))
FLOPS = re.compile(rf"\bmodel_tflops_per_gpu: {NUMBER}(?: \||$)")
MEMORY = re.compile(r"\bPeak allocated ([\d.]+)MiB\. Peak reserved: ([\d.]+)MiB")
SIZES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def number(text: str) -> float | None:
    """A number with the letter of its thousands.

    >>> number("1.23K"), number("980"), number("nan")
    (1230.0, 980.0, nan)
    """
    letter = text[-1] if text[-1] in "KMBT" else ""
    value = decimal(text.removesuffix(letter))
    return None if value is None else value * SIZES[letter]


def read(text: str) -> LogLine | None:
    """A step's line, or that of a rank's memory.

    >>> found = read("iteration: 5 / 20 | time_per_iteration_ms: 1.23K | lm_loss: 2.5 | model_tflops_per_gpu: 400 |")
    >>> found.seconds, found.flops_rate, found.loss
    (1.23, 400000000000000.0, 2.5)
    """
    if match := STEP.search(text) or OLD_STEP.search(text):
        loss, norm, flops = LOSS.search(text), NORM.search(text), FLOPS.search(text)
        milliseconds, tflops = number(match[3]), number(flops[1]) if flops else None
        return LogLine(
            step=int(match[1]),
            last_step=int(match[2]),
            seconds=None if milliseconds is None else milliseconds / 1e3,
            flops_rate=None if tflops is None else tflops * 1e12,
            loss=number(loss[1]) if loss else None,
            grad_norm=number(norm[1]) if norm else None,
        )
    if match := MEMORY.search(text):
        return LogLine(allocated=float(match[1]) * MiB, reserved=float(match[2]) * MiB)
    return None


LOG = LogFormat(
    name="nanotron",
    marks=("time_per_iteration_ms", "Peak reserved"),
    read=read,
    remark="nanotron prints three significant digits: times are exact to 0.5 % at best",
    rank=re.compile(r"\|(DP=\d+(?:\|[A-Z]+=\d+)*)\b"),
)
