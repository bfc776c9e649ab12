"""The plan with the fewest moving parts among those as good as the best, as far as a measurement could tell."""

from __future__ import annotations

import numpy as np

from optimizer.answer.answer import Alternative
from optimizer.constraints.given_layout import with_assigned_layers
from optimizer.job.job import EVEN, LAYOUT, Job
from optimizer.job.plan import Knobs, Plan
from optimizer.job.recomputation import RECOMPUTE
from optimizer.job.variables import VARIABLES
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.lattice.knobs import knobs_at
from optimizer.search.lattice.oracle import Points
from optimizer.search.layouts.best_even import LEADING
from optimizer.search.plan.alternatives import estimate_of, valued

NOISE = 0.01  # of a step time, or of what grows with it: what trials of some twenty steps tell apart [1]
PLAIN = ("1f1b", "interleaved")  # schedules that every launcher has; vpp tells the second


def moving_parts(plan: Plan, knobs: Knobs) -> tuple[str, ...]:
    """What a plan needs beyond data parallelism, the shards of ZeRO-1 and layers in even parts.

    >>> moving_parts(Plan(tp=8, pp=4, vpp=2, dp=4, layers_per_stage=(7, 8, 8, 7)), Knobs(offload=0.5))
    ('tensor parallelism', 'pipeline', 'virtual stages', 'uneven stages', 'optimizer on the host')
    """
    parts = {
        "tensor parallelism": plan.tp > 1,
        "context parallelism": plan.cp > 1,
        "expert parallelism": plan.ep > 1,
        "tensor parallelism of experts": plan.etp > 1,
        "pipeline": plan.pp > 1,
        "virtual stages": plan.vpp > 1,
        f"{plan.schedule} schedule": plan.schedule not in PLAIN,
        f"ZeRO-{plan.zero_stage}": plan.zero_stage > 1,
        "shards of some replicas": plan.shard > 0,
        "recomputation": plan.recompute != RECOMPUTE[0],
        "overlap of the exchange": plan.overlap_exchange,
        "uneven stages": len(set(plan.layers_per_stage)) > 1,
        "stages that recompute unlike": len(set(plan.recompute_layers)) > 1,
        "prediction layers before the head": plan.mtp_ahead > 0,
        "activations on the host": plan.activation_offload > 0,
        "optimizer on the host": knobs.offload > 0,
    }
    return tuple(name for name, moves in parts.items() if moves)


def simpler_than(job: Job, points: Points, best: Plan, knobs: Knobs, value: float) -> Alternative | None:
    """Of the even splits of a sweep within NOISE of the best plan's `value` [unit of the objective], the one with the
    fewest moving parts and of these the one with the most memory to spare; None where the best has no more parts.
    """
    own = len(moving_parts(best, knobs))
    close = np.flatnonzero(points.fits & (points.values <= value * (1 + NOISE)))
    close = close[np.argsort(points.values[close], kind="stable")]
    plans = [with_assigned_layers(job, points.plans.plan(position)) for position in close.tolist()]
    settings = [knobs_at(points.knobs, position) for position in close.tolist()]
    parts = np.array([len(moving_parts(*pair)) for pair in zip(plans, settings, strict=True)], dtype=np.int64)
    few = [position for position in np.argsort(parts, kind="stable").tolist() if parts[position] < own][:LEADING]
    if not few:
        return None
    costs, values = valued(job, [plans[position] for position in few], [settings[position] for position in few])
    fits = (costs.reserved <= safe_memory(job)) & (values <= value * (1 + NOISE))
    order = sorted(np.flatnonzero(fits).tolist(), key=lambda row: (parts[few[row]], costs.reserved[row]))
    if not order:
        return None
    row = order[0]
    return Alternative(
        plan=plans[few[row]],
        knobs=settings[few[row]],
        estimate=estimate_of(job, costs, row),
        slower=max(0.0, float(values[row]) / value - 1),
    )


def with_plan_pinned(job: Job, plan: Plan) -> Job:
    """The job whose only plan is this even split, whatever its knobs."""
    pinned = {name: getattr(plan, name) for name in VARIABLES}
    layout = {} if job.layout_given else {LAYOUT: EVEN}
    return job.with_limits(fixed={**job.limits.fixed, **pinned, **layout})
