"""What a plan needs to work beyond data parallelism, in words."""

from __future__ import annotations

from optimizer.job.plan import Knobs, Plan
from optimizer.job.recomputation import RECOMPUTE

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
