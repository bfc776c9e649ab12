"""What unlike virtual stages cost an interleaved pipeline beyond its closed form, by running the schedule."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.pipeline.interleaved import interleaved
from optimizer.objectives.pipeline.schedule import BACKWARD, FORWARD

ROUNDS = 6  # of pp micro-batches, after which every further one takes as long as the last
NEGLECTED = 0.005  # share of the pipeline's time up to which virtual stages count as alike


@dataclass(frozen=True, kw_only=True)
class Waves:
    """The passes of an interleaved schedule in waves: those of one wave wait for passes of earlier waves only.

    Passes are numbered from 1, and 0 ends at the start. before: the pass that the stage runs before, after: the one
    whose output a pass takes. duration: where its seconds stand in forward and backward passes by stage and virtual
    stage, laid flat. waves: from which pass on each wave goes.
    """

    before: NDArray[np.int64]
    after: NDArray[np.int64]
    duration: NDArray[np.int64]
    waves: tuple[int, ...]

    def makespan(self, seconds: FloatArray) -> float:
        """From the first start to the last end of passes that take so long [s]."""
        ends = np.zeros(len(self.before) + 1)
        lengths = seconds[self.duration]
        for start, stop in zip(self.waves, self.waves[1:], strict=False):
            here = slice(start, stop)
            ends[start + 1 : stop + 1] = np.maximum(ends[self.before[here]], ends[self.after[here]]) + lengths[here]
        return float(ends.max())


@dataclass(frozen=True, kw_only=True)
class _Passes:
    """Passes by stage in the order in which it runs them, as (kind, place, micro-batch)."""

    pp: int
    vpp: int
    microbatches: int

    @cached_property
    def stages(self) -> list[list[tuple[str, int, int]]]:
        order = interleaved(self.pp, self.vpp, self.microbatches)
        return [[(p.kind, p.virtual * self.pp + s, p.microbatch) for p in steps] for s, steps in enumerate(order)]

    def needed(self, kind: str, place: int, microbatch: int) -> tuple[str, int, int] | None:
        """The pass whose output one takes; None for the first of a micro-batch."""
        last = self.pp * self.vpp - 1
        if kind == FORWARD:
            return (FORWARD, place - 1, microbatch) if place else None
        return (BACKWARD, place + 1, microbatch) if place < last else (FORWARD, last, microbatch)


@lru_cache(maxsize=64)
def waves_of(pp: int, vpp: int, microbatches: int) -> Waves:
    """The waves of a schedule; pp divides the micro-batches."""
    passes = _Passes(pp=pp, vpp=vpp, microbatches=microbatches)
    number: dict[tuple[str, int, int], int] = {}
    before, after, duration, waves = [], [], [], [0]
    done = [0] * pp
    last = [0] * pp
    while len(number) < 2 * pp * vpp * microbatches:
        ready = []
        for stage, steps in enumerate(passes.stages):
            if done[stage] < len(steps):
                step = steps[done[stage]]
                needed = passes.needed(*step)
                if needed is None or needed in number:
                    ready.append((stage, step, number[needed] if needed else 0))
        for stage, step, needed_number in ready:
            kind, place, _ = step
            before.append(last[stage])
            after.append(needed_number)
            duration.append(((kind == BACKWARD) * pp + stage) * vpp + place // pp)
            number[step] = last[stage] = len(before)
            done[stage] += 1
        waves.append(len(before))
    return Waves(before=np.array(before), after=np.array(after), duration=np.array(duration), waves=tuple(waves))


def stall(microbatches: int, forward: FloatArray, backward: FloatArray) -> float:
    """Seconds by which an interleaved pipeline takes longer than m t + (sum of t - t) / vpp, t that of the slowest [s].

    forward, backward: seconds of one micro-batch's passes by stage and virtual stage, recomputing included [s]. A
    stage whose virtual stages take unlike long runs ahead and behind, by no more than the passes that the schedule
    keeps ahead, and its neighbours wait. 0 where it is less than NEGLECTED of the pipeline, and where pp does not
    divide the micro-batches, which the schedule cannot run.

    Source: the schedule of Narayanan et al., arXiv 2104.04473, section 2.2, run pass by pass; the tests hold it against
    objectives/pipeline/simulator.py.

    >>> even = np.ones((4, 2))
    >>> stall(16, even, 2 * even)
    0.0
    >>> uneven = np.array([[2.0, 0.0], [0.0, 2.0], [1.0, 1.0], [1.0, 1.0]])
    >>> round(stall(16, uneven, 2 * uneven) / (16 * 6 + 3 * 3), 2)
    0.33
    """
    pp, vpp = forward.shape
    stages = forward.sum(axis=1) + backward.sum(axis=1)
    slowest, whole = float(stages.max()), float(stages.sum())
    if vpp == 1 or microbatches % pp or _paced(forward, backward, slowest):
        return 0.0
    seconds = np.concatenate([forward.ravel(), backward.ravel()])
    few = min(microbatches, ROUNDS * pp)
    makespan = waves_of(pp, vpp, few).makespan(seconds)
    if few < microbatches:
        period = makespan - waves_of(pp, vpp, few - pp).makespan(seconds)
        makespan += (microbatches - few) / pp * period
    closed = microbatches * slowest + (whole - slowest) / vpp
    return makespan - closed if makespan > closed * (1 + NEGLECTED) else 0.0


def _paced(forward: FloatArray, backward: FloatArray, slowest: float) -> bool:
    """Whether no pair of passes, one forward and one backward, takes more than the slowest stage's mean one.

    Then no stage waits. Backward passes visit the virtual stages in reverse: v is beside (vpp - 2 - v) mod vpp.
    """
    vpp = forward.shape[1]
    pairs = forward + backward[:, (vpp - 2 - np.arange(vpp)) % vpp]
    return bool(pairs.max() <= slowest / vpp * (1 + 1e-9))
