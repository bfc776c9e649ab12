"""Lines of OLMo and OLMo-core: a heading for every step, whose time is its step's, then one line for each value.

Source: allenai/OLMo, olmo/train.py (log_metrics_to_console) and olmo/torch_util.py (peak_gpu_memory, whose MB are 1e6
bytes); allenai/OLMo-core, src/olmo_core/train/callbacks/console_logger.py and gpu_memory_monitor.py.
"""

from __future__ import annotations

import re

from optimizer.base.units import GiB
from optimizer.frameworks.log_line import LogFormat, LogLine, decimal

HEADING = re.compile(r"\[step=(\d+)/(\d+|\?\?\?),epoch=\d+")
VALUE = re.compile(
    r"\b(train/CrossEntropyLoss|train/CE loss|optim/total[_ ]grad[_ ]norm|System/Peak GPU Memory \(MB\)|"
    r"gpu_memory/GPU active mem \(GiB\))=([-+\d.,eE]+|nan)\s*$"
)
UNITS = {"System/Peak GPU Memory (MB)": 1e6, "gpu_memory/GPU active mem (GiB)": float(GiB)}


def read(text: str) -> LogLine | None:
    r"""A heading, or a value that belongs to the heading before it.

    >>> read("2025-12-12 11:05:02.009\thost:0\tolmo.train:979\tINFO\t[step=5/100,epoch=0]").step
    5
    >>> read("    System/Peak GPU Memory (MB)=111,478").allocated, read("    train/CE loss=2.5").loss
    (111478000000.0, 2.5)
    """
    if match := HEADING.search(text):
        return LogLine(step=int(match[1]), last_step=None if match[2] == "???" else int(match[2]))
    match = VALUE.search(text)
    value = decimal(match[2]) if match else None
    if match is None or value is None:
        return None
    if match[1] in UNITS:
        return LogLine(allocated=value * UNITS[match[1]])
    return LogLine(grad_norm=value) if "norm" in match[1] else LogLine(loss=value)


LOG = LogFormat(name="OLMo", marks=("[step=", "train/C", "optim/total", "GPU Memory (MB)", "GPU active mem"), read=read)
