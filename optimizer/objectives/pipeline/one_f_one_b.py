"""1F1B: one forward, one backward."""

from __future__ import annotations

from optimizer.job.plan import IntArray
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.pipeline.schedule import BACKWARD, FORWARD, Order, Pass, Schedule, alternate


def one_f_one_b(pp: int, vpp: int, microbatches: int) -> Order:
    """Stage s runs min(m, pp - s - 1) forwards ahead, then alternates one forward with one backward.

    Source: Narayanan et al., arXiv 2104.04473, figure 4 (PipeDream-Flush).
    """
    forwards = [Pass(FORWARD, 0, i) for i in range(microbatches)]
    backwards = [Pass(BACKWARD, 0, i) for i in range(microbatches)]
    return tuple(tuple(alternate(forwards, backwards, pp - stage - 1)) for stage in range(pp))


def in_flight(pp: IntArray, vpp: IntArray, stage: FloatArray) -> FloatArray:
    """Micro-batches that a stage keeps: one for each stage from itself to the last, pp - stage [micro-batches].

    Source: Narayanan et al., arXiv 2104.04473, section 2.2.
    """
    return pp - stage


ONE_F_ONE_B = Schedule(name="1f1b", order=one_f_one_b, in_flight=in_flight)
