"""A plan as it runs or could run, priced with its settings of the software; what an edit changes, gains and saves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optimizer.base.units import DAY
from optimizer.catalog.offers import Offer
from optimizer.frameworks.launch_as_read import LaunchAsRead, as_split, bucket_of, settings_of, with_stack
from optimizer.job.job import Job
from optimizer.job.plan import FIELDS, Knobs, Plan, Plans
from optimizer.objectives.expected import layout_factor, memory_factor, plan_factor
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.safe_memory import USUAL_RISK, chance_to_fit
from optimizer.purchase.price.run_cost import charged
from optimizer.search.check.plan_rules import priced
from optimizer.search.plan.alternatives import estimate_of_plan


@dataclass(frozen=True, kw_only=True)
class State:
    """A plan as it runs or could run."""

    job: Job  # what it trains, its stack switched by the settings
    plan: Plan  # how
    settings: Mapping[str, Any]  # of the software, by name
    usual: Mapping[str, Any]  # the settings that this plan has where nothing else is changed
    knobs: Knobs  # the bucket and the share of the optimizer on the host
    estimate: Estimate  # its price

    @property
    def fits(self) -> bool:
        """Whether it stays within the memory usable."""
        return self.estimate.reserved <= self.job.usable_memory

    @property
    def throughput(self) -> float:
        """Tokens trained on per second by the whole job [1/s]."""
        return self.job.tokens / self.estimate.step_time

    @property
    def parts(self) -> float:
        """What its moving parts multiply its expected step with [1]."""
        plans = Plans.of([self.plan])
        return float((plan_factor(self.job, plans) * layout_factor(self.job, plans, self.knobs.offload))[0])

    @property
    def chance(self) -> float:
        """The chance of that."""
        return chance_to_fit(self.job, self.estimate.reserved)


def current_state(question: LaunchAsRead) -> State:
    """The plan of the launch as it is."""
    estimate = priced(question.job, question.plan, question.knobs)
    return State(
        job=question.job,
        plan=question.plan,
        settings=question.settings,
        usual=question.settings,
        knobs=question.knobs,
        estimate=estimate,
    )


def knobs_of(question: LaunchAsRead, settings: Mapping[str, Any]) -> Knobs:
    """The knobs of the launch, with the bucket and the share of the optimizer on the host that the settings say."""
    return replace(question.knobs, bucket=bucket_of(settings), offload=float(settings.get("offload", 0.0)))


def state_of(question: LaunchAsRead, plan: Plan, turned: Mapping[str, Any] = {}, knobs: Knobs | None = None) -> State:
    """Another plan of a launch, priced.

    Args:
        question: the launch.
        plan: the plan.
        turned: settings that are changed; of the others the plan has what is usual.
        knobs: those of the settings where none are given.
    """
    plan = as_split(plan, question.job.model, question.job.stack)
    settings = settings_of(question, plan, turned)
    job, chosen = with_stack(question, settings, plan.zero_stage), knobs or knobs_of(question, settings)
    estimate = estimate_of_plan(job, plan, chosen)
    return State(
        job=job, plan=plan, settings=settings, usual=settings_of(question, plan), knobs=chosen, estimate=estimate
    )


@dataclass(frozen=True, kw_only=True)
class WholeRun:
    """A whole run: its tokens, and the offer by which its GPUs are rented, None where no price is known."""

    tokens: float
    offer: Offer | None


def days(run: WholeRun, state: State) -> float:
    """Days of a run at a plan's throughput, failures, restarts and checkpoints included [day]."""
    return charged(state.job, run.tokens / state.throughput, None)[0] / DAY


def dollars(run: WholeRun, state: State) -> float | None:
    """Rent of whole nodes over that time [USD], None without a price."""
    return charged(state.job, run.tokens / state.throughput, run.offer)[1]


NOTICEABLE = 1e-3  # share of the step that an edit must gain to be worth saying
FOLLOWING = ("dp", "num_microbatches", "schedule")
SOFTWARE = (
    "global_batch",
    "reduce_overlap",
    "gather_overlap",
    "offload",
    "cuda_graphs",
    "compiled",
    "liger",
    "syncs_last",
    "hosted_weights",
)


@dataclass(frozen=True, kw_only=True)
class Change:
    """One setting before and after."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True, kw_only=True)
class Edit:
    """Changes that are made together."""

    changes: tuple[Change, ...]  # settings before and after
    after: State  # where they lead
    gain: float  # tokens trained on per second over those of today, minus one [1]
    # the same with what the change may cost: moving parts that are new, a larger chance to run out of memory [1]
    expected: float
    sure: bool  # it fits with 90 % at least, or needs no more memory than what runs

    @property
    def names(self) -> frozenset[str]:
        """What the user decides: without what follows from it."""
        return frozenset(change.name for change in self.changes if change.name not in FOLLOWING)


def edit_to(current: State, after: State) -> Edit:
    """The edit that leads from what runs to another state."""
    ratio, leaner = after.throughput / current.throughput, after.estimate.reserved <= current.estimate.reserved
    new = max(1.0, after.parts / current.parts)
    more = 1.0 if leaner else float(memory_factor(after.job, np.array([after.estimate.reserved]))[0])
    return Edit(
        changes=differences(current, after),
        after=after,
        gain=ratio - 1,
        expected=ratio / (new * more) - 1,
        sure=after.chance >= 1.0 - USUAL_RISK or (current.fits and leaner),
    )


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
    """The setting that a plan changes, by which like edits are grouped: its followers do not count.

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
