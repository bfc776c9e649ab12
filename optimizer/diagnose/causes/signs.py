"""What the steady part of a log itself shows, as signs that speak for one cause or another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.base.units import is_count
from optimizer.diagnose.measured import Measured
from optimizer.diagnose.steady import Steady

UNSTEADY = 0.015  # relative standard deviation of single steps; healthy ones vary by less
STALLED = 0.01  # share of the time
STANDSTILL = 0.1  # the same, of runs that stand still for a good part of it
FEWEST, OFTEN = 4, 0.03  # stalls, and their share of the steps: checkpoints and evaluations stall fewer
SHIFTED = 0.02  # relative difference of the pace of a part
WANDER = 0.4  # correlation of a step's time with that of the next
TAIL = 2.0  # slow side of the spread / fast side
ENOUGH = 20  # lines below which the shape of the spread says nothing
OFF, ON = ("false", "0", "off", "none"), ("true", "1", "on")


@dataclass(frozen=True, kw_only=True)
class Sign:
    """One thing that a log tells: the sign's name, its value (of those in USUAL), and the number behind it in words."""

    name: str
    value: str
    text: str


def signs_of(run: Measured, predicted: float, sigma: float) -> tuple[Sign, ...]:
    """The signs of a log that is long enough to show them, and the settings it prints that speak for a cause.

    predicted: the step without a fault [s]; sigma: standard deviation of the prediction's logarithm [1].
    """
    steady, shape = run.steady, []
    if steady and len(steady.times) >= ENOUGH:
        shape = [_motion(steady), _tail(steady), _trend(steady)]
        if steady.steps_each == 1 and steady.seconds > predicted * (1 + sigma):
            shape.append(_floor(steady, predicted, sigma))
    return (*shape, *_settings(run.facts))


def _motion(steady: Steady) -> Sign:
    """Whether steps are alike, vary each on its own, or for many steps at a time; a trend is a sign of its own.

    A line that is the mean of n steps varies by 1/sqrt(n) of what a step does.
    """
    paces = [level.seconds for level in steady.levels if abs(level.seconds / steady.seconds - 1) > SHIFTED]
    one_way = steady.trend != 0 and _one_way([level.seconds for level in steady.levels])
    if paces and not one_way:
        words = f"{len(paces)} part{'s' * (len(paces) > 1)} of the run had another pace"
        return Sign(name="motion", value="wander", text=words)
    spread = (steady.jitter if one_way else steady.spread) * steady.steps_each**0.5
    if spread <= UNSTEADY:
        return Sign(name="motion", value="steady", text=f"steps vary by only {spread:.1%}")
    if steady.wander > WANDER and not one_way:
        words = f"steps vary by {spread:.1%}, slowly: {steady.wander:.0%} of it lasts to the next"
        return Sign(name="motion", value="wander", text=words)
    return Sign(name="motion", value="jitter", text=f"steps vary by {spread:.1%}, each on its own")


def _one_way(paces: Sequence[float]) -> bool:
    """Whether every part of a run is slower than the one before it, or every one faster.

    >>> _one_way([1.0, 1.1, 1.3]), _one_way([1.0, 1.3, 1.1])
    (True, False)
    """
    return list(paces) in (sorted(paces), sorted(paces, reverse=True))


def _floor(steady: Steady, predicted: float, sigma: float) -> Sign:
    """Whether the fastest twentieth of the steps is as fast as predicted, though most are not."""
    fastest = float(np.quantile(steady.times, 0.05))
    ratio, apart = fastest / predicted, steady.seconds / fastest - 1 > sigma
    words = f"the fastest twentieth of the steps takes {ratio:.2f} x the predicted time"
    return Sign(name="floor", value="reached" if apart and ratio <= 1 + sigma else "above", text=words)


def _tail(steady: Steady) -> Sign:
    if steady.stalled > STALLED and len(steady.stalls) >= max(FEWEST, OFTEN * len(steady.times)):
        each = f"every {steady.period} steps" if steady.period else "without a period"
        words = f"{len(steady.stalls)} stalls {each} take {steady.stalled:.1%} of the time"
        return Sign(name="tail", value="standstill" if steady.stalled > STANDSTILL else "stalls", text=words)
    value = "skewed" if steady.tail > TAIL else "even"
    return Sign(name="tail", value=value, text=f"slow side of the spread {steady.tail:.1f} x the fast one")


def _trend(steady: Steady) -> Sign:
    if not steady.trend:
        return Sign(name="trend", value="flat", text="no trend")
    value, words = ("rises", "longer") if steady.trend > 0 else ("falls", "shorter")
    return Sign(name="trend", value=value, text=f"steps get {abs(steady.trend):.1%} {words}")


def _settings(facts: Mapping[str, str]) -> list[Sign]:
    signs = []
    for name in ("overlap_grad_reduce", "overlap_comm"):
        if (value := facts.get(name, "").lower()) in (*OFF, *ON):
            switched = "off" if value in OFF else "on"
            signs.append(Sign(name="overlap", value=switched, text=f"the log prints {name} {value}"))
    if is_count(value := facts.get("num_workers", "")):
        text = f"the log prints num_workers {value}"
        signs.append(Sign(name="loaders", value="some" if int(value) else "none", text=text))
    return signs
