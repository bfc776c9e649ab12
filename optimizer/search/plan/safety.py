"""What caution costs: the best plan on paper, beside the one that was chosen with what may go wrong."""

from __future__ import annotations

from dataclasses import replace

from optimizer.answer.answer import Alternative, Safety
from optimizer.base.errors import TimeLimit
from optimizer.job.fields import FAST
from optimizer.job.job import EVEN_RISK, Job
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.safe_memory import risk_of
from optimizer.search.lattice.deadline import Deadline
from optimizer.search.lattice.enumerate import Space
from optimizer.search.lattice.oracle import Sweep, Tuning, fold
from optimizer.search.layouts.assigned import AssignedLayouts, Candidate
from optimizer.search.layouts.candidates import SAME, lay_out
from optimizer.search.layouts.contenders import Contenders
from optimizer.search.layouts.one_layout import as_given
from optimizer.search.plan.alternatives import estimate_of_plan, value_of


def safety_of(
    job: Job,
    space: Space,
    swept: Sweep,
    searched: AssignedLayouts,
    best: Candidate,
    estimate: Estimate,
    tuning: Tuning,
    time_limit: float | None = None,
    contenders: Contenders | None = None,
) -> Safety | None:
    """The best plan on paper of a job, beside the job's own `best`, of which there is an `estimate`.

    It is searched as the best is, over every layout; the plans are priced already. None where the job itself asks for
    that plan, or the time is over before every plan was seen.
    """
    bold = on_paper(job)
    if (risk_of(job) == EVEN_RISK and job.prefer == FAST) or time_limit == 0.0:
        return None
    deadline = Deadline.after(time_limit)
    own = value_of(bold, best.plan, best.knobs, estimate)
    every = (
        contenders.batches(space, bold, own, deadline) if contenders and not job.layout_given else space.until(deadline)
    )
    cost_batches = (layer_costs.changed(job=bold) for layer_costs in every)
    try:
        layouts = as_given(fold(bold, cost_batches, tuning, time_limit)) if job.layout_given else None
        even = replace(best, value=own)
        layouts = layouts or lay_out(
            bold,
            cost_batches,
            tuning,
            even=even,
            time_limit=time_limit,
            own=swept.own,
            lattice=searched.lattice.by(bold) if searched.lattice else None,
            layouts=searched.layouts.ruled_out,
            with_knob_bound=False,
            size=swept.space,
        )
    except TimeLimit:
        return None
    if not layouts.complete or layouts.best is None:
        return None
    if layouts.best.value >= own * (1 - SAME):
        return Safety(fastest=None)
    plan, knobs = layouts.best.plan, layouts.best.knobs
    fastest = estimate_of_plan(bold, plan, knobs)
    slower = value_of(bold, plan, knobs, fastest) / own - 1
    return Safety(fastest=Alternative(plan=plan, knobs=knobs, estimate=fastest, slower=slower))


def on_paper(job: Job) -> Job:
    """The job by whose objective the best plan on paper is the best.

    One that weighs what may go wrong without that; one that does not, of plans that need only be predicted to fit.
    """
    return job.with_limits(oom_risk=EVEN_RISK) if job.prefer == FAST else replace(job, prefer=FAST)
