"""Lines of MaxText; the first steps are bogus, since they are only dispatched.

Source: AI-Hypercomputer/maxtext, src/maxtext/common/metric_logger.py.
"""

from __future__ import annotations

import re

from optimizer.frameworks.log_line import LogFormat, LogLine, decimal, tera

STEP = re.compile(
    r"\bcompleted step: (\d+), seconds:\s+([\d.]+), TFLOP/s(?:/device)?:\s+([\d.]+),"
    r"(?:\s+Tokens/s/device:\s+([\d.]+))?(?:.*?\b(?:\w+_)?loss: ([-\d.]+|nan|inf))?"
)
SETTING = re.compile(r"\bConfig param (\w+): (\d+)\s*$")
COUNTS = {"global_batch_size_to_train_on": "global_batch", "max_target_length": "seq_len"}


def read(text: str) -> LogLine | None:
    """A step's line, or a setting.

    >>> line = "completed step: 5, seconds: 3.455, TFLOP/s/device: 140.2, Tokens/s/device: 4742.6, loss: 10.8"
    >>> read(line).seconds, read("Config param max_target_length: 8192").facts
    (3.455, {'seq_len': '8192'})
    """
    if match := STEP.search(text):
        return LogLine(
            step=int(match[1]),
            seconds=float(match[2]),
            flops_rate=tera(match[3]),
            tokens_rate=decimal(match[4]),
            loss=decimal(match[5]),
        )
    if (match := SETTING.search(text)) and COUNTS.get(match[1]):
        return LogLine(facts={COUNTS[match[1]]: match[2]})
    return None


LOG = LogFormat(name="MaxText", marks=("completed step:", "Config param"), read=read)
