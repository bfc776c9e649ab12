"""What the user pinned, ranged or listed: each is a rule of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optimizer.base.errors import InputError
from optimizer.constraints.pin_text import Pinned, code, listed, ordered, shown, variable
from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray, FloatArray
from optimizer.job.job import PLACING, Job
from optimizer.job.plan import Plans


@dataclass(frozen=True, kw_only=True)
class Pin:
    """One variable lies within [low, high], both equal for a pin, and is one of `among` where that lists any."""

    name: str
    variable: str
    low: int
    high: int
    among: tuple[int, ...] = ()

    @property
    def variables(self) -> tuple[str, ...]:
        """The one variable."""
        return (self.variable,)

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the variable has the value asked for."""
        values = getattr(plans, self.variable)
        listed = np.isin(values, self.among) if self.among else True
        return np.asarray((values >= self.low) & (values <= self.high) & listed)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """The variable lies in its interval, or takes one of the values listed."""
        allowed = [value for value in program.domains[self.variable] if self.low <= value <= self.high]
        program.restrict(self.variable, [value for value in allowed if value in (self.among or allowed)], literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        return f"you asked for {self.name.partition(' ')[2]}"

    def required(self, job: Job, plans: Plans) -> FloatArray:
        """How far the variable is from what was asked."""
        values = getattr(plans, self.variable).astype(np.float64)
        if self.among:
            return np.asarray(np.min([np.abs(values - allowed) for allowed in self.among], axis=0))
        return np.asarray(np.maximum(np.maximum(self.low - values, values - self.high), 0.0))

    def relax(self, job: Job, required: float) -> tuple[Job, str]:
        """Without the pin."""
        if self.low == self.high and self.variable in job.limits.fixed:
            fixed = {name: value for name, value in job.limits.fixed.items() if name != self.variable}
            return job.with_limits(fixed=fixed), f"drop {self.name}"
        return job.without_pin(self.variable), f"drop {self.name}"


def pins(job: Job) -> tuple[Pin, ...]:
    """The rules that the user added.

    Raises InputError for an unknown variable or a value it cannot take.
    """
    fixed = [
        Pin(name=f"fix {name}={shown(value)}", variable=variable(name), low=code(name, value), high=code(name, value))
        for name, value in job.limits.fixed.items()
        if name not in PLACING
    ]
    ranged = []
    for name, (low, high) in job.limits.ranges.items():
        if low > high:
            raise InputError(f"range {name}: low <= high must hold, but got {low}..{high}")
        text = f"range {name}={low}..{high}"
        ranged.append(Pin(name=text, variable=variable(name), low=code(name, low), high=code(name, high)))
    return (*fixed, *ranged, *(_listed(name, values) for name, values in job.limits.choices.items()))


def _listed(name: str, values: Sequence[int | str | bool]) -> Pin:
    codes = tuple(sorted({code(name, value) for value in values}))
    if not codes:
        raise InputError(f"cannot fix {name}: the list of its values is empty")
    text = f"fix {name}={listed(values)}"
    return Pin(name=text, variable=variable(name), low=codes[0], high=codes[-1], among=codes)


def as_limits(pinned: Mapping[str, Pinned]) -> dict[str, Any]:
    """Pins as the fields of optimizer.job.job.Limits: a value is fixed, two ends are a range, a set is a choice.

    >>> as_limits({"tp": 8, "pp": (2, 8), "vpp": frozenset({6, 1})})
    {'fixed': {'tp': 8}, 'ranges': {'pp': (2, 8)}, 'choices': {'vpp': (1, 6)}}
    """
    return {
        "fixed": {name: value for name, value in pinned.items() if not isinstance(value, tuple | frozenset)},
        "ranges": {name: value for name, value in pinned.items() if isinstance(value, tuple)},
        "choices": {name: ordered(name, value) for name, value in pinned.items() if isinstance(value, frozenset)},
    }
