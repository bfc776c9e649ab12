"""The seconds of a step: at a given batch, what gives the highest MFU."""

from __future__ import annotations

from optimizer.objectives.objective import Objective

OBJECTIVE = Objective(
    name="time",
    label="step time",
    unit="s",
    about="the seconds of a step",
    good="fast",
    better="faster",
    best="fastest",
    worse="slower",
    per="second",
    rate=lambda job: 1.0,
)
