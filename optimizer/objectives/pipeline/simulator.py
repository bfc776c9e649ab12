"""Run a pipeline schedule event by event: when every pass starts and ends, and what every stage holds meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.base.errors import InputError
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.pipeline.schedule import BACKWARD, FORWARD, WEIGHT, Order, Pass

Seconds = Sequence[Sequence[float]]
NEVER = float("inf")


@dataclass(frozen=True, kw_only=True)
class PassTimes:
    """Seconds of one micro-batch's pass, indexed [stage][virtual stage].

    `backward` holds the gradients of inputs and weights, unless the schedule splits them: then `weight` holds the
    latter. `recompute` comes on top of a backward pass. `gain` is by how much a forward and a backward pass that are
    joined are shorter than one after the other, by stage, 0 where it is empty. `transfer` is the delay of an activation
    or gradient between two stages [s]; a stage that sends does not wait for it.
    """

    forward: Seconds
    backward: Seconds
    weight: Seconds = ()
    recompute: Seconds = ()
    gain: Sequence[float] = ()
    transfer: float = 0.0


@dataclass(frozen=True, kw_only=True)
class StageRun:
    """What one stage did: its passes in order, with the start and the end of each [s]."""

    passes: tuple[Pass, ...]
    start: FloatArray
    end: FloatArray

    @property
    def busy(self) -> float:
        """Time spent in passes [s]."""
        return float((self.end - self.start).sum())

    def in_flight(self) -> tuple[FloatArray, FloatArray]:
        """Times [s], and the pairs of virtual stage and micro-batch whose activations the stage holds from then on.

        From the start of the forward pass to the end of the last pass that reads them: the weight pass if there is one.
        """
        last = WEIGHT if any(step.kind == WEIGHT for step in self.passes) else BACKWARD
        taken = [i for i, step in enumerate(self.passes) if step.kind == FORWARD]
        freed = [i for i, step in enumerate(self.passes) if step.kind == last]
        times = np.concatenate([self.end[freed], self.start[taken]])
        change = np.concatenate([-np.ones(len(freed)), np.ones(len(taken))])
        # Stable: what ends at an instant is freed before what starts then.
        sequence = np.argsort(times, kind="stable")
        return times[sequence], np.cumsum(change[sequence])


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A schedule that ran, stage by stage, with the number of virtual stages of each."""

    stages: tuple[StageRun, ...]
    vpp: int

    @property
    def makespan(self) -> float:
        """From the first start to the last end [s]."""
        return float(max(stage.end[-1] for stage in self.stages) - min(stage.start[0] for stage in self.stages))

    @property
    def bubble(self) -> FloatArray:
        """Share of the makespan for which each stage idles [1]."""
        return 1.0 - np.array([stage.busy for stage in self.stages]) / self.makespan

    @property
    def peak_in_flight(self) -> FloatArray:
        """Most micro-batches that each stage holds at once; one virtual stage of v counts 1 / v [micro-batches]."""
        return np.array([stage.in_flight()[1].max() for stage in self.stages]) / self.vpp


def simulate(order: Order, times: PassTimes, *, both_ways: bool = False) -> Timeline:
    """Start every pass as soon as its stage is free and its input has arrived; joined passes start and end together.

    `both_ways`: virtual stages 0 run from the first stage to the last, virtual stages 1 back. Raises InputError when
    the stages wait for each other for ever, or when times are missing.

    >>> from optimizer.objectives.pipeline.one_f_one_b import one_f_one_b
    >>> equal = PassTimes(forward=[[1.0]] * 4, backward=[[2.0]] * 4)
    >>> simulate(one_f_one_b(4, 1, 8), equal).makespan
    33.0
    """
    pp, vpp = len(order), 1 + max(step.virtual for step in order[0])
    microbatches = 1 + max(step.microbatch for step in order[0])
    splits = any(step.kind == WEIGHT for step in order[0])
    durations = [_durations(times, stage, vpp, splits) for stage in range(pp)]
    inbox = (_TwoWays if both_ways else _Inbox)(pp, vpp, microbatches, times.transfer if pp > 1 else 0.0)
    starts: list[list[float]] = [[] for _ in order]
    ends: list[list[float]] = [[] for _ in order]
    moving = True
    while moving:
        moving = False
        for stage, passes in enumerate(order):
            gain = times.gain[stage] if times.gain else 0.0
            moving |= _advance(stage, passes, durations[stage], gain, inbox, starts[stage], ends[stage])
    for stage, passes in enumerate(order):
        if len(ends[stage]) < len(passes):
            raise InputError(f"the schedule stops: stage {stage} waits for ever to run {passes[len(ends[stage])]}")
    runs = zip(order, starts, ends, strict=True)
    return Timeline(
        stages=tuple(StageRun(passes=steps, start=np.array(s), end=np.array(e)) for steps, s, e in runs), vpp=vpp
    )


class _Inbox:
    """When the input of every pass arrives; places are numbered in the order of the forward pass."""

    def __init__(self, pp: int, vpp: int, microbatches: int, transfer: float) -> None:
        self.pp, self.last, self.transfer = pp, pp * vpp - 1, transfer
        self.forward = [[NEVER] * microbatches for _ in range(pp * vpp)]
        self.forward[0] = [0.0] * microbatches
        self.backward = [[NEVER] * microbatches for _ in range(pp * vpp)]

    def place(self, stage: int, virtual: int) -> int:
        """The place of a stage's virtual stage."""
        return virtual * self.pp + stage

    def forwarded(self, place: int, microbatch: int, end: float) -> None:
        """A forward pass ended: its output goes to the next virtual stage, or turns round at the last."""
        if place < self.last:
            self.forward[place + 1][microbatch] = end + self.transfer
        else:
            self.backward[place][microbatch] = end

    def returned(self, place: int, microbatch: int, end: float) -> None:
        """A backward pass ended: its gradient goes to the virtual stage before."""
        if place:
            self.backward[place - 1][microbatch] = end + self.transfer


class _TwoWays(_Inbox):
    """Two lines of places, one for each direction."""

    def __init__(self, pp: int, vpp: int, microbatches: int, transfer: float) -> None:
        super().__init__(pp, vpp, microbatches, transfer)
        self.forward[pp] = [0.0] * microbatches

    def place(self, stage: int, virtual: int) -> int:
        """Backwards in the second line."""
        return self.pp + (self.pp - 1 - stage) if virtual else stage

    def forwarded(self, place: int, microbatch: int, end: float) -> None:
        """Turns round at the last of its line."""
        if place == self.pp - 1:
            self.backward[place][microbatch] = end
        else:
            super().forwarded(place, microbatch, end)

    def returned(self, place: int, microbatch: int, end: float) -> None:
        """Ends at the first of its line."""
        if place != self.pp:
            super().returned(place, microbatch, end)


def _advance(
    stage: int,
    passes: tuple[Pass, ...],
    durations: dict[str, list[float]],
    gain: float,
    inbox: _Inbox,
    starts: list[float],
    ends: list[float],
) -> bool:
    """Run a stage until it must wait for another one; whether it ran anything."""
    before = len(ends)
    now = ends[-1] if ends else 0.0
    at = before
    while at < len(passes):
        end = at + 1
        while end < len(passes) and passes[end].joined:
            end += 1
        together = [(step, inbox.place(stage, step.virtual)) for step in passes[at:end]]
        arrival = max(_arrival(inbox, step, place, now) for step, place in together)
        if arrival == NEVER:
            break
        lengths = [durations[step.kind][step.virtual] for step, _ in together]
        kinds = {step.kind for step, _ in together}
        whole = sum(lengths) - (gain if {FORWARD, BACKWARD} <= kinds else 0.0)
        start, begun = arrival if arrival > now else now, 0.0
        for length in lengths:  # shown one after the other, in the time that they take together
            starts.append(start + begun * whole / (sum(lengths) or 1.0))
            begun += length
            ends.append(start + begun * whole / (sum(lengths) or 1.0))
        now = ends[-1] = start + whole
        for step, place in together:
            if step.kind == FORWARD:
                inbox.forwarded(place, step.microbatch, now)
            elif step.kind == BACKWARD:
                inbox.returned(place, step.microbatch, now)
        at = end
    return len(ends) > before


def _arrival(inbox: _Inbox, step: Pass, place: int, now: float) -> float:
    """When the input of a pass is there."""
    if step.kind == FORWARD:
        return inbox.forward[place][step.microbatch]
    return inbox.backward[place][step.microbatch] if step.kind == BACKWARD else now


def _durations(times: PassTimes, stage: int, vpp: int, splits: bool) -> dict[str, list[float]]:
    """Seconds of a stage's passes by kind and virtual stage."""
    tables = {"forward": times.forward, "backward": times.backward}
    tables |= {"weight": times.weight} if splits else {}
    tables |= {"recompute": times.recompute} if times.recompute else {}
    for name, table in tables.items():
        if len(table) <= stage or len(table[stage]) < vpp:
            raise InputError(f"{name} times are missing for stage {stage}: {vpp} virtual stages need one each")
    recomputed = times.recompute[stage] if times.recompute else [0.0] * vpp
    return {
        FORWARD: list(times.forward[stage]),
        BACKWARD: [time + extra for time, extra in zip(times.backward[stage], recomputed, strict=True)],
        WEIGHT: list(times.weight[stage]) if splits else [0.0] * vpp,
    }
