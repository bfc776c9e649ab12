"""Plans that differ from the one that runs in few settings, and in how many."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.plan import IntArray, Plan, Plans
from optimizer.job.variables import DISPATCHERS
from optimizer.objectives.arrays import BoolArray
from optimizer.search.lattice.enumerate import lattice

COUNTED = (
    *("tp", "cp", "pp", "micro_batch", "ep", "zero_stage", "shard"),
    *("recompute", "overlap_exchange", "activation_offload"),
)
MOST = 2  # settings changed at once, short of all


def distances(plan: Plan, plans: Plans) -> IntArray:
    """In how many settings plans differ from one; what only follows from another setting does not count.

    Sequence parallelism follows where there is no tensor parallelism, virtual stages where there is no pipeline, the
    tensor parallelism of experts where it is that of the model, and the dispatcher where experts are not spread.

    >>> one = Plan(tp=8, pp=4, dp=2, num_microbatches=8, sequence_parallel=True)
    >>> others = [Plan(tp=1, pp=4, dp=16, num_microbatches=1), Plan(tp=4, pp=8, dp=2, num_microbatches=8)]
    >>> distances(one, Plans.of(others)).tolist()
    [1, 3]
    """
    mine = Plans.of([plan])
    count = np.zeros(len(plans), dtype=np.int64)
    for name in COUNTED:
        count += getattr(plans, name) != getattr(mine, name)
    both_ep = (plans.ep > 1) & (mine.ep > 1)
    count += both_ep & (plans.dispatcher != mine.dispatcher)
    both_tp = (plans.tp > 1) & (mine.tp > 1)
    count += both_tp & (plans.sequence_parallel != mine.sequence_parallel)
    both_pp = (plans.pp > 1) & (mine.pp > 1)
    count += both_pp & (plans.vpp != mine.vpp)
    follows = (plans.etp == plans.tp) & (mine.etp == mine.tp)
    count += ~follows & (plans.etp != mine.etp)
    special = (plans.schedule > 1) | (mine.schedule > 1)
    return np.asarray(count + (special & (plans.schedule != mine.schedule)))


def neighbours(job: Job, plan: Plan, most: int = MOST) -> tuple[Plans, IntArray]:
    """Every plan of a job that keeps the rules within so many settings of one, and how many each changes.

    Those on the same stages keep where the layers lie.
    """
    parts, counts = [], []
    for plans in _spaces(job, plan):
        far = distances(plan, plans)
        near = np.flatnonzero((far > 0) & (far <= most))
        if len(near):
            parts.append(plans.take(near))
            counts.append(far[near])
    if not parts:
        return Plans.of([]), np.zeros(0, dtype=np.int64)
    joined = Plans.joined(parts)
    return _placed(plan, joined), np.concatenate(counts)


def _spaces(job: Job, plan: Plan) -> Iterator[Plans]:
    """The lattice with the plan's own dispatcher, which may be beaten by another one, and then with the others."""
    own = job.with_limits(choices={**job.limits.choices, "dispatcher": (plan.dispatcher,)})
    if job.model.experts is None or "dispatcher" in job.limits.fixed:
        own = job
    yield from lattice(own, structural(own))
    if own is job:
        return
    for plans in lattice(job, structural(job)):
        yield plans.take(np.flatnonzero((plans.ep > 1) & (plans.dispatcher != DISPATCHERS.index(plan.dispatcher))))


def _placed(plan: Plan, plans: Plans) -> Plans:
    """The plans, those on the stages of one with its layers, and what is recomputed of them if that is the same."""
    if not plan.placement:
        return plans
    mine = Plans.of([plan])
    same: BoolArray = (plans.pp == mine.pp) & (plans.vpp == mine.vpp)
    alike: BoolArray = plans.recompute == mine.recompute
    none = plan.placement.__class__()
    lying = [
        plan.placement if here and like else plan.placement.__class__(layers=plan.layers_per_stage) if here else none
        for here, like in zip(same.tolist(), alike.tolist(), strict=True)
    ]
    return plans.placed(lying)
