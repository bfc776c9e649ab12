"""Lines of torchtune: its progress bar, and those of its loggers.

Source: pytorch/torchtune, recipes/full_finetune_distributed.py (log_dict, whose tokens are without padding) and
torchtune/training/metric_logging.py.
"""

from __future__ import annotations

import re

from optimizer.base.units import GiB
from optimizer.frameworks.bars import timed_by_bars
from optimizer.frameworks.log_line import LogFormat, LogLine, decimal, of_bar

BAR = re.compile(r"\b\d+\|(\d+)\|Loss: ([-\d.einfa]+):\s+\d+%")
STEP = re.compile(r"\bStep (\d+) \| (?=.*\bloss:)")
VALUE = re.compile(r"\b(\w+):([-\d.einfa]+)")


def read(text: str) -> LogLine | None:
    """A state of the progress bar, or a step's values.

    >>> found = read("1|25|Loss: 1.8:   3%|3         | 25/808 [00:50<26:06,  2.00s/it]")
    >>> found.step, found.seconds
    (25, 2.0)
    >>> found = read("Step 25 | loss:1.8 lr:2e-05 tokens_per_second_per_gpu:810.5 peak_memory_reserved:38.5 ")
    >>> found.step, found.tokens_rate, found.reserved / 2**30
    (25, 810.5, 38.5)
    """
    if match := BAR.search(text):
        return of_bar(text, int(match[1]), decimal(match[2]))
    if match := STEP.search(text):
        values = {name: decimal(value) for name, value in VALUE.findall(text)}
        reserved, allocated = (values.get(f"peak_memory_{name}") for name in ("reserved", "alloc"))
        return LogLine(
            step=int(match[1]),
            loss=values.get("loss"),
            grad_norm=values.get("grad_norm"),
            tokens_rate=values.get("tokens_per_second_per_gpu"),
            reserved=None if reserved is None else reserved * GiB,
            allocated=None if allocated is None else allocated * GiB,
        )
    return None


LOG = LogFormat(
    name="torchtune",
    marks=("|Loss: ", "tokens_per_second_per_gpu:"),
    read=read,
    settle=timed_by_bars,
    remark="torchtune counts tokens without padding, and its bar's rate is a running mean",
)
