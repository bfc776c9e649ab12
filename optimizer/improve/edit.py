"""What is changed between two states of a launch, and what that gains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from optimizer.improve.state import State
from optimizer.job.plan import FIELDS, Plan

NOTICEABLE = 1e-3  # share of the step that an edit must gain to be worth saying
FOLLOWING = ("dp", "num_microbatches", "schedule")
SOFTWARE = ("global_batch", "reduce_overlap", "gather_overlap", "offload", "cuda_graphs")


@dataclass(frozen=True, kw_only=True)
class Change:
    """One setting before and after."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True, kw_only=True)
class Edit:
    """Changes that are made together, and where they lead; gain: tokens trained on per second, relative to before."""

    changes: tuple[Change, ...]
    after: State
    gain: float

    @property
    def names(self) -> frozenset[str]:
        """What the user decides: without what follows from it."""
        return frozenset(change.name for change in self.changes if change.name not in FOLLOWING)


def edit_to(current: State, after: State) -> Edit:
    """The edit that leads from what runs to another state."""
    changes = differences(current, after)
    return Edit(changes=changes, after=after, gain=after.throughput / current.throughput - 1)


def differences(before: State, after: State) -> tuple[Change, ...]:
    """Every setting that differs, those of the plan first."""
    names = [*FIELDS, "layers_per_stage", "recompute_first", "mtp_ahead"]
    found = [Change(name=name, before=getattr(before.plan, name), after=getattr(after.plan, name)) for name in names]
    found += [
        Change(name=name, before=before.settings[name], after=after.settings[name])
        for name in SOFTWARE
        if name in before.settings
    ]
    if before.knobs.bucket != after.knobs.bucket:
        found.append(Change(name="bucket", before=before.knobs.bucket, after=after.knobs.bucket))
    return tuple(change for change in found if change.before != change.after)


def moved(before: Plan, after: Plan) -> frozenset[str]:
    """The setting that a plan changes, by which like edits are told: its followers do not count.

    >>> sorted(moved(Plan(tp=1, pp=4, vpp=2, dp=2), Plan(tp=1, pp=1, dp=8)))
    ['pp']
    """
    names = {name for name in FIELDS if name not in FOLLOWING and getattr(before, name) != getattr(after, name)}
    if "pp" in names and 1 in (before.pp, after.pp):
        names.discard("vpp")
    if "ep" in names and 1 in (before.ep, after.ep):
        names.discard("dispatcher")
    if "tp" in names:
        names -= {"sequence_parallel"} if 1 in (before.tp, after.tp) else set()
        names -= {"etp"} if before.etp == before.tp and after.etp == after.tp else set()
    return frozenset(names)
