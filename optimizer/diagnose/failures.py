"""How a run ended, where its log says so: out of memory, or by another error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from optimizer.diagnose.lines import LoggedLine

OK, OOM, CRASHED = "ok", "oom", "crashed"
_OUT_OF_MEMORY = re.compile(
    r"\b(?:CUDA|HIP|XPU) out of memory|OutOfMemoryError|RESOURCE_EXHAUSTED|CUDA_ERROR_OUT_OF_MEMORY"
    r"|\bout of memory\b.*\b(?:allocat|HBM)|oom[-_ ]kill",
    re.IGNORECASE,
)
_CRASH = re.compile(
    r"Traceback \(most recent call last\)|Watchdog caught collective operation timeout|Segmentation fault"
    r"|\bNCCL error\b|ChildFailedError|\bSIGKILL\b|\bSIGABRT\b|srun: error:|CUDA error:"
    r"|DUE TO (?:TIME LIMIT|NODE FAIL)"
)
# What Ray says of every worker that died: ray-project/ray, src/ray/raylet/node_manager.cc.
_GUESSED = re.compile(r"\b(?:common|potential) (?:root )?causes\b")
# Texts of which one is in every line that tells of a failure, in small letters.
SIGNALS = (
    *("out of memory", "outofmemory", "out_of_memory", "resource_exhausted", "oom-kill", "oom_kill", "oom kill"),
    *("traceback (most", "watchdog caught", "segmentation fault", "nccl error", "childfailederror", "sigkill"),
    *("sigabrt", "srun: error", "cuda error", "due to "),
)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The first line that says that a run failed, and how: OOM or CRASHED."""

    kind: str
    line: int
    text: str


def first_failure(lines: Sequence[LoggedLine]) -> Failure | None:
    """The first line that tells of a failure, an OOM before all others since a traceback comes first; None for none.

    >>> first_failure([LoggedLine(number=3, text="Traceback (most recent call last):"),
    ...     LoggedLine(number=9, text="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")]).kind
    'oom'
    >>> first_failure([LoggedLine(number=3, text="A worker died. Some common causes include: (1) it was killed by the "
    ...     "OOM killer, (2) ray stop --force was called, (3) SIGKILL")]).kind
    'crashed'
    """
    for kind, pattern in ((OOM, _OUT_OF_MEMORY), (CRASHED, _CRASH)):
        for line in lines:
            if pattern.search(line.text if kind == CRASHED else _GUESSED.split(line.text)[0]):
                return Failure(kind=kind, line=line.number, text=line.text.strip()[:160])
    return None
