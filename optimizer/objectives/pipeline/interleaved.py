"""Interleaved 1F1B: several virtual stages of layers on every stage."""

from __future__ import annotations

from optimizer.base.errors import InputError
from optimizer.job.plan import IntArray
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.pipeline.schedule import BACKWARD, FORWARD, Order, Pass, Schedule, alternate


def interleaved(pp: int, vpp: int, microbatches: int) -> Order:
    """Groups of pp micro-batches visit one after the other; 2 (pp - s - 1) + (vpp - 1) pp forwards run ahead.

    Backward passes visit the virtual stages in reverse. Raises InputError unless pp divides the micro-batches.

    Source: Narayanan et al., arXiv 2104.04473, section 2.2; Megatron-LM, megatron/core/pipeline_parallel/schedules.py.

    >>> [p.virtual for p in interleaved(2, 2, 2)[1] if p.kind == "F"]
    [0, 0, 1, 1]
    """
    if microbatches % pp:
        raise InputError(
            f"the interleaved schedule needs micro-batches in rounds of pp = {pp}, but got {microbatches}; "
            f"the nearest that work are {max(pp, microbatches // pp * pp)} and {(microbatches // pp + 1) * pp}"
        )
    order = [(virtual, first + i) for first in range(0, microbatches, pp) for virtual in range(vpp) for i in range(pp)]
    forwards = [Pass(FORWARD, virtual, i) for virtual, i in order]
    backwards = [Pass(BACKWARD, vpp - 1 - virtual, i) for virtual, i in order]
    ahead = (vpp - 1) * pp if vpp > 1 else 0
    step = 2 if vpp > 1 else 1
    return tuple(tuple(alternate(forwards, backwards, ahead + step * (pp - s - 1))) for s in range(pp))


def in_flight(pp: IntArray, vpp: IntArray, stage: FloatArray) -> FloatArray:
    """((vpp - 1) pp + 2 (pp - stage - 1) + 1) / vpp: forwards ahead and the one being worked on [micro-batches].

    A micro-batch in one of the vpp virtual stages counts 1 / vpp.

    Source: Narayanan et al., arXiv 2104.04473, section 2.2; Korthikanti et al., arXiv 2205.05198, section 4.2.3.
    """
    return ((vpp - 1) * pp + 2 * (pp - stage) - 1) / vpp


INTERLEAVED = Schedule(name="interleaved", order=interleaved, in_flight=in_flight, interleaves=True)
