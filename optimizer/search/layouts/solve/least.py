"""What layouts of one problem take at least, by how many layers some stage holds, without a look at any of them."""

from __future__ import annotations

from itertools import product
from math import inf

import numpy as np

from optimizer.job.plan import IntArray
from optimizer.objectives.arrays import FloatArray, lowered, raised
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, HEAD, MOE
from optimizer.objectives.step.time_terms import before_last, passes_overlapped
from optimizer.search.layouts.problem import LayoutProblem

HALVINGS = 24  # of the interval that holds the least time of the slowest stage


def least_slowest(problem: LayoutProblem) -> tuple[float, float]:
    """Two times close to each other: in the first stages have no room for all layers between them, in the second they
    have [s].
    """
    low, high, least = 0.0, 2 * problem.whole, _least_seconds(problem)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if _most(problem, middle, least).any() else (middle, high)
    return low, high


def most_layers(problem: LayoutProblem, slowest: float) -> IntArray:
    """Layers that stages may hold where none takes longer than this [s]; none where all have no room together."""
    return _most(problem, slowest, _least_seconds(problem))


def _least_seconds(problem: LayoutProblem) -> FloatArray:
    """The least time of so many layers that follow each other, one recomputed where stages do so alike [s]."""
    names = [kind for kind, count in problem.sequence for _ in range(count) if kind in (DENSE, MOE)]
    busy = np.pad(np.cumsum([problem.kinds[kind].seconds for kind in names]), (1, 0))
    least = np.array([np.min(busy[count:] - busy[: len(busy) - count]) for count in range(len(busy))])
    least[1:] += min(problem.kinds[kind].recompute for kind in names) if problem.alike else 0.0
    return least


def _most(problem: LayoutProblem, slowest: float, least: FloatArray) -> IntArray:
    aside = np.full(problem.pp, problem.seconds)
    aside[0] += problem.kinds[EMBEDDING].seconds
    aside[-1] += problem.kinds[HEAD].seconds
    most = np.searchsorted(least, raised(slowest) - aside, side="right") - 1  # -1 where its end alone takes longer
    return most if most.min() >= 0 and most.sum() >= problem.layers else np.zeros_like(most)


def least_objective(problem: LayoutProblem, at_most: float = inf) -> float:
    """What the pipeline and a step's ends take at least where stages hold one virtual stage each [s].

    Objectives of more than `at_most` [s] may be left out of account.
    """
    m, whole, steady = problem.microbatches, problem.whole, problem.microbatches - 1 - problem.pp
    slowest, _ = least_slowest(problem)
    if not problem.alternates:
        pipeline = float(problem.pipeline(np.asarray(slowest), np.asarray(whole)))
    else:
        pipeline = max(m * slowest, steady * slowest + 2 * whole if steady > 0 else 0.0)
    least = lowered(pipeline + least_once(problem))
    uniform = {kind for kind, _ in problem.sequence} == {EMBEDDING, DENSE, HEAD}
    if problem.alternates and uniform and m > problem.pp > 1 and not problem.memory.layers[DENSE].chosen:
        return max(least, _least_of_uniform(problem, slowest, at_most))
    return least


def _least_of_uniform(problem: LayoutProblem, slowest: float, at_most: float) -> float:
    """The same of 1F1B where the layers are of one kind.

    Let stage s be the last that takes the least that the slowest can, with n layers or more. With x layers after it,
    the chains of one_f_one_b.makespan through s take so long, and the first and the last stage hold what the others
    cannot; of all s and x it is the least.
    """
    kinds, m, pp = problem.kinds, problem.microbatches, problem.pp
    forward, backward, ends = kinds[DENSE].forward, kinds[DENSE].backward + kinds[DENSE].always, np.zeros((2, pp))
    for kind, stage in ((EMBEDDING, 0), (HEAD, -1)):
        ends[:, stage] += kinds[kind].forward, kinds[kind].backward + kinds[kind].always
    ends += problem.seconds / 2
    total = problem.layers
    least = (np.floor((slowest - ends.sum(axis=0)) / (forward + backward)) + 1).clip(0)[:, None]
    most = most_layers(problem, problem.slowest_within(at_most))[:, None]
    after, ahead, shorter = np.arange(total + 1), np.arange(pp)[::-1, None], (least - 1).clip(0)
    until, most_until, most_after = total - after, np.cumsum(most, axis=0), shorter.sum() - np.cumsum(shorter, axis=0)

    def chain(there: float, back: float, end: FloatArray, end_back: FloatArray) -> FloatArray:
        """The longer of two: to the last stage and back, or s alone after what comes before it [s]."""
        behind = end_back.sum() - np.cumsum(end_back)[:, None]
        round_trip = total * there + end.sum() + after * back + behind
        alone = until * there + np.cumsum(end)[:, None] + ahead * (least * there + end[:, None])
        return np.asarray(np.maximum(round_trip, alone))

    there, back = ends
    steady = (m - 1 - ahead) * (least * (forward + backward) + (there + back)[:, None])
    seconds = steady + chain(forward, backward, there, back) + chain(backward, forward, back, there)
    first = (until - (most_until - most[0])).clip(0)
    last = (after - (most_after - shorter[-1])).clip(0)
    once = np.full_like(seconds, least_once(problem))
    for form in (form for form in once_forms(problem) if form[DENSE] >= 0):
        once = np.maximum(once, np.maximum(first * form[DENSE] + form[EMBEDDING], last * form[DENSE] + form[HEAD]))
    may = (until <= most_until) & (after <= most_after) & (until >= least)
    return lowered(float(np.min(np.where(may, seconds + once, inf))))


def least_once(problem: LayoutProblem) -> float:
    """What some stage takes at least for what it does once per step [s]: it holds the mean of all layers, or more."""
    here = {kind for kind, _ in problem.sequence if kind in (DENSE, MOE)}
    mean = -(-problem.layers // problem.pp)
    ends = [(kind, count) for kind, count in problem.sequence if kind not in here]
    least = (
        mean * min(form[kind] for kind in here) + sum(count * min(form[kind], 0.0) for kind, count in ends)
        for form in once_forms(problem)
    )
    return max(0.0, *least)


def once_forms(problem: LayoutProblem) -> list[dict[str, float]]:
    """Seconds of a layer of each kind once per step, by what hides: the longest sum over a stage's layers counts [s].

    What hides is the least of three sums, for gradients and for weights; see step/time_terms.py.
    """
    vpp, pp = np.asarray(float(problem.vpp)), np.asarray(float(problem.pp))
    # Shares of the messages and passes under which they hide.
    sums = dict.fromkeys(((1.0, 0.0), (float(before_last(vpp)), 1.0), (0.0, float(passes_overlapped(vpp, pp)))))
    forms: list[dict[str, float]] = []
    for (reduced, backward), (gathered, forward) in product(sums, repeat=2):
        forms.append({})
        for kind, _ in problem.sequence:
            costs = problem.kinds[kind]
            gradients = reduced * costs.reduced + backward * costs.cover_backward
            weights = gathered * costs.gathered + forward * costs.cover_forward
            forms[-1][kind] = costs.per_step - problem.hides * (gradients + weights)
    return forms
