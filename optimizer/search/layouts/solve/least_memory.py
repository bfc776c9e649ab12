"""Whether a plan's layers fit under any layout, and in how little memory: by filling stage after stage, else CP-SAT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from optimizer.base.errors import Infeasible
from optimizer.job.plan import Placement
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, HEAD, MOE, MTP
from optimizer.search.layouts.problem import LayoutProblem, firsts, recomputable
from optimizer.search.layouts.solve.fastest_shape import least_memory_shape
from optimizer.search.layouts.solve.layout import (
    Layout,
    assess,
    least_memory_assignment,
    placed_layout,
    recomputed_alike,
    shaped_layout,
)

PRECISION = 1e-6  # share of the least memory to which it is found


def fitting_layout(problem: LayoutProblem, time_limit: float | None = None) -> Layout | None:
    """A layout that fits in the problem's memory, or None when there is none. Raises TimeLimit when that is not known
    in time [s].
    """
    if problem.vpp > 1:
        lean = shaped_layout(problem, least_memory_shape(problem))
        return lean if lean and lean.fits(problem) else None
    if problem.even:
        even = recomputed_for_least_memory(problem, placed_layout(problem, Placement()))
        return even if even.fits(problem) else None
    layout, possible = filled(problem)
    if not possible or (layout and layout.fits(problem)):
        return layout
    try:
        return least_memory_assignment(problem, time_limit=time_limit)
    except Infeasible:
        return None


def least_memory_layout(problem: LayoutProblem, bound: float = 0.0, time_limit: float | None = None) -> Layout | None:
    """The layout whose fullest stage reserves least, to a millionth, if one fits in the problem's memory.

    None reserves less than `bound` [B]. Raises TimeLimit as fitting_layout does.
    """
    best = fitting_layout(problem, time_limit)
    if best is None or problem.vpp > 1 or problem.even:
        return best
    low, high = bound, max(best.memory)
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        fitting = fitting_layout(replace(problem, usable=middle), time_limit)
        if fitting is None:
            low = middle
        else:
            best, high = fitting, max(fitting.memory)
    return best


def filled(problem: LayoutProblem) -> tuple[Layout | None, bool]:
    """A layout of a pipeline without interleaving that fits, and whether there may be one if none was found.

    Stage after stage takes as many layers as it has room for, so that the least is left to the later ones: there is no
    layout where that fails although stages may stay empty. MTP layers lie with the head, or on the stage before
    it where the head is alone.
    """
    names = [kind for kind, count in problem.sequence for _ in range(count) if kind in (DENSE, MOE)]
    predicting = any(kind == MTP for kind, _ in problem.sequence)
    possible = False
    aheads = (0, 1) if predicting and problem.pp > 2 else (0,)
    for ahead, first in product(aheads, (0, *firsts(problem.sequence)) if problem.alike else (0,)):
        counts = _filled(problem, names, ahead, first, empty=False)
        if counts is not None:
            return recomputed_for_least_memory(
                problem, placed_layout(problem, Placement(layers=counts, mtp_ahead=ahead))
            ), True
        possible = possible or _filled(problem, names, ahead, first, empty=True) is not None
    return None, possible


def recomputed_for_least_memory(problem: LayoutProblem, layout: Layout) -> Layout:
    """The layout with those layers of each stage recomputed with which the stage reserves least."""
    if problem.alike:
        options = [recomputed_alike(problem, layout.kinds, first) for first in (0, *firsts(problem.sequence))]
        return min(options, key=lambda option: max(option.memory))
    counts_here = [
        [run for virtual in layout.kinds[stage :: problem.pp] for run in virtual] for stage in range(problem.pp)
    ]
    counts = [{kind: sum(n for name, n in runs if name == kind) for kind in (DENSE, MOE)} for runs in counts_here]
    chosen = []
    choosable = recomputable(problem)
    for stage, runs in enumerate(counts_here):
        others = {kind: n for kind, n in runs if kind not in (DENSE, MOE)}
        chosen.append(_least(problem, stage, {**others, **counts[stage]}, choosable)[1])
    return assess(problem, layout.kinds, chosen)


def _filled(
    problem: LayoutProblem, names: Sequence[str], ahead: int, first: int, *, empty: bool
) -> tuple[int, ...] | None:
    """Layers on each stage, none on some if they may be empty, or None where they do not all find room.

    Where stages recompute alike, they do the `first` layers of each, or all for 0.
    """
    moe_layers = np.concatenate([[0], np.cumsum([kind == MOE for kind in names])]).tolist()
    last, predicted = problem.pp - 1, problem.pp - 1 - ahead
    predicting = sum(count for kind, count in problem.sequence if kind == MTP)
    ended = [stage in (0, last) or (predicting and stage == predicted) for stage in range(problem.pp)]
    least = [int(not (empty or something)) for something in ended]
    counts: list[int] = []
    start, choosable = 0, recomputable(problem)
    for stage in range(problem.pp):
        ends = {EMBEDDING: int(stage == 0), HEAD: int(stage == last), MTP: predicting * (stage == predicted)}
        most = len(names) - start - sum(least[stage + 1 :]) if stage <= predicted else 0
        low, high = -1, most
        while low < high:
            middle = (low + high + 1) // 2
            moe = moe_layers[start + middle] - moe_layers[start]
            counts_here = {**ends, DENSE: middle - moe, MOE: moe}
            if problem.alike:
                mixed = moe_layers[start + min(first or middle, middle)] - moe_layers[start]
                chosen = {DENSE: min(first or middle, middle) - mixed, MOE: mixed, MTP: 0 if first else ends[MTP]}
                space = _reserved(problem, stage, counts_here, {kind: chosen[kind] for kind in choosable})
            else:
                space = _least(problem, stage, counts_here, choosable)[0]
            low, high = (middle, high) if space <= problem.usable else (low, middle - 1)
        if low < least[stage]:
            return None
        counts.append(low)
        start += low
    return tuple(counts) if start == len(names) else None


def _least(
    problem: LayoutProblem, stage: int, counts: Mapping[str, int], recomputable: Sequence[str]
) -> tuple[float, dict[str, int]]:
    """The least that a stage with these layers reserves [B], and the layers it recomputes then: none or all of a kind.

    Those of the kinds that are recomputable may be, MoE layers before dense ones.
    """
    kinds = sorted(recomputable, key=(MOE, DENSE).index)
    choices = [dict.fromkeys(kinds, 0) | {kind: counts[kind] for kind in kinds[:n]} for n in range(len(kinds) + 1)]
    return min(((_reserved(problem, stage, counts, some), some) for some in choices), key=lambda choice: choice[0])


def _reserved(problem: LayoutProblem, stage: int, counts: Mapping[str, int], recomputed: Mapping[str, int]) -> float:
    """What a stage with these layers reserves when it recomputes those [B]."""
    present = {kind: n for kind, n in counts.items() if n}
    return float(problem.memory.reserved(present, recomputed, problem.in_flight[stage]))
