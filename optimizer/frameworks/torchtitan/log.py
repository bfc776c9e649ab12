"""Lines of torchtitan: tokens per second of a GPU, averaged since the line before, and reserved memory.

Source: pytorch/torchtitan, torchtitan/components/metrics.py (log) and torchtitan/train.py.
"""

from __future__ import annotations

import re

from optimizer.base.units import GiB
from optimizer.frameworks.log_line import LogFormat, LogLine, decimal, tera

STEP = re.compile(
    r"(?<!validate )"
    r"\bstep:\s+(\d+)(?:/\d+(?: = [\d.]+%)?)?\s+loss:\s+([-\d.]+|nan|inf)(?:\s+grad_norm:\s+([\d.]+|nan|inf))?"
    r"\s+memory:\s+([\d.]+)GiB\([\d.]+%\)\s+tps:\s+([\d,]+)(?=\s|$)(?:\s+tflops:\s+([\d,.]+))?"
)
BATCH = re.compile(r"\blocal batch size:? \d+.*?\bglobal batch size:? (\d+)(?:.*?\bsequence length:? (\d+))?")
MESH = re.compile(r"\bBuilding \d-D device mesh with \[[^\]]*\], \[([\d, ]+)\]")


def read(text: str) -> LogLine | None:
    """A step's line, or one that tells the batch, the length of a sequence or the mesh of GPUs.

    >>> line = "step: 10  loss:  7.68  grad_norm:  1.2  memory: 30.50GiB(38.55%)  tps: 7,130  tflops: 413.01"
    >>> found = read(line)
    >>> found.step, found.tokens_rate, found.flops_rate / 1e12, found.reserved / 2**30
    (10, 7130.0, 413.01, 30.5)
    >>> read("Training starts at step 1, with local batch size 1, global batch size 64, sequence length 8192,").facts
    {'global_batch': '64', 'seq_len': '8192'}
    """
    if match := STEP.search(text):
        return LogLine(
            step=int(match[1]),
            tokens_rate=decimal(match[5]),
            flops_rate=tera(match[6]),
            averaged=True,
            loss=None if match[2].startswith("-") else decimal(match[2]),  # stages of a pipeline without one print -1
            grad_norm=decimal(match[3]),
            reserved=float(match[4]) * GiB,
        )
    if match := MESH.search(text):
        gpus = 1
        for size in re.findall(r"\d+", match[1]):
            gpus *= int(size)
        return LogLine(facts={"gpus": str(gpus)})
    if match := BATCH.search(text):
        facts = {"global_batch": match[1], **({"seq_len": match[2]} if match[2] else {})}
        return LogLine(facts=facts)
    return None


LOG = LogFormat(name="torchtitan", marks=("tps:", "local batch size", "device mesh"), read=read)
