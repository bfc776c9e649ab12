"""What is changed between two states of a launch, and what that gains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from optimizer.frameworks.launch_as_read import bucket_of
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
    """Every setting that differs, those of the plan first; what follows from the plan is no difference."""
    names = [*FIELDS, "layers_per_stage", "recompute_first", "mtp_ahead"]
    changes = [Change(name=name, before=getattr(before.plan, name), after=getattr(after.plan, name)) for name in names]
    own = {
        "offload": 0.0,
        **after.usual,
        "global_batch": before.settings["global_batch"],
        "bucket": bucket_of(after.usual),
    }
    now = {**own, **before.settings, "bucket": before.knobs.bucket}
    then = {**own, **after.settings, "bucket": after.knobs.bucket}
    for name in (*SOFTWARE, "bucket"):
        if name in own and then[name] != own[name]:
            changes.append(
                Change(name=name, before=now[name] if now[name] != then[name] else own[name], after=then[name])
            )
    return tuple(change for change in changes if change.before != change.after)


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
