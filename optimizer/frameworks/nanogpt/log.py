"""Lines of nanoGPT and of nanochat.

Source: karpathy/nanoGPT, train.py; karpathy/nanochat, scripts/base_train.py.
"""

from __future__ import annotations

import re

from optimizer.frameworks.log_line import LogFormat, LogLine, decimal

NANOGPT = re.compile(r"\biter (\d+): loss ([-\d.]+|nan|inf), time ([\d.]+)ms")
NANOCHAT = re.compile(
    r"\bstep (\d+)(?:/(\d+))? \([\d.]+%\) \| loss: ([-\d.]+|nan|inf) \|.*?\bdt: ([\d.]+)ms \| tok/sec: [\d,]+"
)


def read(text: str) -> LogLine | None:
    """A step's line, all its micro-batches in it.

    >>> read("iter 1631: loss 4.0863, time 562.00ms, mfu 41.20%").seconds
    0.562
    >>> found = read("step 00010/21400 (0.05%) | loss: 9.1 | lrm: 1.00 | dt: 512.50ms | tok/sec: 1,023,000 | mfu: 47.5")
    >>> found.step, found.last_step, found.seconds
    (10, 21400, 0.5125)
    """
    if match := NANOGPT.search(text):
        return LogLine(step=int(match[1]), loss=decimal(match[2]), seconds=float(match[3]) / 1e3)
    if match := NANOCHAT.search(text):
        return LogLine(
            step=int(match[1]),
            last_step=int(match[2]) if match[2] else None,
            loss=decimal(match[3]),
            seconds=float(match[4]) / 1e3,
        )
    return None


LOG = LogFormat(name="nanoGPT", marks=(": loss ", "| dt: "), read=read)
