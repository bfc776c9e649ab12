"""Communication that should hide under computation, and does not."""

from __future__ import annotations

import numpy as np

from optimizer.diagnose.causes.cause import DRAWS, Cause, Test
from optimizer.diagnose.causes.question import Question
from optimizer.objectives.arrays import FloatArray

OVERLAPS = ("tp_overlap", "cp_overlap", "ep_overlap", "dp_overlap", "p2p_overlap")
SWITCHED = 0.6  # of the runs with this fault, those in which it is off altogether


def seconds(question: Question, lost: float) -> float:
    """The step when this share of what the stack hides is not hidden [s]."""
    stack = question.job.stack
    return question.with_stack(**{name: (1.0 - lost) * stack[name] for name in OVERLAPS})


def settings(question: Question) -> FloatArray:
    """All of the overlap lost in most runs that have this fault, any part of it in the others."""
    some = round((1.0 - SWITCHED) * DRAWS)
    return np.concatenate([(np.arange(some) + 0.5) / some, np.ones(DRAWS - some)])


CAUSE = Cause(
    name="overlap",
    label="no overlap",
    seconds=seconds,
    healthy=lambda question: 0.0,
    worst=lambda question: 1.0,
    settings=settings,
    why="a switch: all of it lost in 60 % of the runs that have this fault, any part of it in the others (assumed)",
    says=lambda lost: (
        "no communication is hidden under computation"
        if lost > 0.97
        else f"{lost:.0%} of the communication that should hide under computation does not"
    ),
    test=Test(
        what="look for the overlap flags in the script and the printed settings (--overlap-grad-reduce, "
        "--overlap-param-gather, --tp-comm-overlap; overlap_comm in DeepSpeed), and one step under nsys",
        minutes=0.5,
        shows=lambda lost: "a flag is missing, or NCCL kernels run with no kernel beside them",
    ),
    # A missing flag is there from the first step to the last.
    signs={"motion": {"steady": 0.86, "jitter": 0.08, "wander": 0.06}, "overlap": {"on": 0.1, "off": 0.9}},
)
