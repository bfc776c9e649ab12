"""An answer as `optimize --json` printed it: the job, the plans and everything that was claimed about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from optimizer.answer.answer import Certificate
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan


@dataclass(frozen=True, kw_only=True)
class SavedPlan:
    """A runner-up and its knobs."""

    plan: Plan
    knobs: Knobs


@dataclass(frozen=True, kw_only=True)
class SavedFormat:
    """The best plan of another number format."""

    dtype: str
    plan: Plan | None
    knobs: Knobs


@dataclass(frozen=True, kw_only=True)
class SavedAnswer:
    """An answer as it was written: what can be priced again, and what it states."""

    job: Job  # what was asked
    plan: Plan | None  # the best plan
    knobs: Knobs = Knobs()  # its knobs
    # the certificate as far as no other search can find it again, without best, method and what is minimised
    claims: Certificate | None = None
    alternatives: tuple[SavedPlan, ...] = ()  # the runners-up
    risked: bool = False  # whether it states what the risk to go out of memory costs
    fastest: SavedPlan | None = None  # the fastest plan that is predicted to fit
    formats: tuple[SavedFormat, ...] = ()  # the best plans of the other number formats
    trials: int = 0  # of the search for knobs
    seed: int = 0  # of the search for knobs
    pins: str = ""  # of --why-not
    document: Mapping[str, Any] = field(default_factory=dict)  # the whole of it; empty where only a plan is given
    # where the user said to find what the answer names, such as "model", to its name there
    places: Mapping[str, str] = field(default_factory=dict)
