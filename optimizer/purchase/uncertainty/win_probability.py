"""The chance that each machine is the best choice, what to find out before signing, and what changes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from optimizer.catalog.economics import default_price
from optimizer.objectives.arrays import FloatArray, symmetric_root
from optimizer.objectives.belief.belief import alikeness
from optimizer.objectives.step.interval import mfu
from optimizer.purchase.campaign import Campaign
from optimizer.purchase.designs.points import Point, excesses, figures_in
from optimizer.purchase.price.catalogue import price_row
from optimizer.purchase.ranges import Range
from optimizer.purchase.uncertainty.inputs import own_assumptions

HALVINGS = 40
DRAWS = 1500
NINETY = 1.6449  # standard deviations to either end of a range that holds nine of ten cases
RARE, CHEAP = 0.02, 0.002  # a question that changes fewer cases, or saves less of the cost, is not asked
PARTS = 10  # of the cases by one input, in each of which the choice may be another


@dataclass(frozen=True, kw_only=True)
class WinProbability:
    """One machine in all cases."""

    point: Point
    chance: float  # that it is the cheapest within the limits
    in_limits: float  # chance that it meets them
    regret: float  # expected cost beyond that of the best choice of each case [USD]


@dataclass(frozen=True, kw_only=True)
class OpenQuestion:
    """One thing that could be found out first: what knowing it saves [USD] and how often it changes the choice [1]."""

    name: str
    title: str
    about: str
    worth: float
    changes: float


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The machines by chance, and the questions by worth."""

    probabilities: tuple[WinProbability, ...] = ()
    questions: tuple[OpenQuestion, ...] = ()
    draws: int = 0


@dataclass
class DrawnErrors:
    """Standard normal errors, drawn once by name, so that machines share what they have in common."""

    draws: int  # of each
    random: np.random.Generator  # where they are drawn from
    shared: float  # of the variance of prices and failures what is common [1]
    drawn: dict[str, FloatArray] = field(default_factory=dict)  # by name

    def __call__(self, name: str) -> FloatArray:
        """The errors of this name."""
        if name not in self.drawn:
            self.drawn[name] = self.random.standard_normal(self.draws)
        return self.drawn[name]

    def partly(self, common: str, own: str) -> FloatArray:
        """DrawnErrors of which the share `shared` of the variance is common."""
        mixed: FloatArray = np.sqrt(self.shared) * self(common) + np.sqrt(1.0 - self.shared) * self(own)
        return mixed


def judged(
    campaign: Campaign, points: Sequence[Point], *, draws: int = DRAWS, seed: int = 0, shared: float | None = None
) -> Decision:
    """The chance of each machine to be the best choice, by drawing every uncertain input of all of them together.

    Rates err alike as optimizer.objectives.belief has it. Prices where both are rented or bought, and failures
    everywhere, err alike by the share `shared` of the variance, that of presets/prices.csv where None; power, PUE and
    the other inputs are the same for all. A range holds nine of ten cases and is log-normal to either side. What misses
    a limit counts as dear as the dearest.

    The worth of a question is the expected value of perfect information on one input.

    Source: Raiffa and Schlaifer, Applied Statistical Decision Theory (1961), chapter 4; its estimate from parts of one
    sample: Strong and Oakley, Medical Decision Making 33 (2013) 755.
    """
    if len(points) < 2:
        return Decision()
    errors = DrawnErrors(
        draws, np.random.default_rng(seed), default_price("shared_error").value if shared is None else shared
    )
    losses, within, inputs = [], [], dict[tuple[str, str], tuple[str, FloatArray]]()
    for point, rate in zip(points, _rates(points, errors), strict=True):
        values = _values(campaign, point, rate, errors, inputs)
        cost, inside = _outcomes(campaign, point, values, draws)
        losses.append(cost)
        within.append(inside)
    costs, inside = np.array(losses), np.array(within)
    costs = np.where(inside, costs, costs.max(axis=0))
    best = costs.min(axis=0)
    winners = costs.argmin(axis=0)
    probabilities = [
        WinProbability(
            point=point,
            chance=float((winners == index).mean()),
            in_limits=float(inside[index].mean()),
            regret=float((costs[index] - best).mean()),
        )
        for index, point in enumerate(points)
    ]
    floor = CHEAP * float(costs.mean(axis=1).min())
    hopeless = {item.point.design.title for item in probabilities if item.chance < RARE}
    questions = [
        _question(key, title, error, costs) for key, (title, error) in inputs.items() if key[1] not in hopeless
    ]
    return Decision(
        probabilities=tuple(sorted(probabilities, key=lambda item: -item.chance)),
        questions=tuple(
            sorted(
                (item for item in questions if item.changes >= RARE and item.worth > floor),
                key=lambda item: -item.worth,
            )
        ),
        draws=draws,
    )


def least_regret(decision: Decision, front: Sequence[Point]) -> tuple[Point | None, Point | None]:
    """The point of the front that is expected to lose least, and the next one where the two are a tie; else None.

    They are one where finding out a single thing saves more than the first is expected to be better by: then the
    question decides, and not the difference.
    """
    there = {id(point) for point in front}
    ranked = sorted((item for item in decision.probabilities if id(item.point) in there), key=lambda item: item.regret)
    if not ranked:
        return None, None
    worth = max((item.worth for item in decision.questions), default=0.0)
    close = len(ranked) > 1 and ranked[1].regret - ranked[0].regret < worth
    return ranked[0].point, ranked[1].point if close else None


def spread(value: Range, error: FloatArray) -> FloatArray:
    """An input whose range holds nine of ten cases, at standard normal errors [unit of the range].

    m (h / m)^(e / 1.645) above the middle and m (l / m)^(-e / 1.645) below; in a straight line where that end is zero.

    >>> import numpy as np
    >>> spread(Range(low=0.5, mid=1.0, high=4.0), np.array([-1.6449, 0.0, 1.6449])).tolist()
    [0.5, 1.0, 4.0]
    """
    end, far = np.where(error > 0, value.high, value.low), np.abs(error) / NINETY
    if value.low <= 0:
        return np.asarray(np.maximum(0.0, value.mid + (end - value.mid) * far))
    return np.asarray(value.mid * (end / value.mid) ** far)


def _rates(points: Sequence[Point], errors: DrawnErrors) -> FloatArray:
    """Standard normal errors of the rate of each machine, one row each, alike as those of its first run are."""
    firsts = ((point.answers[0], point.planned[0].estimate) for point in points)
    predicted = [(answer.job, answer.plan, mfu(answer.job, estimate.step_time)) for answer, estimate in firsts]
    own = np.array([errors(f"rate {number}") for number in range(len(predicted))])
    return np.asarray(symmetric_root(alikeness(predicted)) @ own)


def _values(
    campaign: Campaign,
    point: Point,
    rate: FloatArray,
    errors: DrawnErrors,
    inputs: dict[tuple[str, str], tuple[str, FloatArray]],
) -> Mapping[str, FloatArray]:
    """Every input of one machine in every case; the errors are noted in `inputs` by input and by what it is about.

    rate: the error of what it reaches [standard deviations].
    """
    device = point.design.cluster.device.name
    values = {}
    for item in own_assumptions(campaign, point):
        about = ""
        if item.value.low == item.value.high:
            values[item.name] = np.full(errors.draws, item.value.mid)
            continue
        if item.name == "mfu":
            about, error = point.design.title, rate
        elif item.name in ("rent", "capex"):
            about = point.design.title
            error = errors.partly(f"market, {item.name}", price_row(campaign, point.design).row)
        elif item.name == "failure_rate":
            about, error = point.design.title, errors.partly("failures", f"failures of {device}")
        else:
            error = errors(item.name)
        values[item.name] = spread(item.value, error)
        inputs[item.name, about] = (item.title, error)
    return values


def _outcomes(
    campaign: Campaign, point: Point, values: Mapping[str, FloatArray], draws: int
) -> tuple[FloatArray, FloatArray]:
    """Cost [USD] and whether every limit holds, in every case."""
    costs, inside = np.empty(draws), np.empty(draws, dtype=bool)
    for case in range(draws):
        scenario = {name: float(column[case]) for name, column in values.items()}
        scenario["pue"] = max(1.0, scenario["pue"])
        outcome = figures_in(campaign, point, scenario)
        costs[case], inside[case] = outcome.cost, not excesses(campaign, point.design, outcome, point.on_host)
    return costs, inside


def _question(key: tuple[str, str], title: str, error: FloatArray, costs: FloatArray) -> OpenQuestion:
    """What knowing one input saves: the choice follows the mean costs in its tenth, not those over all cases.

    Half of the cases choose and the other half count what is saved, so that chance alone is worth nothing.
    """
    part = error.argsort().argsort() * PARTS // len(error)
    usual = int(costs.mean(axis=1).argmin())
    half = np.resize([True, False], len(error))
    saved, changed = np.zeros(len(error)), np.zeros(len(error), dtype=bool)
    for chooses in (half, ~half):
        for each in range(PARTS):
            learned, counted = (part == each) & chooses, (part == each) & ~chooses
            chosen = int(costs[:, learned].mean(axis=1).argmin())
            saved[counted] = costs[usual, counted] - costs[chosen, counted]
            changed[counted] = chosen != usual
    return OpenQuestion(
        name=key[0], about=key[1], title=title, worth=float(saved.mean()), changes=float(changed.mean())
    )


@dataclass(frozen=True, kw_only=True)
class BreakEven:
    """Beyond a value of an input another machine is the cheapest within the limits."""

    question: OpenQuestion
    value: float  # from which on, in SI as in a scenario
    end: float  # to the side of which, in SI
    now: Point  # the cheapest today
    then: Point  # the cheapest beyond

    @property
    def side(self) -> str:
        """On which side of `value` the other one is the cheapest."""
        return "below" if self.end < self.value else "above"


def break_evens(campaign: Campaign, points: Sequence[Point], question: OpenQuestion) -> tuple[BreakEven, ...]:
    """Where the choice changes between the middle of an input and either end of its range; empty where it does not."""
    changes = []
    now = choice(campaign, points, question, None)
    about = next((point for point in points if question.about in ("", point.design.title)), None)
    if now is None or about is None:
        return ()
    item = next(item for item in own_assumptions(campaign, about) if item.name == question.name)
    middle = item.value.mid
    for end in (item.value.low, item.value.high):
        if end == middle:
            continue
        then = choice(campaign, points, question, end)
        if then is None or then is now:
            continue
        near, far = middle, end
        for _ in range(HALVINGS):
            between = (near + far) / 2
            if choice(campaign, points, question, between) is now:
                near = between
            else:
                far = between
        changed = choice(campaign, points, question, far) or then
        changes.append(BreakEven(question=question, value=far, end=end, now=now, then=changed))
    return tuple(changes)


def choice(campaign: Campaign, points: Sequence[Point], question: OpenQuestion, value: float | None) -> Point | None:
    """The cheapest point within the limits where one input has this value, and every other one is at its middle."""
    within = []
    for point in points:
        answer = {} if value is None or question.about not in ("", point.design.title) else {question.name: value}
        values = campaign.scenario(point.design, **answer)
        outcome = figures_in(campaign, point, values)
        if not excesses(campaign, point.design, outcome, point.on_host):
            within.append((outcome.cost, point))
    return min(within, key=lambda item: item[0])[1] if within else None
