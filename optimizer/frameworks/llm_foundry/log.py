"""Lines of llm-foundry, which Composer prints: a heading for every batch, then one line for each value.

Source: mosaicml/composer, composer/loggers/console_logger.py, composer/callbacks/speed_monitor.py (means over a window
of batches) and memory_monitor.py (GB are 1e9 bytes).
"""

from __future__ import annotations

import re

from optimizer.base.units import GB
from optimizer.frameworks.log_line import LogFormat, LogLine, decimal

HEADING = re.compile(r"(?:\[epoch=(\d+)(?:/\d+)?\])?\[batch=(\d+)/(\d+)\]:?")
VALUE = re.compile(r"^\s*(?:Train\s+)?([A-Za-z]\w*(?:/\w+)+):\s+([-+\d.,eE]+|nan|inf)\s*$")


def read(text: str) -> LogLine | None:
    r"""A heading, or a value that belongs to the heading before it.

    >>> read("[batch=20/100]:").step, read("[epoch=3][batch=5/10]:").step
    (20, 25)
    >>> read("\t Train throughput/batches_per_sec: 0.5000").seconds
    2.0
    >>> read("\t Train memory/peak_reserved_mem: 36.5230").reserved
    36523000000.0
    """
    if match := HEADING.search(text):
        batch, last = int(match[2]), int(match[3])
        if match[1]:  # batches are counted anew in every epoch
            return LogLine(step=(int(match[1]) - 1) * last + batch, averaged=True)
        return LogLine(step=batch, last_step=last, averaged=True)
    match = VALUE.match(text)
    value = decimal(match[2]) if match else None
    if match is None or value is None:
        return None
    name = match[1]
    if name == "throughput/batches_per_sec":
        return LogLine(seconds=1.0 / value) if value > 0 else None
    if name == "throughput/device/tokens_per_sec":
        return LogLine(tokens_rate=value)
    if name in ("memory/peak_reserved_mem", "memory/reserved_mem"):
        return LogLine(reserved=value * GB)
    if name in ("memory/peak_allocated_mem", "memory/peak_active_mem", "memory/allocated_mem"):
        return LogLine(allocated=value * GB)
    return LogLine(loss=value) if name == "loss/train/total" else None


LOG = LogFormat(
    name="llm-foundry",
    marks=("[batch=", "throughput/", "memory/", "loss/train/total"),
    read=read,
    remark="Composer prints means over a window of batches: the spread of single steps is larger",
)
