"""Lines of Megatron-Bridge: Megatron-LM's on the last rank, and one with the step's time on the first.

Source: NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/training/utils/train_utils.py (training_log).
"""

from __future__ import annotations

import re

from optimizer.frameworks.log_line import LogFormat, LogLine
from optimizer.frameworks.megatron import log as megatron_lm

STEP_TIME = re.compile(r"\bStep Time : ([\d.]+)s GPU utilization: [\d.]+ ?MODEL_TFLOP/s/GPU")


def read(text: str) -> LogLine | None:
    """A line of the first rank, or one as Megatron-LM prints it.

    >>> read("Step Time : 5.57s GPU utilization: 414.8MODEL_TFLOP/s/GPU").seconds
    5.57
    """
    if match := STEP_TIME.search(text):
        return LogLine(seconds=float(match[1]), averaged=True, alone=True)
    return megatron_lm.read(text)


LOG = LogFormat(name="Megatron-Bridge", marks=("Step Time :", *megatron_lm.MARKS), read=read, tells="MODEL_TFLOP/s/GPU")
