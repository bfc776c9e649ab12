"""Zero-bubble schedules: weights' gradients fill the bubble. ZB-H1 with the memory of 1F1B, ZB-2p with twice of it.

What they leave of the bubble where F = B = W: sail-sg/zero-bubble-pipeline-parallelism, README.md, comparison of
schedules; how many weight-gradient passes fill each bubble: Qi et al., arXiv 2401.10241, section 2.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from optimizer.job.plan import IntArray
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.pipeline.one_f_one_b import one_f_one_b
from optimizer.objectives.pipeline.schedule import BACKWARD, FORWARD, WEIGHT, Order, Pass, Schedule, alternate


def zero_bubble_h1(pp: int, vpp: int, microbatches: int) -> Order:
    """1F1B with the weights' gradients apart: stage s computes those of a micro-batch s backward passes later.

    Every stage holds activations of at most pp micro-batches, as the first stage of 1F1B does.

    Source: Qi et al., arXiv 2401.10241, section 2.1 (ZB-H1).

    >>> ["".join(p.kind for p in stage) for stage in zero_bubble_h1(2, 1, 3)]
    ['FFBWFBWBW', 'FBFBWFBWW']
    """
    plain = one_f_one_b(pp, vpp, microbatches)
    return tuple(tuple(_with_weights(order, stage, microbatches)) for stage, order in enumerate(plain))


def zero_bubble_h2(pp: int, vpp: int, microbatches: int) -> Order:
    """Twice as many forwards run ahead as in 1F1B, and weights' gradients wait twice as long as in ZB-H1.

    Every stage holds activations of at most 2 pp - 1 micro-batches and idles (pp - 1) (F + B - 2 W) between its first
    and its last pass. The stages end one after the other: the gain needs an optimizer step that does not wait for all.

    Source: Qi et al., arXiv 2401.10241, sections 2.2 and 4 (ZB-H2; the automatic ZB-2p has the same memory).

    >>> ["".join(p.kind for p in stage) for stage in zero_bubble_h2(2, 1, 3)]
    ['FFFBWBWBW', 'FBFBFBWWW']
    """
    forwards = [Pass(FORWARD, 0, i) for i in range(microbatches)]
    backwards = [Pass(BACKWARD, 0, i) for i in range(microbatches)]
    return tuple(
        tuple(_with_weights(alternate(forwards, backwards, 2 * (pp - s - 1)), 2 * s, microbatches)) for s in range(pp)
    )


def h1_in_flight(pp: IntArray, vpp: IntArray, stage: FloatArray) -> FloatArray:
    """Activations stay until the weights' gradients are done: pp micro-batches on every stage [micro-batches].

    Source: Qi et al., arXiv 2401.10241, section 2.3.
    """
    return pp + np.zeros_like(stage)


def h2_in_flight(pp: IntArray, vpp: IntArray, stage: FloatArray) -> FloatArray:
    """Twice as many run ahead: 2 pp - 1 on every stage [micro-batches].

    Source: Qi et al., arXiv 2401.10241, section 2.3.
    """
    return 2 * pp - 1 + np.zeros_like(stage)


ZERO_BUBBLE = Schedule(
    name="zero-bubble", order=zero_bubble_h1, in_flight=h1_in_flight, filled=2.0, left=1 / 3, splits=True
)
ZERO_BUBBLE_2P = Schedule(
    name="zero-bubble-2p", order=zero_bubble_h2, in_flight=h2_in_flight, filled=3.0, left=0.0, splits=True
)


def _with_weights(order: Iterable[Pass], delay: int, microbatches: int) -> Iterator[Pass]:
    for step in order:
        yield step
        if step.kind == BACKWARD and step.microbatch >= delay:
            yield Pass(WEIGHT, 0, step.microbatch - delay)
    for index in range(max(0, microbatches - delay), microbatches):
        yield Pass(WEIGHT, 0, index)
