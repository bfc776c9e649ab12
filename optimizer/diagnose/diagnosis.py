"""Why a run is slower than its plan: which single change would explain the whole gap, and how likely each is.

Bayes' rule over causes: the share of each is prior x chance of the gap x chance of the signs. The gap's chance is that
of log(measured / step under the cause), normal with the spread of the stack's own errors, averaged over the settings
that runs with this fault have. Causes that the run cannot have are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import expm1, log
from statistics import NormalDist

import numpy as np

from optimizer.diagnose.causes.cause import USUAL, Cause, SlowStep, Test
from optimizer.diagnose.causes.every import CAUSES
from optimizer.diagnose.causes.signs import Sign, signs_of
from optimizer.diagnose.measured import Measured
from optimizer.job.job import Job
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.step.flops import ALL_SCORES, CAUSAL, CONVENTIONS, PARAMETERS, useful_flops
from optimizer.objectives.step.interval import LEVEL, Interval, interval, mfu

GRID = 25  # settings at which a cause is priced
MATTERS = 0.005  # slowdown of a step below which a cause cannot be recognised
NOTICED = 0.03  # slowdown from which a fault makes somebody ask
ALIKE = 3.0  # ratio of the shares of two causes below which they fit alike
BELOW, WITHIN, ABOVE = "below", "within", "above"


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The step under one cause: seconds [s] at settings from healthy to worst; `likely`: at equally likely settings,
    of those that are NOTICED.
    """

    settings: FloatArray
    seconds: FloatArray
    likely: FloatArray


@dataclass(frozen=True, kw_only=True)
class CauseExplanation:
    """One cause held to the gap.

    setting: the one that explains all of it, None where none does; `at_worst`: the step under the worst one [s].
    share: how likely it is among the causes [1]. rarer: share of the runs with this fault that have it at least so bad.
    signs: for and against it, with how many times likelier they are under it than in a healthy run.
    """

    cause: Cause
    setting: float | None
    at_worst: float
    share: float
    rarer: float
    signs: tuple[tuple[Sign, float], ...] = ()

    @property
    def says(self) -> str:
        """What would have to be true, in words."""
        if self.setting is None:
            return f"{self.cause.label}: not even the worst explains it all"
        return self.cause.says(self.setting)


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """A measured step against its prediction [s], the causes from the likeliest on, and what to try.

    verdict: the run is BELOW, WITHIN or ABOVE what the interval allows. excluded: causes that the run cannot have, and
    why. alike: how many of the first causes fit alike. unlike: in what the run is another one than was predicted; then
    no cause is sought. counted: how the operations that the log prints are to ours, "" where it prints none.
    """

    measured: float
    predicted: float
    interval: Interval
    explanations: tuple[CauseExplanation, ...]
    excluded: tuple[tuple[Cause, str], ...]
    signs: tuple[Sign, ...]
    test: Test | None
    tested: CauseExplanation | None
    unlike: tuple[str, ...] = ()
    counted: str = ""

    @property
    def gap(self) -> float:
        """Measured over predicted, minus one [1]."""
        return self.measured / self.predicted - 1.0

    @property
    def verdict(self) -> str:
        """Whether the run is slower or faster than the interval."""
        if self.measured > self.interval.high:
            return BELOW
        return ABOVE if self.measured < self.interval.low else WITHIN

    @property
    def alike(self) -> tuple[CauseExplanation, ...]:
        """The causes that fit about as well as the first."""
        return tuple(
            explanation for explanation in self.explanations if explanation.share * ALIKE >= self.explanations[0].share
        )


def diagnose(question: SlowStep, run: Measured, unlike: tuple[str, ...] = ()) -> Diagnosis:
    """Why the run takes as long as it does; it must have a step time. If `unlike`, none is sought."""
    measured = run.step_time
    if measured is None:
        raise ValueError("a run without a step time has no gap to explain")
    around = interval(question.job, question.plan, question.predicted)
    curves, excluded = curves_of(question, () if unlike else CAUSES)
    sigma = deviation(around)
    signs = signs_of(run, question.predicted, sigma)
    shares = shares_of(curves, signs, measured, sigma)
    explanations = []
    if measured > question.predicted:
        for cause, curve in curves:
            setting = solved(question, cause, curve, measured)
            rarer = 0.0 if setting is None else float(np.mean(curve.likely >= measured))
            weights = tuple(
                (sign, cause.chance(sign.name, sign.value) / USUAL[sign.name][sign.value]) for sign in signs
            )
            explanations.append(
                CauseExplanation(
                    cause=cause,
                    setting=setting,
                    at_worst=float(curve.seconds[-1]),
                    share=shares[cause.name],
                    rarer=rarer,
                    signs=weights,
                )
            )
    ordered = tuple(sorted(explanations, key=lambda one: -one.share))
    tested = cheapest(ordered)
    return Diagnosis(
        measured=measured,
        predicted=question.predicted,
        interval=around,
        explanations=ordered,
        excluded=excluded,
        signs=signs,
        test=tested.cause.test if tested else None,
        tested=tested,
        unlike=unlike,
        counted="" if unlike else counted(question.job, run),
    )


COUNTS = {
    CAUSAL: "counted as here",
    ALL_SCORES: "the masked scores of attention counted too",
    PARAMETERS: "counted without attention, 6 for each parameter and token",
}
SAME_COUNT = 0.02  # ratio of two counts of operations that are one


def counted(job: Job, run: Measured) -> str:
    """How the operations that a log prints are to ours in the same time, by the nearest convention; "" without any."""
    if not run.flops_rate or run.step_time is None:
        return ""
    rate = run.flops_rate
    ours = {name: useful_flops(job, name) / run.step_time / job.gpus for name in CONVENTIONS}
    nearest = min(ours, key=lambda name: abs(log(rate / ours[name])))
    ratio = rate / ours[nearest]
    how = COUNTS[nearest] if abs(ratio - 1) <= SAME_COUNT else f"{rate / ours[CAUSAL]:.2f} times our count"
    share = f"{rate / job.peak_flops:.1%} of the peak of {job.dtype}"
    ours_is = f"{mfu(job, run.step_time):.1%}"
    return f"The log says {rate / 1e12:,.4g} TFLOP/s per GPU, {share}, {how}; by our count {ours_is}."


def deviation(around: Interval) -> float:
    """Standard deviation of the logarithm of measured over predicted that the interval stands for [1].

    >>> round(deviation(Interval(low=0.9, high=1 / 0.9)), 4)
    0.0641
    """
    return log(around.high / around.low) / 2 / NormalDist().inv_cdf((1 + LEVEL) / 2)


def curves_of(
    question: SlowStep, causes: Sequence[Cause] = CAUSES
) -> tuple[list[tuple[Cause, Curve]], tuple[tuple[Cause, str], ...]]:
    """The step under every cause that the run can have, and why it cannot have the others."""
    curves: list[tuple[Cause, Curve]] = []
    excluded: list[tuple[Cause, str]] = []
    for cause in causes:
        if reason := cause.absent(question):
            excluded.append((cause, reason))
            continue
        curve = _curve(question, cause)
        if curve.seconds[-1] < (1 + MATTERS) * question.predicted:
            worst = expm1(log(curve.seconds[-1] / question.predicted))
            excluded.append((cause, f"at its worst it would add {max(worst, 0.0):.1%}"))
        else:
            curves.append((cause, curve))
    return curves, tuple(excluded)


@lru_cache(maxsize=64)
def _curve(question: SlowStep, cause: Cause) -> Curve:
    """The step from the healthy setting to the worst; kept, since many logs are read against one plan."""
    healthy, worst = cause.healthy(question), cause.worst(question)
    place = np.linspace(0.0, 1.0, GRID)
    if min(healthy, worst) > 0 and max(worst / healthy, healthy / worst) > 3:
        settings = healthy * (worst / healthy) ** place
    else:
        settings = healthy + (worst - healthy) * place**2
    seconds = np.maximum.accumulate([cause.seconds(question, float(setting)) for setting in settings])
    drawn = cause.settings(question)
    upwards = np.argsort(settings)
    likely = np.exp(np.interp(drawn, settings[upwards], np.log(seconds[upwards])))
    noticed = likely[likely >= (1 + NOTICED) * question.predicted]
    return Curve(settings=settings, seconds=seconds, likely=noticed if len(noticed) else likely)


def shares_of(
    curves: Sequence[tuple[Cause, Curve]], signs: Sequence[Sign], measured: float, sigma: float
) -> dict[str, float]:
    """How likely each cause is by the gap and the signs; they add up to one."""
    if not curves:
        return {}
    weights = {}
    for cause, curve in curves:
        errors = (np.log(measured) - np.log(curve.likely)) / sigma
        gap = float(np.log(np.mean(np.exp(-0.5 * np.minimum(errors**2, 600.0)))))
        shown = sum(log(cause.chance(sign.name, sign.value)) for sign in signs)
        weights[cause.name] = log(cause.prior_odds) + gap + shown
    most = max(weights.values())
    posterior = {name: float(np.exp(weight - most)) for name, weight in weights.items()}
    return {name: value / sum(posterior.values()) for name, value in posterior.items()}


def solved(question: SlowStep, cause: Cause, curve: Curve, measured: float) -> float | None:
    """The setting under which the step takes exactly as long as measured, None where none does."""
    from scipy.optimize import brentq

    if curve.seconds[-1] < measured:
        return None
    above = int(np.argmax(curve.seconds >= measured))
    low, high = float(curve.settings[max(0, above - 1)]), float(curve.settings[above])
    if low == high:
        return low

    def excess(setting: float) -> float:
        return log(cause.seconds(question, setting) / measured)

    if excess(low) * excess(high) > 0:  # a step of the model between two settings
        return high
    return float(brentq(excess, low, high, xtol=1e-9, rtol=1e-4))


def cheapest(ordered: Sequence[CauseExplanation]) -> CauseExplanation | None:
    """The one of the first two causes whose test takes less time: it shows that cause, or leaves the other."""
    return min(ordered[:2], key=lambda one: one.cause.test.minutes, default=None)
