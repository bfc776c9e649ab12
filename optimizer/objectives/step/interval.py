"""How sure an estimate is: intervals by what is believed of its error, and what lies outside of the fitted runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, sqrt
from statistics import NormalDist

from optimizer.job.job import Job
from optimizer.job.known import TIME, YOURS
from optimizer.job.plan import Plan
from optimizer.objectives.belief.belief import error_of
from optimizer.objectives.step.flops import CAUSAL, useful_flops

LEVEL = 0.9
SIDES = NormalDist().inv_cdf((1.0 + LEVEL) / 2.0)  # standard deviations on either side that hold this share
INTERPOLATED, EXTRAPOLATED = "interpolated", "extrapolated"
VAGUE = 4.0  # ratio of the ends of an interval beyond which digits of its middle would mean nothing

# What "inside the fitted runs" means besides the device; names of Stack.ranges.
COORDINATES: Mapping[str, Callable[[Job], float]] = {
    "hidden": lambda job: float(job.model.hidden),
    "seq_len": lambda job: float(job.seq_len),
    "gpus": lambda job: float(job.gpus),
    "experts": lambda job: float(job.model.experts.count) if job.model.experts else 0.0,
    "fp8": lambda job: float(job.quantised),
}


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Where the truth lies with probability LEVEL. `reasons` say what is extrapolated; none when interpolated."""

    low: float
    high: float
    reasons: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Whether the runs behind the stack surround the job, or it lies outside of them."""
        return EXTRAPOLATED if self.reasons else INTERPOLATED

    @property
    def middle(self) -> float:
        """What is believed: as likely too low as too high."""
        return sqrt(self.low * self.high)

    @property
    def known(self) -> bool:
        """Whether its ends are at most a factor of VAGUE apart.

        >>> Interval(low=1.0, high=3.9).known, Interval(low=1.61e-3, high=17.1).known
        (True, False)
        """
        return self.high <= VAGUE * self.low


def interval(job: Job, plan: Plan, value: float, quantity: str = TIME, site: str = YOURS) -> Interval:
    """The 90 % interval of a predicted step time [s], or of memory [B].

    [value e^(m - w), value e^(m + w)], with the mean m of what is believed of the prediction's error and SIDES of its
    standard deviations, w; m is 0 unless the stack holds runs of the user's own (optimizer.objectives.belief).

    Args:
        job: What is trained, on what.
        plan: How.
        value: As predicted.
        quantity: What it is, of optimizer.job.known.QUANTITIES.
        site: Whose machines the job runs on.

    >>> from dataclasses import replace
    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.job.stack import Stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=64, seq_len=2048, global_batch=64)
    >>> known, unknown = (interval(replace(job, stack=stack), Plan(tp=8, pp=8), 10.0).high for stack in (job.stack,
    ...     Stack(name="mine")))
    >>> 10.0 < known < unknown
    True
    """
    return around(job, plan, value, error_of(job, plan, mfu(job, value) if quantity == TIME else 1.0, quantity, site))


def around(job: Job, plan: Plan, value: float, error: tuple[float, float]) -> Interval:
    """The same by the mean and the standard deviation of the prediction's error, as error_of has them [1]."""
    mean, spread = error
    reasons = outside(job) + _routed(job)
    reasons += ("at most one fitted run keeps activations on the host",) * (plan.activation_offload > 0)
    return Interval(low=value * exp(mean - SIDES * spread), high=value * exp(mean + SIDES * spread), reasons=reasons)


def _routed(job: Job) -> tuple[str, ...]:
    """Why routing makes a job another one than the fitted runs."""
    if job.model.experts and job.stack.features.routing in ("trained", "fresh"):
        return (f"the stack's runs have balanced routing, not a {job.stack.features.routing} router",)
    return ()


def outside(job: Job) -> tuple[str, ...]:
    """Why the job lies outside of the runs that its stack was fitted to; empty when it does not.

    >>> from optimizer.catalog import load_cluster, load_model
    >>> from optimizer.job.stack import Stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=Stack(name="mine", runs=9,
    ...     devices=("a100-80",), ranges={"gpus": (8, 32)}), gpus=64, seq_len=2048, global_batch=64)
    >>> outside(job)
    ('device h100 is not among the fitted a100-80', 'gpus 64 is outside of the fitted 8 to 32')
    """
    stack = job.stack
    if not stack.devices:
        return (f"stack {stack.name} is not fitted to measured runs",)
    reasons = []
    if job.cluster.device.name not in stack.devices:
        reasons.append(f"device {job.cluster.device.name} is not among the fitted {', '.join(stack.devices)}")
    for name, (low, high) in stack.ranges.items():
        value = COORDINATES[name](job) if name in COORDINATES else low
        if low == high == 0.0 and value:
            reasons.append(f"no run with {name} is among the fitted")
        elif not low <= value <= high:
            reasons.append(f"{name} {_count(value)} is outside of the fitted {_count(low)} to {_count(high)}")
    return tuple(reasons)


def _count(value: float) -> str:
    """A coordinate of a run for people.

    >>> _count(131072.0), _count(0.25)
    ('131,072', '0.25')
    """
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def mfu(job: Job, step_time: float, convention: str = CAUSAL) -> float:
    """Model FLOPs of the step over what the GPUs could do in this time [1]."""
    useful = useful_flops(job, convention)
    return useful / (step_time * job.gpus * job.peak_flops)
