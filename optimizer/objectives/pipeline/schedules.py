"""Every schedule by its name, and what arrays of plans ask of theirs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from optimizer.base.errors import InputError
from optimizer.job.plan import SCHEDULES, Plans
from optimizer.objectives.arrays import BoolArray, FloatArray, nothing
from optimizer.objectives.pipeline.dualpipe import DUALPIPE, pairs
from optimizer.objectives.pipeline.interleaved import INTERLEAVED
from optimizer.objectives.pipeline.one_f_one_b import ONE_F_ONE_B
from optimizer.objectives.pipeline.schedule import Order, Schedule
from optimizer.objectives.pipeline.zero_bubble import ZERO_BUBBLE, ZERO_BUBBLE_2P

BY_NAME: Mapping[str, Schedule] = {
    schedule.name: schedule for schedule in (ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE, ZERO_BUBBLE_2P, DUALPIPE)
}
IN_ORDER = tuple(BY_NAME[name] for name in SCHEDULES)  # by the code that arrays of plans hold
FILLED = np.array([schedule.filled for schedule in IN_ORDER])
LEFT = np.array([schedule.left for schedule in IN_ORDER])
BOTH_WAYS = np.array([schedule.both_ways for schedule in IN_ORDER])
COPIES = np.array([float(schedule.copies) for schedule in IN_ORDER])


def schedule_order(schedule: str, pp: int, vpp: int, microbatches: int) -> Order:
    """The passes of every stage in the order in which it runs them.

    Raises InputError for an unknown schedule, and for virtual stages or micro-batches that it cannot run.

    >>> ["".join(p.kind for p in stage) for stage in schedule_order("1f1b", 2, 1, 3)]
    ['FFBFBB', 'FBFBFB']
    """
    if schedule not in BY_NAME:
        raise InputError(f"schedule must be one of {', '.join(SCHEDULES)}, but got {schedule!r}")
    for name, value in (("pp", pp), ("vpp", vpp), ("num_microbatches", microbatches)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, but got {value}")
    if vpp > 1 and not BY_NAME[schedule].interleaves:
        raise InputError(f"schedule {schedule} has one virtual stage per stage, but got vpp = {vpp}; use interleaved")
    return BY_NAME[schedule].order(pp, vpp, microbatches)


def in_flight(plans: Plans, stage: FloatArray) -> FloatArray:
    """Micro-batches whose activations a stage keeps at its peak, at most those there are [micro-batches].

    `stage` broadcasts against the plans: one number, one for each plan, or a row for each stage. Where the all-to-all
    overlaps with another micro-batch, one more forward pass of a virtual stage runs ahead of the backward ones.

    Source: NVIDIA/Megatron-LM @d98e8a64dd, megatron/core/pipeline_parallel/schedules.py,
    get_pp_rank_microbatches (num_warmup_microbatches).
    """
    resident = ONE_F_ONE_B.in_flight(plans.pp, plans.vpp, stage)
    for code, schedule in enumerate(IN_ORDER):
        chosen = plans.schedule == code
        if schedule is not ONE_F_ONE_B and chosen.any():
            resident = np.where(chosen, schedule.in_flight(plans.pp, plans.vpp, stage), resident)
    if plans.overlap_exchange.any():
        resident = resident + np.where(both_ways(plans), 0.0, plans.overlap_exchange / plans.vpp)
    return np.minimum(plans.num_microbatches, resident)


def both_ways(plans: Plans) -> BoolArray:
    """Plans whose micro-batches enter the pipeline at both ends."""
    return np.asarray(BOTH_WAYS[plans.schedule])


def copies(plans: Plans) -> FloatArray:
    """Copies of the weights that each plan's pipeline holds [1]."""
    return np.asarray(COPIES[plans.schedule])


def paired_share(plans: Plans) -> FloatArray:
    """Share of a stage's time in passes that it spends on pairs: a forward pass overlapped with another one's backward.

    (m - pp) / (m + (pp - 1) / vpp), at least 0, where the plan overlaps the all-to-all, else 0 [1]. Of the vpp m
    forward passes of a stage, (vpp - 1) pp + 2 (pp - s - 1) + 1 run before the first backward one, vpp pp in the mean
    of the stages; those that it waits for in the bubble, (pp - 1) / vpp micro-batches, are alone as well. DualPipe:
    `pairs` of its micro-batches, whose bubble counts pairs by itself.

    Source: NVIDIA/Megatron-LM @d98e8a64dd, megatron/core/pipeline_parallel/schedules.py, get_pp_rank_microbatches.

    >>> from optimizer.job.plan import Plan
    >>> some = [Plan(pp=8, vpp=2, num_microbatches=m, overlap_exchange=True) for m in (8, 16, 128)]
    >>> paired_share(Plans.of([*some, Plan(num_microbatches=4, overlap_exchange=True), Plan()])).round(3).tolist()
    [0.0, 0.41, 0.913, 0.75, 0.0]
    """
    if not np.any(plans.overlap_exchange):
        return nothing(len(plans))
    m, pp = plans.num_microbatches.astype(np.float64), plans.pp.astype(np.float64)
    share = np.maximum(0.0, m - pp) / (m + (pp - 1) / plans.vpp)
    share = np.where(both_ways(plans), pairs(m, pp) / m, share)
    return np.where(plans.overlap_exchange, share, 0.0)


def filled_passes(schedule: ArrayLike, pp: ArrayLike, microbatches: ArrayLike) -> FloatArray:
    """Weight-gradient passes that fill the bubble of 1F1B: (pp - 1) x filled, at most pp + m - 2 [1].

    `schedule` is the code of a schedule. With the most, the step is as short as its first stage waits: the last
    micro-batch comes back after m + pp - 1 forward passes F and as many backward ones B, and its weights W remain.

    Source: Qi et al., arXiv 2401.10241, section 2.3 (ZB-H1 and ZB-H2) and section 4 (ZB-2p); the most derived, and held
    against objectives/pipeline/simulator.py by the tests.

    >>> filled_passes(SCHEDULES.index("zero-bubble-2p"), 8, [1, 8, 15, 32]).tolist(), filled_passes(0, 8, 4).tolist()
    ([7.0, 14.0, 21.0, 21.0], 0.0)
    """
    times = FILLED[np.asarray(schedule)]
    stages, m = np.asarray(pp, dtype=np.float64), np.asarray(microbatches, dtype=np.float64)
    return np.asarray(np.where(times > 0, np.minimum((stages - 1) * times, stages + m - 2), 0.0))


def bubble_left(schedule: ArrayLike, pp: ArrayLike, microbatches: ArrayLike) -> FloatArray:
    """Share of the bubble of 1F1B that a schedule (its code) leaves, of equally long F, B and W [1].

    Schedule.left, but of zero-bubble schedules at least (2 (pp - 1) - (m - 1)) / (3 (pp - 1)): no more micro-batches
    than there are, less the one whose weights come last, lend their weights' gradients to fill it.

    Source: sail-sg/zero-bubble-pipeline-parallelism, README.md (what is left); the least as in `filled_passes`.

    >>> bubble_left(SCHEDULES.index("zero-bubble-2p"), 8, [1, 8, 15, 32]).round(3).tolist()
    [0.667, 0.333, 0.0, 0.0]
    """
    which = np.asarray(schedule)
    left = LEFT[which]
    for code, known in enumerate(IN_ORDER):
        if known.left_of and np.any(which == code):
            left = np.where(which == code, known.left_of(np.asarray(pp, dtype=np.float64)), left)
    stages, m = np.asarray(pp, dtype=np.float64), np.asarray(microbatches, dtype=np.float64)
    floor = (2 * (stages - 1) - (m - 1)) / np.maximum(3 * (stages - 1), 1)
    return np.asarray(np.where(left < 1, np.maximum(left, floor), left), dtype=np.float64)


def bubble_fraction(pp: ArrayLike, vpp: ArrayLike, microbatches: ArrayLike, left: ArrayLike = 1.0) -> FloatArray:
    """Share of the pipeline's time that a stage idles: (pp - 1) l / (vpp m + (pp - 1) l) [1].

    `left` l is what the schedule leaves of the bubble of 1F1B (`bubble_left`).

    Source: Narayanan et al., arXiv 2104.04473, section 2.2, there as idle over ideal time (pp - 1) / (vpp m).

    >>> round(float(bubble_fraction(4, 1, 16)), 3), round(float(bubble_fraction(4, 1, 16, 1 / 3)), 3)
    (0.158, 0.059)
    """
    idle = (_float(pp) - 1) * _float(left)
    return idle / (_float(vpp) * _float(microbatches) + idle)


def _float(value: ArrayLike) -> FloatArray:
    return np.asarray(value, dtype=np.float64)
