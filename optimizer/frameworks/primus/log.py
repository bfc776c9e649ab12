"""Lines of Primus: those of Megatron-LM, with the value of the step and a running mean in one field.

Source: AMD-AGI/Primus, primus/backends/megatron/patches/training_log (print_rank_last_patches.py).
"""

from __future__ import annotations

import re

from optimizer.base.units import GiB
from optimizer.frameworks.log_line import LogFormat, LogLine, decimal
from optimizer.frameworks.megatron import log as megatron_lm
from optimizer.frameworks.megatron.log import settings

USED = re.compile(r"\bhip mem usage/free/total/usage_ratio: ([\d.]+)Gi?B/")
BUSIEST = re.compile(r"\brocm max mem usage/usage_ratio: ([\d.]+)Gi?B/")
RANK = re.compile(r"\[rank-(\d+)(?:/\d+)?\]")
BOTH = re.compile(re.escape(megatron_lm.TIME) + r": [\d.]+/[\d.]+ \|")


def read(text: str) -> LogLine | None:
    """A step's line: its own time, not the mean; a token rate per GPU; the memory that the driver says is used.

    >>> line = " iteration 11/ 500 | elapsed time per iteration (ms): 1891.5/1888.6 | global batch size: 8 |"
    >>> found = read(f"{line} hip mem usage/free/total/usage_ratio: 64.00GB/224.04GB/287.98GB/22.20% |")
    >>> found.step, found.seconds, found.reserved / 2**30
    (11, 1.8915, 64.0)
    """
    if not BOTH.search(text):
        return settings(text) if " ...." in text else None
    line = megatron_lm.read(text)
    if line is None:
        return None
    used = [decimal(match[1]) or 0.0 for pattern in (USED, BUSIEST) if (match := pattern.search(text))]
    return line._replace(reserved=max(used) * GiB if used else None)


LOG = LogFormat(name="Primus", marks=megatron_lm.MARKS, read=read, rank=RANK)
