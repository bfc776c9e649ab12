"""A study: what is combined into jobs, what is left out, and how hard each job is searched."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any

from optimizer.job.fields import FIELDS

Axes = Mapping[str, tuple[Any, ...]]  # the values of each key of a study
# The axes whose values vary slowest, in their order; the others follow in that of the fields.
_SLOWEST = ("model", "cluster", "device", "gpus", "seq_len", "global_batch", "tokens_per_batch", "dtype", "stack")
_LISTED = {name: field for name, field in FIELDS.items() if field.axis and name != "fix"}
AXES = (*(_LISTED[name] for name in dict.fromkeys((*_SLOWEST, *_LISTED))), FIELDS["fix"])
COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {">=": ge, "<=": le, ">": gt, "<": lt}
COMPARISON = re.compile(r"\s*(>=|<=|>|<)\s*(\d+\.?\d*(?:[eE][+-]?\d+)?)\s*$")


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How hard to search each job: the options of `optimize`, and but for runners-up its defaults."""

    top: int = 0  # runners-up to keep
    trials: int = FIELDS["trials"].default  # on the knobs
    time_limit: float | None = FIELDS["time_limit"].default  # for each job [s]
    seed: int = FIELDS["seed"].default  # of the search


@dataclass(frozen=True, kw_only=True)
class Study:
    """A checked study."""

    name: str
    path: Path  # of its file
    scenarios: Mapping[str, Axes]  # axes by the name of the scenario, "" where there is one alone
    exclude: tuple[Axes, ...] = ()  # jobs that match every key of one of these are left out
    effort: Effort = Effort()
    token_budget: float = 0.0  # of the whole run, for reports [tokens]
    runs: str = ""  # of the user's own, which every answer knows, as --runs names them
    prices: Mapping[str, float] = field(default_factory=dict)  # of a GPU by device, for reports [USD/s]


def holds(value: float, wanted: Iterable[int | float | str]) -> bool:
    """Whether a number is among those meant.

    >>> holds(4096, [64, ">= 1024"]), holds(512, [64, ">= 1024"])
    (True, False)
    """
    for item in wanted:
        match = COMPARISON.match(item) if isinstance(item, str) else None
        if match is None:
            if value == item:
                return True
        elif COMPARISONS[match[1]](value, float(match[2])):
            return True
    return False
