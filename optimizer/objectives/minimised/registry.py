"""Objectives by the names that `--minimize` takes; each is the OBJECTIVE of the module of its name beside this one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from optimizer.base.errors import InputError
from optimizer.job.fields import FAST, FIELDS

if TYPE_CHECKING:
    from optimizer.job.job import Job
    from optimizer.objectives.objective import Objective

NAMES = FIELDS["minimize"].choices
PREFERRED = FIELDS["prefer"].choices


def objective_of(job: Job) -> Objective:
    """What a job asks to minimise. Raises InputError for a name that there is no objective of."""
    return objective(job.minimize, job.prefer)


@cache
def objective(name: str, prefer: str = FAST) -> Objective:
    """The objective of a name, for EXPECTED what is expected of it. Raises InputError where there is none.

    >>> objective("time").label, objective("energy").unit, objective("time", "expected").label
    ('step time', 'J', 'expected step time')
    """
    if name not in NAMES:
        raise InputError(f"what is minimised must be one of {', '.join(NAMES)}, but got {name!r} (--minimize)")
    named: Objective = import_module(f"{__package__}.{name}").OBJECTIVE
    if prefer not in PREFERRED:
        raise InputError(f"what is preferred must be one of {', '.join(PREFERRED)}, but got {prefer!r} (--prefer)")
    if prefer == FAST:
        return named
    from optimizer.objectives.expected import ASSIGNED, layout_factor, memory_factor, plan_factor

    return replace(
        named,
        label=f"expected {named.label}",
        about=f"{named.about}, with what moving parts and running out of memory cost",
        good="good",
        better="better",
        best="best",
        worse="worse",
        weight=plan_factor,
        layout=layout_factor,
        memory=memory_factor,
        listed=1.0 + ASSIGNED,
    )
