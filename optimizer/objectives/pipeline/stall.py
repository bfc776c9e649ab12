"""What a schedule takes beyond the closed form of a pipeline: stages that are unlike wait for each other.

1F1B never takes much more, and less where slow stages have something to do while they wait. The interleaved schedule
goes in waves: in each, every stage runs one forward and then one backward pass, if it has them. A forward
pass waits for that of the stage before it in the wave before, a backward pass for that of the stage behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.pipeline import one_f_one_b

ROUNDS = 6  # of pp micro-batches, after which every further one takes as long as the last
NEGLECTED = 0.01  # of the closed form, by which the schedule may take longer unpriced


@dataclass(frozen=True, kw_only=True)
class Waves:
    """Which virtual stage every stage runs in every wave: rows are waves, columns stages.

    busy: whether there is a pass, by wave, stage and number of micro-batches; enters: whether it waits for no other
    stage, as at the start and where it turns.
    """

    virtual: NDArray[np.int64]
    busy: NDArray[np.bool_]
    enters: NDArray[np.bool_]


@lru_cache(maxsize=64)
def waves_of(pp: int, vpp: int, *microbatches: int) -> tuple[Waves, Waves]:
    """The waves of forward and of backward passes, for several numbers of micro-batches; pp divides each.

    Forward pass f of stage s, in its own order, is in wave f + s, and backward pass b in wave b + pp (vpp + 1) - 2 - s.

    >>> ahead, back = waves_of(2, 2, 2)
    >>> ahead.virtual[:5, 0].tolist(), ahead.busy[:5, 0, 0].tolist(), back.busy[:5, 0, 0].tolist()
    ([0, 0, 1, 1, 0], [True, True, True, True, False], [False, False, False, False, True])
    """
    stage, passes = np.arange(pp), vpp * np.array(microbatches)
    wave = np.arange(passes.max() + pp * (vpp + 1) - 2)[:, None]
    ahead, back = wave - stage, wave - (pp * (vpp + 1) - 2 - stage)
    forward, backward = ahead // pp % vpp, vpp - 1 - back // pp % vpp
    first, last = (stage == 0) & (forward == 0), (stage == pp - 1) & (backward == vpp - 1)

    def busy(number: NDArray[np.int64]) -> NDArray[np.bool_]:
        return (number[..., None] >= 0) & (number[..., None] < passes)

    return (
        Waves(virtual=forward, busy=busy(ahead), enters=first),
        Waves(virtual=backward, busy=busy(back), enters=last),
    )


def makespans(microbatches: Sequence[int], forward: FloatArray, backward: FloatArray) -> FloatArray:
    """From the first start to the last end of the schedule, for each number of micro-batches, the first axis; the last
    two axes of what is given are stages and virtual stages [s].

    >>> passes = np.ones((4, 2))
    >>> makespans([4, 8], passes, 2 * passes).tolist() == [4 * 6 + 3 * 6 / 2, 8 * 6 + 3 * 6 / 2]
    True
    """
    ahead, back = waves_of(*forward.shape[-2:], *microbatches)
    forward_run, forward_waits = _by_wave(ahead, forward)
    backward_run, backward_waits = _by_wave(back, backward)
    # When each stage ends its forward and its backward pass, beside its neighbour of the wave before: the last stage
    # lies ahead of the first one, and the first behind the last one.
    first, second = np.zeros((2, forward.shape[-2] + 1, *forward_run.shape[2:]))
    neighbour_ahead, first_here = first[:-1], first[1:]
    neighbour_behind, second_here = second[1:], second[:-1]
    for run, waits, back_run, back_waits in zip(forward_run, forward_waits, backward_run, backward_waits, strict=True):
        np.maximum(second_here, neighbour_ahead + waits, out=first_here)
        first_here += run
        first[0] = first[-1]
        np.maximum(first_here, neighbour_behind + back_waits, out=second_here)
        second_here += back_run
        second[-1] = second[0]
    return np.asarray(second_here.max(axis=0).reshape(len(microbatches), *forward.shape[:-2]))


def _by_wave(waves: Waves, passes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What each stage runs in every wave [s], and -inf where it waits for no other one; the last axes are numbers of
    micro-batches and pipelines.
    """
    pp, vpp = passes.shape[-2:]
    by_pass = passes.reshape(-1, pp, vpp).transpose(1, 2, 0)
    waits = np.where(waves.busy & ~waves.enters[..., None], 0.0, -np.inf)
    return by_pass[np.arange(pp), waves.virtual][:, :, None] * waves.busy[..., None], waits[..., None]


def stall(microbatches: int, forward: FloatArray, backward: FloatArray) -> FloatArray:
    """Seconds by which a pipeline takes longer than m t + (sum of t - t) / vpp, t that of the slowest stage [s].

    forward, backward: seconds of one micro-batch's passes, recomputing included; the last two axes are stages and
    virtual stages [s]. With one virtual stage a stage the schedule is 1F1B, and what it takes less is below 0. A stage
    whose virtual stages take unlike long makes its neighbours wait: what that schedule takes counts without NEGLECTED;
    0 where pp does not divide the micro-batches, which it cannot run.

    Source: the schedules of Narayanan et al., arXiv 2104.04473, section 2.2; the tests hold what they take against
    objectives/pipeline/simulator.py.

    >>> even, uneven = np.ones((4, 2)), np.array([[2.0, 0.0], [0.0, 2.0], [1.0, 1.0], [1.0, 1.0]])
    >>> closed = 16 * 6 + 3 * 3
    >>> float(stall(16, even, 2 * even)), round(float(stall(16, uneven, 2 * uneven)) / closed, 2)
    (0.0, 0.32)
    >>> slow_start = np.array([[2.0], [1.0], [1.0], [1.0]])
    >>> float(stall(8, slow_start, 2 * slow_start))
    -6.0
    """
    pp, vpp = forward.shape[-2:]
    busy = forward + backward
    stages = busy.sum(axis=-1)
    slowest, whole = stages.max(axis=-1), stages.sum(axis=-1)
    waiting = np.zeros(slowest.shape)
    closed = microbatches * slowest + (whole - slowest) / vpp
    if vpp == 1:
        return np.asarray(one_f_one_b.makespan(microbatches, forward[..., 0], backward[..., 0]) - closed)
    if microbatches % pp:
        return waiting
    late = (microbatches + (pp - 1) / vpp) * longest(busy) > closed * (1 + NEGLECTED)
    if not np.any(late):
        return waiting
    ahead, back = forward[late], backward[late]
    few = min(microbatches, ROUNDS * pp)
    if few < microbatches:
        takes, fewer = makespans([few, few - pp], ahead, back)
        takes = takes + (microbatches - few) / pp * (takes - fewer)
    else:
        [takes] = makespans([few], ahead, back)
    waiting[late] = np.maximum(takes / (1 + NEGLECTED) - closed[late], 0.0)
    return waiting


def longest(busy: FloatArray) -> FloatArray:
    """What the vpp longest of all virtual stages take together; the last two axes are stages and virtual stages [s].

    Stages that all take so long in vpp virtual stages, each as long as the next, are no faster than these: whatever
    runs side by side in so many rounds takes no longer than those do.

    >>> longest(np.array([[[2.0, 2.0], [1.0, 2.0]], [[2.0, 1.0], [1.0, 2.0]]])).tolist()
    [4.0, 4.0]
    """
    *shape, pp, vpp = busy.shape
    every = busy.reshape(*shape, pp * vpp)
    return np.asarray(np.partition(every, -vpp, axis=-1)[..., -vpp:].sum(axis=-1))
