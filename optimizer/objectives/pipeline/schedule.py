"""What a pipeline schedule is: the order of its passes, what it leaves of the bubble, what it keeps in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from optimizer.job.plan import IntArray
from optimizer.objectives.arrays import FloatArray

FORWARD, BACKWARD, WEIGHT = "F", "B", "W"


class Pass(NamedTuple):
    """One pass of one micro-batch through one virtual stage of a stage.

    `kind` is "F" forward, "B" backward, or "W" where the weights' gradient is computed apart from the inputs'. A pass
    that is `joined` to the one before starts when both can, and both end together.
    """

    kind: str
    virtual: int
    microbatch: int
    joined: bool = False


Order = tuple[tuple[Pass, ...], ...]
InFlight = Callable[[IntArray, IntArray, FloatArray], FloatArray]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """One pipeline schedule.

    order: the passes of every stage, from pp, vpp and the micro-batches. in_flight: micro-batches whose activations a
    stage keeps at its peak if there are enough of them, from pp, vpp and the stage [micro-batches]. filled: multiples
    of a stage's weight gradients W that it takes off each of the pp - 1 bubbles of 1F1B. left: what it leaves of that
    bubble where F, B and W take equally long [1]. interleaves: it runs several virtual stages a stage. splits: the
    gradients of weights are passes of their own. left_of: what it leaves of that bubble where this depends on pp, in
    place of `left`. both_ways: micro-batches enter at both ends; a stage runs its own layers for one direction, and
    those of its mirror for the other. copies: of the weights in the pipeline.
    """

    name: str
    order: Callable[[int, int, int], Order]
    in_flight: InFlight
    filled: float = 0.0
    left: float = 1.0
    interleaves: bool = False
    splits: bool = False
    both_ways: bool = False
    copies: int = 1
    left_of: Callable[[FloatArray], FloatArray] | None = None


def alternate(forwards: list[Pass], backwards: list[Pass], ahead: int) -> Iterator[Pass]:
    """So many forward passes ahead, then one backward pass after each forward one."""
    ahead = min(ahead, len(forwards))
    yield from forwards[:ahead]
    for forward, backward in zip(forwards[ahead:], backwards, strict=False):
        yield forward
        yield backward
    yield from backwards[len(forwards) - ahead :]
