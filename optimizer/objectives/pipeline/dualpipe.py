"""DualPipe: micro-batches enter at both ends of the pipeline, and a forward pass overlaps with a backward one.

Every stage holds two stages' layers, its own for one direction and its mirror's for the other, so that the pipeline has
two copies of the weights.

Source: deepseek-ai/DualPipe @3da1bbe, README.md (bubble, parameters, activations) and dualpipe/dualpipe.py (order);
DeepSeek-V3, arXiv 2412.19437, section 3.2.1.
"""

from __future__ import annotations

from collections import Counter, deque

import numpy as np

from optimizer.base.errors import InputError
from optimizer.job.plan import IntArray
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.pipeline.schedule import BACKWARD, FORWARD, WEIGHT, Order, Pass, Schedule

ROUNDS = 2  # micro-batches for every stage that it needs at least
COPIES = 2


def dualpipe(pp: int, vpp: int, microbatches: int) -> Order:
    """Half of the micro-batches run from the first to the last stage (virtual stage 0), the others back (1).

    Passes that are `joined` to the one before start and end with it. Raises InputError unless pp and the micro-batches
    are even and there are 2 pp of these at least.

    Source: deepseek-ai/DualPipe @3da1bbe, dualpipe/dualpipe.py, step.

    >>> [f"{p.kind}{p.virtual}{'+' * p.joined}" for p in dualpipe(2, 1, 4)[0]][:8]
    ['F0', 'F1', 'F0', 'B1', 'W1+', 'F1', 'B0+', 'W0+']
    """
    if pp % 2 or microbatches % 2 or microbatches < ROUNDS * pp:
        raise InputError(
            f"dualpipe needs an even pp and an even number of at least {ROUNDS} pp micro-batches, "
            f"but got pp = {pp} and {microbatches}"
        )
    return tuple(tuple(_Rank(stage, pp).passes(microbatches)) for stage in range(pp))


class _Rank:
    """One stage's passes in their order; directions are counted from the nearer end: 0 comes in there."""

    def __init__(self, stage: int, pp: int) -> None:
        self.pp, self.half = pp, pp // 2
        self.far = stage >= self.half
        self.ahead = self.half - 1 - min(stage, pp - 1 - stage)  # stages between this one and the middle
        self.done: Counter[tuple[str, int]] = Counter()
        self.late: deque[tuple[int, int]] = deque()
        self.order: list[Pass] = []

    def passes(self, microbatches: int) -> list[Pass]:
        """Warm up, pair forward with backward passes, drain; weights' gradients wait at both ends."""
        near = self.half - self.ahead  # 1 at the ends, half of pp in the middle
        for _ in range(2 * self.ahead):
            self.forward(0)
        for _ in range(near):
            self.forward(0)
            self.forward(1)
        for _ in range(self.ahead):
            self.backward(1, late=True)
            self.weights()
            self.forward(1)
        for number in range(microbatches // 2 - self.pp + near):
            self.forward(0)
            # The middle stages do not pair their first: that would make the others wait.
            self.backward(1, joined=self.ahead > 0 or number > 0)
            self.forward(1)
            self.backward(0, joined=True)
        for _ in range(self.ahead):
            self.backward(1)
            self.forward(1)
            self.backward(0, joined=True)
        for number in range(2 * near):
            self.backward(1 - number % 2, late=number >= near)
        for _ in range(self.ahead):
            self.weights()
            self.backward(0, late=True)
        while self.late:
            self.weights()
        return self.order

    def forward(self, direction: int) -> None:
        """The next forward pass of a direction."""
        self._add(FORWARD, direction)

    def backward(self, direction: int, *, joined: bool = False, late: bool = False) -> None:
        """The next backward pass of a direction, its weights' gradient with it or later."""
        virtual, microbatch = self._add(BACKWARD, direction, joined=joined)
        if late:
            self.late.append((virtual, microbatch))
        else:
            self.order.append(Pass(WEIGHT, virtual, microbatch, joined=True))

    def weights(self) -> None:
        """The first weights' gradient that waits."""
        self.order.append(Pass(WEIGHT, *self.late.popleft()))

    def _add(self, kind: str, direction: int, *, joined: bool = False) -> tuple[int, int]:
        virtual, microbatch = (1 - direction if self.far else direction), self.done[kind, direction]
        self.done[kind, direction] += 1
        self.order.append(Pass(kind, virtual, microbatch, joined))
        return virtual, microbatch


def in_flight(pp: IntArray, vpp: IntArray, stage: FloatArray) -> FloatArray:
    """Micro-batches on every stage: pp + 1, half of them in each direction [micro-batches].

    Source: deepseek-ai/DualPipe @3da1bbe, README.md, activation per device.
    """
    return pp + 1 + np.zeros_like(stage)


def left(pp: FloatArray) -> FloatArray:
    """Share of the bubble of 1F1B that is left where F, B and W take equally long: (pp - 2) / 3 (pp - 1) [1].

    (pp / 2 - 1) (F&B + B - 3 W) with a whole backward pass B of 2, and F&B of 3, over (pp - 1) 3.

    >>> left(np.array([2.0, 16.0])).round(3).tolist()
    [0.0, 0.311]
    """
    return np.asarray((pp - 2) / (3 * np.maximum(pp - 1, 1)))


def bubble(
    pp: FloatArray, forward: FloatArray, backward: FloatArray, weight: FloatArray, gain: FloatArray
) -> FloatArray:
    """Time that a stage waits for the others: (pp / 2 - 1) (F&B + B - 3 W), at least 0 [s].

    forward, backward: F and the whole B of one micro-batch on a stage, weight: the part of B that computes weights'
    gradients, gain: by how much F&B is shorter than both one after the other [s].

    Source: deepseek-ai/DualPipe @3da1bbe, README.md.

    >>> float(bubble(np.array(16.0), np.array(1.0), np.array(2.0), np.array(1.0), np.array(0.5)))
    10.5
    """
    return np.asarray((pp / 2 - 1) * np.maximum(0.0, forward + backward - gain + backward - 3 * weight))


def pairs(microbatches: FloatArray, pp: FloatArray) -> FloatArray:
    """Forward passes of the middle stages, for which the others wait, that overlap with a backward one: m - pp - 1 [1].

    Source: deepseek-ai/DualPipe @3da1bbe, dualpipe/dualpipe.py, step (main part, without the first pair).
    """
    return np.maximum(0.0, microbatches - pp - 1)


DUALPIPE = Schedule(
    name="dualpipe", order=dualpipe, in_flight=in_flight, left_of=left, splits=True, both_ways=True, copies=COPIES
)
