"""Brittle or broad: how sure it is that the best plan is the fastest, when the stack's parameters are not as fitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, log
from typing import Any

import numpy as np

from optimizer.answer.answer import Answer
from optimizer.answer.keys import RobustKeys
from optimizer.job.job import Job
from optimizer.job.plan import KnobColumns, Plans
from optimizer.job.stack import PARAMETERS, PRIOR_SPREAD
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.minimised.registry import objective_of
from optimizer.objectives.step.interval import SIDES, interval
from optimizer.objectives.step.price import price_layer_costs
from optimizer.search.lattice.knobs import columns, joined_knobs

DRAWS = 64
CLOSE = 0.1  # logarithm to which the spread is sought
BROAD = 0.5  # chance of being the fastest below which the best plan is brittle


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One plan over all draws: the chance that it is the fastest of those listed [1], and its expected regret, its step
    time over that of the fastest minus one [1].
    """

    chance: float
    regret: float


@dataclass(frozen=True, kw_only=True)
class Robustness:
    """The best plan and its runners-up, in their order, under `draws` of the parameters.

    `spread` is the standard deviation of each parameter, as a share of the distance between its bounds [1].
    """

    draws: int
    spread: float
    standings: tuple[Standing, ...]

    @property
    def steadiest(self) -> int:
        """Position of the plan with the least expected regret, of equals the first."""
        return min(range(len(self.standings)), key=lambda place: (self.standings[place].regret, place))

    @property
    def shape(self) -> str:
        """Whether the best plan is the fastest in at least half of the draws."""
        return "broad" if self.standings[0].chance >= BROAD else "brittle"

    def to_dict(self) -> dict[str, Any]:
        """The standings as plain values; `least_regret` is 0 for the best plan, else the number of the runner-up."""
        return RobustKeys.of(self)


def robustness(answer: Answer, draws: int = DRAWS) -> Robustness | None:
    """How the plans of an answer stand when the parameters of its stack are drawn, the same draw for all of them.

    No covariance of the parameters is kept with a stack: each is drawn by itself, normally around its value between its
    bounds, as wide as the calibration's prior times one factor for all of them. The factor makes the step time of the
    best plan vary as much as the stack's own errors on runs left out, the standard deviation of its interval, but no
    parameter is wider than its prior. Errors that all plans share decide nothing between them: what is left is which
    term each plan leans on. Seeded by the answer's seed; each plan keeps its knobs. None without a plan.
    """
    if answer.plan is None or answer.estimate is None:
        return None
    others = answer.alternatives
    plans = Plans.of([answer.plan, *(other.plan for other in others)])
    knobs = joined_knobs([columns(each, 1) for each in (answer.knobs, *(other.knobs for other in others))])
    moves = np.random.default_rng(answer.seed).standard_normal((draws, len(PARAMETERS)))
    sure = interval(answer.job, answer.plan, answer.estimate.step_time)
    best, own = Plans.of([answer.plan]), columns(answer.knobs, 1)
    spread = _spread(
        lambda spread: float(np.std(_log_values(answer.job, best, own, spread * moves))),
        float(np.log(sure.high / sure.low)) / 2 / SIDES,
    )
    values = _log_values(answer.job, plans, knobs, spread * moves)
    regrets = np.expm1(values - values.min(axis=1, keepdims=True))
    first = values.argmin(axis=1)
    standings = tuple(
        Standing(chance=float(np.mean(first == place)), regret=float(np.mean(regrets[:, place])))
        for place in range(len(plans))
    )
    return Robustness(draws=draws, spread=spread, standings=standings)


def _spread(varies: Callable[[float], float], asked: float) -> float:
    """The spread of the parameters with which a time varies as asked, at most their prior's [1].

    Times far from the median grow faster than the spread does, so that one draw at the prior does not tell it: it is
    sought by the secant method on logarithms.

    >>> round(_spread(lambda spread: 2 * spread + 9 * spread**3, 0.04), 2), _spread(lambda spread: 0.0, 0.04)
    (0.02, 0.25)
    """
    most = varies(PRIOR_SPREAD)
    if most <= asked:
        return PRIOR_SPREAD

    from scipy.optimize import root_scalar

    def excess(place: float) -> float:
        return log((varies(PRIOR_SPREAD * exp(place)) if place else most) / asked)

    log_share = root_scalar(excess, x0=0.0, x1=log(asked / most), method="secant", xtol=CLOSE).root
    return PRIOR_SPREAD * min(1.0, exp(log_share))


def _log_values(job: Job, plans: Plans, knobs: KnobColumns, moves: FloatArray) -> FloatArray:
    """Logarithm of what every plan (columns) is minimised by under every move of the parameters (rows)."""
    objective, values = objective_of(job), []
    for layer_costs in (layer_costs_of(moved(job, move), plans) for move in moves):
        costs = price_layer_costs(layer_costs, knobs)
        values.append(objective.value(layer_costs, knobs, costs.step_time, costs.reserved))
    return np.log(values)


def moved(job: Job, move: FloatArray) -> Job:
    """The job with the parameters of its stack moved by these shares of the distances between their bounds."""
    values = {
        name: parameter.at(float(np.clip(parameter.place(job.stack[name]) + by, 0.0, 1.0)))
        for (name, parameter), by in zip(PARAMETERS.items(), move.tolist(), strict=True)
    }
    return replace(job, stack=replace(job.stack, parameters=values))
