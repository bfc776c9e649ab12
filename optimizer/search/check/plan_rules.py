"""Whether a plan keeps every rule of its job, each by its own `check`, and where its layers lie."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from optimizer.base.units import GB
from optimizer.constraints.given_layout import rule_of
from optimizer.constraints.rules.every import structural
from optimizer.constraints.rules.memory import Memory
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Placement, Plan, Plans, virtual_stages
from optimizer.job.stack import BY_STAGE, BY_VIRTUAL_STAGE, SETTABLE
from optimizer.objectives.arrays import raised
from optimizer.objectives.layer.cost import offloads_activations
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.layer.sharded import hosts_weights
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.host_memory import host_memory_per_gpu, on_host, uses_host
from optimizer.search.plan.alternatives import estimate_of_plan


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing checked: a rule, a value or a part of the certificate; `reason` says it with numbers."""

    name: str
    holds: bool
    reason: str


def possible(job: Job, plan: Plan) -> Plan:
    """The plan with the layers on its stages as written if they can lie so, else evenly split.

    Virtual stages are no more than layers: a plan with more breaks a rule, and to price each would take minutes.
    """
    plan = _lying(job, plan)
    return replace(plan, vpp=min(plan.vpp, max(1, job.model.layers // plan.pp)))


def _lying(job: Job, plan: Plan) -> Plan:
    return plan if all(finding.holds for finding in placement_findings(job, plan)) else plan.lying(Placement())


def priced(job: Job, plan: Plan, knobs: Knobs) -> Estimate:
    """What the plan costs, its layers where they can lie."""
    plan = possible(job, plan)
    # A plan that breaks rules may be of any size: what overflows is a claim that does not hold.
    with np.errstate(over="ignore", invalid="ignore"):
        return estimate_of_plan(job, plan, knobs)


def rule_findings(job: Job, plan: Plan, knobs: Knobs = Knobs()) -> tuple[Finding, ...]:
    """Every rule of the job by its own `check`, memory at these knobs, and the layers on the stages."""
    placement = placement_findings(job, plan)
    stated, plans = (Plans.of([shown(job, plan)]) for shown in (_lying, possible))
    rules = (*((rule, stated) for rule in structural(job)), (Memory(knobs=knobs), plans))
    with np.errstate(over="ignore", invalid="ignore"):
        findings = [
            Finding(name=rule.name, holds=bool(np.all(rule.check(job, about))), reason=rule.explain(job))
            for rule, about in rules
        ]
    return (*findings, *_set(job, knobs), *_on_host(job, plans, knobs), *placement)


def _set(job: Job, knobs: Knobs) -> tuple[Finding, ...]:
    """Whether the knobs that the software cannot set are at their defaults; nothing where it can set all of them."""
    beyond = {name: vars(Knobs())[name] for name in SETTABLE if name not in job.stack.features.settable}
    if not beyond:
        return ()
    reason = (
        f"{job.stack.name} cannot set {', '.join(f'{name} (its default: {own:g})' for name, own in beyond.items())}"
    )
    return (Finding(name="knobs", holds=all(vars(knobs)[name] == own for name, own in beyond.items()), reason=reason),)


def _on_host(job: Job, plans: Plans, knobs: Knobs) -> tuple[Finding, ...]:
    """Whether the host holds what is said to lie there; nothing where nothing does or its memory is not known."""
    if not job.cluster.host_memory or not (knobs.offload or uses_host(job, plans).any()):
        return ()
    host_bytes = float(on_host(layer_costs_of(job, plans), knobs)[0])
    there = {
        "activations": offloads_activations(job, plans).any(),
        "optimizer state": knobs.offload,
        "weights": hosts_weights(job, plans).any(),
    }
    what = [name for name, some in there.items() if some]
    most = host_memory_per_gpu(job)
    reason = f"{host_bytes / GB:.1f} GB of {' and '.join(what)} are kept in {most / GB:.0f} GB of host memory per GPU"
    return (Finding(name="host-memory", holds=host_bytes <= raised(most), reason=reason),)


def placement_findings(job: Job, plan: Plan) -> tuple[Finding, ...]:
    """Whether the layers that a plan places are the model's, and those it recomputes or predicts with are there."""
    findings = [_layers(job, plan)]
    if plan.recompute_layers or plan.recompute_first:
        findings.append(_recomputed(job, plan))
    if plan.mtp_ahead:
        findings.append(_predicting(job, plan, findings[0].holds))
    return tuple(findings)


def _layers(job: Job, plan: Plan) -> Finding:
    given, layers = plan.layers_per_stage, job.model.layers
    if not given:
        return Finding(name="layers per stage", holds=True, reason="even")
    whole = len(given) in (plan.pp, plan.pp * plan.vpp) and sum(given) == layers and min(given) >= 0
    even = job.stack.features.uneven_stages or len(set(given)) == 1
    reason = f"{plan.pp} stages must hold {layers} layers; {len(given)} are given with {sum(given)}"
    if whole and not even:
        reason = f"{job.stack.name} cuts the layers into equal stages only"
    return Finding(name="layers per stage", holds=whole and even, reason=reason)


def _predicting(job: Job, plan: Plan, placed: bool) -> Finding:
    most = max(0, plan.pp - 2)
    holds = placed and bool(job.model.mtp_layers) and plan.mtp_ahead <= most
    if holds:
        counts = virtual_stages(plan.layers_per_stage, job.model.layers, plan.pp, plan.vpp)
        holds = not any(counts[len(counts) - plan.mtp_ahead :])
    reason = f"prediction layers must follow all others, at most {most} stages before the head"
    return Finding(name="prediction layers", holds=holds, reason=f"{reason}; {plan.mtp_ahead} are given")


def _recomputed(job: Job, plan: Plan) -> Finding:
    recomputed, by = plan.recompute_layers, job.stack.features.recompute_by
    stage_layers = [0] * plan.pp
    if recomputed and plan.recompute_first:
        reason = "layers are recomputed by stage or by virtual stage, not by both"
        return Finding(name="recomputed layers", holds=False, reason=reason)
    if by not in ((BY_STAGE,) if recomputed else (BY_STAGE, BY_VIRTUAL_STAGE)):
        reason = f"other layers are given{rule_of(job)}"
        return Finding(name="recomputed layers", holds=False, reason=reason)
    if plan.recompute_first:
        whole, what = plan.recompute == "full", f"the first {plan.recompute_first} layers of every virtual stage"
        reason = f"{what} are recomputed under full recomputation; {plan.recompute} is given"
        return Finding(name="recomputed layers", holds=whole, reason=reason)
    if _layers(job, plan).holds:
        counts = virtual_stages(plan.layers_per_stage, job.model.layers, plan.pp, plan.vpp)
        stage_layers = [sum(counts[stage :: plan.pp]) for stage in range(plan.pp)]
    holds = (
        plan.recompute == "full"
        and len(recomputed) == plan.pp
        and all(0 <= count <= most for count, most in zip(recomputed, stage_layers, strict=True))
    )
    reason = f"{plan.pp} stages of up to {max(stage_layers)} layers may recompute theirs under full recomputation"
    given = f"{len(recomputed)} counts of up to {max(recomputed)} layers are given under {plan.recompute} recomputation"
    return Finding(name="recomputed layers", holds=holds, reason=f"{reason}; {given}")
