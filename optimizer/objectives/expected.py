"""What is expected of a plan: its value, with what its moving parts and its chance to run out of memory cost, and how
much longer runs of like plans took than was priced.

expected value = value x (1 + parts) x order x (1 + assigned layers) x (1 + optimizer on the host)
    x (1 + chance x failed start)

Every factor but the order is 1 or more, and parts and order are known of a plan before its layers lie anywhere, so that
a bound of the value times both is one of its expectation. Chances count at the next of CHANCES: a plan's class of
memory is a limit, for which search and proof are those of the value itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from optimizer.base.content import content
from optimizer.job.fields import EXPECTED
from optimizer.job.job import Job
from optimizer.job.plan import IntArray, Placement, Plans, virtual_stages
from optimizer.job.recomputation import MODES
from optimizer.job.variables import SCHEDULES
from optimizer.objectives.arrays import BoolArray, FloatArray
from optimizer.objectives.belief.order import order_factor
from optimizer.objectives.step.safe_memory import USUAL_RISK, chance_to_fit, margin, risk_of

TABLE: Mapping[str, Any] = content("optimizer.objectives", "moving_parts.toml")
PARTS: Mapping[str, Mapping[str, Any]] = TABLE["parts"]
CHANCES: tuple[float, ...] = tuple(TABLE["memory"]["chances"])
ROUNDING = 1e-8  # of memory: what fits a class to the last bits is of it
ASSIGNED: float = TABLE["layout"]["assigned"]["cost"]
ON_HOST: float = TABLE["layout"]["optimizer_on_host"]["cost"]
_DUALPIPE = SCHEDULES.index("dualpipe")
_ZERO_BUBBLE = np.array([name in ("zero-bubble", "zero-bubble-2p") for name in SCHEDULES])


@dataclass(frozen=True, kw_only=True)
class RiskClass:
    """Plans that run out of memory at no more than a chance."""

    risk: float  # the largest chance that a plan of it may have, as Limits.oom_risk [1]
    factor: float  # of the value of its plans [1]


def parts_factor(job: Job, plans: Plans) -> FloatArray:
    """1 + what the moving parts of each plan cost that its lattice point shows [1].

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.job.plan import Plan
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=64, seq_len=2048, global_batch=64)
    >>> parts_factor(job, Plans.of([Plan(tp=8, pp=8), Plan(tp=8, pp=7), Plan(tp=8, dp=8, zero_stage=3)])).tolist()
    [1.0, 1.005, 1.01]
    """
    cost = np.zeros(len(plans))
    for name, part in PARTS.items():
        cost = cost + part["cost"] * HAS_PART[name](job, plans)
    return 1.0 + cost


def plan_factor(job: Job, plans: Plans) -> FloatArray:
    """What the moving parts of each plan cost, times how much longer runs of like plans took than is priced [1]."""
    return parts_factor(job, plans) * order_factor(job, plans)


def layout_factor(job: Job, plans: Plans, offload: FloatArray | float) -> FloatArray:
    """The factor of layers that are assigned by a list, and of an optimizer that is in part on the host [1]."""
    return (1.0 + ASSIGNED * assigned(job, plans)) * (1.0 + ON_HOST * (np.asarray(offload) > 0))


def memory_factor(job: Job, reserved: FloatArray) -> FloatArray:
    """The factor of the chance to run out of memory of plans predicted to reserve so much [B].

    1 + p (slower + t / T) + unsure, p: the chance, at the next of CHANCES or 1 [1]; t: of a failed start
    (--try-cost), T: of the run [s]; unsure: what a chance beyond USUAL_RISK costs [1].
    """
    limits = np.array([job.usable_memory * margin(job, risk) for risk in CHANCES]) * (1.0 + ROUNDING)
    factors = np.array([1.0 + _cost(job, chance) for chance in (*CHANCES, 1.0)])
    return np.asarray(factors[np.searchsorted(limits, reserved, side="left")])


def _cost(job: Job, chance: float) -> float:
    """What a chance to run out of memory costs, over the value of the plan [1]."""
    return chance * failed_start(job) + float(TABLE["memory"]["unsure"]) * (chance > USUAL_RISK)


def failed_start(job: Job) -> float:
    """What running out of memory costs, over the value of the plan [1]."""
    return float(TABLE["memory"]["slower"]) + job.try_cost / float(TABLE["memory"]["run"])


def risk_to_accept(job: Job, reserved: float) -> int:
    """The --oom-risk that a user has to name before a plan reserving so much [B] is launched [%]; 0 if none.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=64, seq_len=2048, global_batch=64)
    >>> risk_to_accept(job, 40e9), risk_to_accept(job, job.usable_memory) > 10
    (0, True)
    >>> risk_to_accept(job.with_limits(oom_risk=0.5), job.usable_memory)
    0
    """
    risk = 1.0 - chance_to_fit(job, reserved)
    return ceil(100 * risk) if job.limits.oom_risk is None and risk > USUAL_RISK + ROUNDING else 0


def risk_classes(job: Job) -> tuple[RiskClass, ...]:
    """The classes of chances up to what the job allows, the largest first; one where chances do not count.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=64, seq_len=2048, global_batch=64, prefer="expected")
    >>> [(each.risk, round(each.factor, 5)) for each in risk_classes(job.with_limits(oom_risk=0.03))]
    [(0.03, 1.00503), (0.02, 1.00201), (0.01, 1.00101)]
    """
    most = risk_of(job)
    if job.prefer != EXPECTED:
        return (RiskClass(risk=most, factor=1.0),)
    below = [level for level in CHANCES if level < most]
    next_ = next((level for level in CHANCES if level >= most), 1.0)
    pairs = [(most, next_), *((level, level) for level in reversed(below))]
    return tuple(RiskClass(risk=risk, factor=1.0 + _cost(job, level)) for risk, level in pairs)


def assigned(job: Job, plans: Plans) -> BoolArray:
    """Plans whose layers lie, or are recomputed, otherwise than evenly on all stages."""
    if plans.placements is None:
        return np.zeros(len(plans), dtype=np.bool_)
    rows = list(zip(plans.pp.tolist(), plans.vpp.tolist(), plans.placements, strict=True))
    known = {row: _by_list(job.model.layers, *row) for row in set(rows)}
    return np.array([known[row] for row in rows], dtype=np.bool_)


def _by_list(layers: int, pp: int, vpp: int, placed: Placement) -> bool:
    even = virtual_stages((), layers, pp, vpp)
    stages = tuple(sum(even[stage::pp]) for stage in range(pp))
    some = placed.first > 0 or placed.mtp_ahead > 0 or placed.recomputed not in ((), stages)
    return some or virtual_stages(placed.layers, layers, pp, vpp) != even


def _odd(*degrees: IntArray) -> BoolArray:
    """Plans with a degree that is no power of two."""
    return np.asarray(np.logical_or.reduce([(degree & (degree - 1)) != 0 for degree in degrees]))


HAS_PART: Mapping[str, Callable[[Job, Plans], BoolArray]] = {
    "zero_3_beside_pipelines": lambda job, plans: (plans.zero_stage == 3) & (job.stack.features.default_zero < 3),
    "replicated_shards": lambda job, plans: plans.shard > 0,
    "dualpipe": lambda job, plans: plans.schedule == _DUALPIPE,
    "zero_bubble": lambda job, plans: _ZERO_BUBBLE[plans.schedule],
    "remainder": lambda job, plans: job.model.layers % (plans.pp * plans.vpp) != 0,
    "odd_degree": lambda job, plans: _odd(plans.tp, plans.cp, plans.ep, plans.etp),
    "modules_recomputed": lambda job, plans: plans.recompute >= len(MODES),
    "overlapped_exchange": lambda job, plans: plans.overlap_exchange,
    "activations_on_host": lambda job, plans: plans.activation_offload > 0,
}
