"""A plan as it runs or could run: with the settings of the software, priced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from optimizer.base.units import DAY
from optimizer.catalog.offers import Offer
from optimizer.frameworks.launch_as_read import LaunchAsRead, bucket_of, settings_of, with_stack
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.price import price
from optimizer.objectives.step.safe_memory import chance_to_fit
from optimizer.purchase.price.run_cost import rental, usual_reliability, wall_time
from optimizer.search.check.plan_rules import priced
from optimizer.search.plan.alternatives import estimate_of


@dataclass(frozen=True, kw_only=True)
class State:
    """A plan as it runs or could run.

    Attributes:
        job: what it trains, its stack switched by the settings.
        plan: how.
        settings: of the software, by name.
        usual: the settings that this plan has where nothing else is changed.
        knobs: the bucket and the share of the optimizer on the host.
        estimate: its price.
    """

    job: Job
    plan: Plan
    settings: Mapping[str, Any]
    usual: Mapping[str, Any]
    knobs: Knobs
    estimate: Estimate

    @property
    def fits(self) -> bool:
        """Whether it stays within the memory usable."""
        return self.estimate.reserved <= self.job.usable_memory

    @property
    def throughput(self) -> float:
        """Tokens trained on per second by the whole job [1/s]."""
        return self.job.tokens / self.estimate.step_time

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
    settings = settings_of(question, plan, turned)
    job, chosen = with_stack(question, settings, plan.zero_stage), knobs or knobs_of(question, settings)
    estimate = estimate_of(job, price(job, Plans.of([plan]), chosen), 0)
    return State(
        job=job, plan=plan, settings=settings, usual=settings_of(question, plan), knobs=chosen, estimate=estimate
    )


@dataclass(frozen=True, kw_only=True)
class Run:
    """A whole run: its tokens, and the offer by which its GPUs are rented, None where no price is known."""

    tokens: float
    offer: Offer | None


def days(run: Run, state: State) -> float:
    """Days of a run at a plan's throughput, failures, restarts and checkpoints included [day]."""
    job = state.job
    usual = usual_reliability(job.cluster.device.name, job.cluster.name)
    return wall_time(run.tokens / state.throughput, job.gpus, usual, params=job.model.params).wall / DAY


def dollars(run: Run, state: State) -> float | None:
    """Rent of whole nodes over that time [USD], None without a price."""
    if run.offer is None:
        return None
    job = state.job
    training, params, cluster = run.tokens / state.throughput, job.model.params, job.cluster
    return rental(training, job.gpus, cluster.gpus_per_node, run.offer, params=params, cluster=cluster.name).cost
