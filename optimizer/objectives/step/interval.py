"""How sure an estimate is: intervals from held-out residuals, wider outside of what the stack was fitted to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, log

from optimizer.catalog.stacks import pooled_intervals
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.job.stack import Stack
from optimizer.objectives.step.flops import CAUSAL, useful_flops

LEVEL = 0.9
INTERPOLATED, EXTRAPOLATED = "interpolated", "extrapolated"
EXPERTS = "_experts"  # in the names of widths: those of MoE models
RECOMPUTED = "_recomputed"  # in the names of widths of memory: those of plans that recompute
STARVED = "_starved"  # in the names of widths: those of steps that the host or the network bounds
STARVED_MFU = 0.10
EASY_MFU, HARDEST_MFU = 0.40, 0.01
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
    def known(self) -> bool:
        """Whether its ends are at most a factor of VAGUE apart.

        >>> Interval(low=1.0, high=3.9).known, Interval(low=1.61e-3, high=17.1).known
        (True, False)
        """
        return self.high <= VAGUE * self.low


def interval(job: Job, plan: Plan, value: float, quantity: str = "time") -> Interval:
    """The 90 % interval of a predicted step time [s], or of memory [B].

    [value e^-w, value e^w], w being the stack's half-width of this quantity, measured by split conformal prediction on
    runs left out of the fit and, for times, scaled by the difficulty of the step; a stack without measured runs has
    the half-widths pooled over the others, and on a device that none of its runs had, or of an MoE model where none was
    one, it is no surer than these. Steps below STARVED_MFU have widths of their own, and of the others MoE models,
    where enough of them were measured; memory, of MoE models and else of plans that recompute.

    Source: Lei et al., Distribution-free predictive inference for regression, JASA 113 (2018), sections 2.2 and 5.2;
    Vovk et al., Algorithmic Learning in a Random World (2005), section 4.5, for widths by category.

    >>> from optimizer.catalog import load_cluster, load_model
    >>> from optimizer.job.stack import Stack
    >>> fitted = Stack(name="mine", devices=("h100",), intervals={"time_interpolated": 0.05, "time_extrapolated": 0.2})
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=fitted, gpus=64, seq_len=2048,
    ...     global_batch=64)
    >>> found = interval(job, Plan(tp=8, pp=8), 10.0)
    >>> round(found.low, 2), round(found.high, 2), found.kind
    (9.51, 10.51, 'interpolated')
    """
    reasons = outside(job)
    reasons += ("at most one fitted run keeps activations on the host",) * (plan.activation_offload > 0)
    reasons += _routed(job)
    kind = EXTRAPOLATED if reasons else INTERPOLATED
    own = job.stack.intervals
    source = own if f"{quantity}_{kind}" in own else pooled_intervals()
    share = mfu(job, value) if quantity == "time" else 1.0
    kinds = [EXPERTS] * (job.model.experts is not None) + [""]
    if quantity == "memory":
        kinds = kinds[:-1] + [RECOMPUTED] * recomputes_something(job.stack, plan) + [""]
    elif share < STARVED_MFU:
        kinds = [STARVED, *kinds]
    names = (f"{quantity}{category}_{kind}" for category in kinds)
    width = source[next(name for name in names if name in source)]
    if quantity == "time":
        width *= difficulty(share, source.get("time_slope", 0.0))
        # How uneven a router is was measured on two jobs, of an untrained one assumed.
        if _routed(job) or _of_no_kind(job):
            width = max(width, pooled_intervals()["time_extrapolated"])
    return Interval(low=value * exp(-width), high=value * exp(width), reasons=reasons)


def recomputes_something(stack: Stack, plan: Plan) -> bool:
    """Whether a plan keeps less for the backward pass: flash attention keeps no scores that a core could recompute.

    >>> from optimizer.job.stack import Stack
    >>> [recomputes_something(Stack(name="mine"), Plan(recompute=mode)) for mode in ("none", "selective", "full")]
    [False, False, True]
    """
    features = stack.features
    nothing = features.selective == "core" and features.attention.startswith("flash")
    return plan.recompute not in (("none", "selective", "core_attn") if nothing else ("none",))


def memory_width(job: Job) -> float:
    """Half-width of the interval of the logarithm of what a plan that keeps all it can of a job reserves [1].

    One number for all plans of the job, as their margin must be; `interval` is wider for plans that recompute.
    """
    return log(interval(job, Plan(), 1.0, "memory").high)


def _routed(job: Job) -> tuple[str, ...]:
    """Why routing makes a job another one than the fitted runs."""
    if job.model.experts and job.stack.features.routing in ("trained", "fresh"):
        return (f"the stack's runs have balanced routing, not a {job.stack.features.routing} router",)
    return ()


def _of_no_kind(job: Job) -> bool:
    """Whether none of the stack's runs was on this device, or none of an MoE model as this job is."""
    stack = job.stack
    if not stack.devices:
        return False
    moe_runs = stack.ranges.get("experts", (0.0, 1.0))[1] > 0
    return job.cluster.device.name not in stack.devices or (job.model.experts is not None and not moe_runs)


def difficulty(utilisation: float, slope: float) -> float:
    """How much less certain a step is that the host or the network bounds: max(1, 40 % / MFU)^slope [1].

    Source: launch delays, collectives and stragglers vary between runs, matrix products hardly; slope is fitted.

    >>> difficulty(0.5, 1.0), difficulty(0.1, 1.0), difficulty(0.1, 0.5)
    (1.0, 4.0, 2.0)
    """
    return float(max(1.0, EASY_MFU / max(utilisation, HARDEST_MFU)) ** slope)


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
