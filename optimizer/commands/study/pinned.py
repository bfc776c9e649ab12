"""What the studies of one plan share: their options, the job, and the plan that the pins make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from optimizer.commands import options
from optimizer.commands.waiting import waiting

if TYPE_CHECKING:
    from optimizer.job.job import Job
    from optimizer.job.plan import Knobs, Plan
    from optimizer.studies.memory_need import MemoryNeed

study_options = options.given(
    (
        options.option("model", required=True),
        *options.STUDIED,
        options.as_json(),
        click.option("--csv", "as_csv", is_flag=True, help="Print CSV."),
        options.html(),
    )
)


def study_plan(job: Job, best: bool) -> tuple[Plan, Knobs]:
    """The plan to study and its knobs: the best one, or the one that the pins make, at the default knobs.

    Raises Infeasible where there is none, InputError where the pins leave several or none.
    """
    from optimizer.base.errors import Infeasible, InputError
    from optimizer.job.plan import Knobs

    if best:
        from optimizer.search.plan.planner import plan

        with waiting("planning"):
            answer = plan(job, top=1, trials=0, priced_risk=False)
        if answer.plan is None:
            raise Infeasible("no plan satisfies every rule; `optimize` with the same options says which conflict")
        return answer.plan, answer.knobs
    from optimizer.studies.strategies import pinned_plan

    if job.limits.ranges or job.limits.choices:
        raise InputError(
            "a study needs one plan: pin variables to single values, or add --best to search among several"
        )
    return pinned_plan(job, job.limits.fixed), Knobs()


def warn(memory: MemoryNeed) -> None:
    """Say on stderr that a plan cannot run, whatever else is printed."""
    if memory.warning:
        click.echo(f"warning: the plan {memory.warning}", err=True)
