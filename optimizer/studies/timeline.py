"""One step of a plan's pipeline, pass by pass, and what the closed form says."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.base.errors import InputError
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan
from optimizer.objectives.pipeline.schedules import BY_NAME, schedule_order
from optimizer.objectives.pipeline.simulator import Timeline, simulate
from optimizer.search.layouts.candidates import EFFORT
from optimizer.search.layouts.costs import pass_times
from optimizer.search.layouts.problem import layer_costs, problem_of
from optimizer.search.layouts.solve.layout import Layout, best_assignment, placed_layout
from optimizer.studies.memory_need import MemoryNeed


@dataclass(frozen=True, kw_only=True)
class PipelineStudy:
    """A simulated step. `layout` is the split of the layers, `closed_form` the price of its pipeline [s]."""

    job: Job
    plan: Plan
    layout: Layout
    timeline: Timeline
    closed_form: float

    @property
    def error(self) -> float:
        """The closed form over the simulated makespan, minus one [1]."""
        return self.closed_form / self.timeline.makespan - 1.0

    @property
    def memory(self) -> MemoryNeed:
        """The memory of the fullest stage."""
        return MemoryNeed(reserved=max(self.layout.memory), usable=self.job.usable_memory)


def timeline_of(job: Job, plan: Plan, knobs: Knobs = Knobs(), *, best: bool = False, seed: int = 0) -> PipelineStudy:
    """Simulate the plan's schedule with its layers as it places them (else evenly), or by the best layout.

    Raises InputError when the schedule cannot run, Infeasible when no layout fits in memory.
    """
    if BY_NAME[plan.schedule].both_ways:
        raise InputError(f"the timeline of schedule {plan.schedule} is not drawn: its stages run two stages' layers")
    order = schedule_order(plan.schedule, plan.pp, plan.vpp, plan.num_microbatches)
    # What pins a plan does not pin its layout, as far as the layout is asked for.
    free = job.with_limits(fixed={})
    costs = layer_costs(free, plan, knobs)
    problem = problem_of(free, plan, costs)
    layout = best_assignment(problem, seed=seed, effort=EFFORT) if best else placed_layout(problem, plan.placement)
    split = BY_NAME[plan.schedule].splits
    times = pass_times(costs, layout.kinds, layout.recomputed, pp=plan.pp, split=split)
    return PipelineStudy(
        job=job,
        plan=layout.of(plan),
        layout=layout,
        timeline=simulate(order, times),
        closed_form=layout.pipeline,
    )
