"""A plan checked without a solver: every rule in plain Python, the price, the claims, the bound by exhaustion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from optimizer.answer import estimate_dict, job_dict, plan_dict
from optimizer.constraints.memory import Memory
from optimizer.constraints.rules import structural
from optimizer.job import Job
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.price import price
from optimizer.plan import Knobs, Plan, Plans, virtual_stages
from optimizer.readers.answer_file import SavedAnswer
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.lattice.oracle import Sweep, sweep
from optimizer.search.layouts.band import undecided
from optimizer.search.plan.alternatives import estimate_of
from optimizer.units import GB

TOLERANCE = 1e-6  # relative: what a claim may be off by
WORST_TERMS = 3  # terms named when a breakdown does not agree


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing checked: a rule, a claim or a part of the certificate; `reason` says it with numbers."""

    name: str
    holds: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was found about one plan, its price in this version, and what could not be checked."""

    job: Job
    plan: Plan
    estimate: Estimate
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...] = ()

    @property
    def broken(self) -> tuple[Finding, ...]:
        """What does not hold."""
        return tuple(finding for finding in self.findings if not finding.holds)

    def to_dict(self) -> dict[str, Any]:
        """The verification as plain values."""
        return {
            "holds": not self.broken,
            "broken": [finding.name for finding in self.broken],
            "job": job_dict(self.job),
            "plan": plan_dict(self.plan),
            "estimate": estimate_dict(self.estimate),
            "findings": [asdict(finding) for finding in self.findings],
            "unchecked": list(self.unchecked),
        }


def verify(saved: SavedAnswer) -> Verification:
    """Every rule, claim and checkable part of the certificate of an answer that was saved.

    Raises InputError for a pin on an unknown variable.
    """
    job, plan = saved.job, saved.plan
    estimate = priced(job, plan, saved.knobs)
    findings = [*rule_findings(job, plan, saved.knobs), *claim_findings(saved, estimate)]
    unchecked: tuple[str, ...] = ()
    if saved.certificate:
        swept = sweep(job, structural(job), saved.knobs)
        findings += certificate_findings(saved, swept)
        unchecked = (
            "the run of CP-SAT behind the certificate was not repeated: its bound was compared with every plan of the "
            f"lattice, listed and priced again by numpy; {_left_to_solver(saved)}",
        )
    return Verification(job=job, plan=plan, estimate=estimate, findings=tuple(findings), unchecked=unchecked)


def _left_to_solver(saved: SavedAnswer) -> str:
    """How many plans numpy's bounds over all layouts do not decide."""
    if saved.job.layout_given:
        return "each has the one layout that was asked for"
    best = saved.certificate.get("best_s")
    limit = float(best) if isinstance(best, int | float) else np.inf
    count = undecided(saved.job, lattice(saved.job, structural(saved.job)), saved.knobs, limit)
    if not count:
        return "bounds over every layout rule out any faster one"
    return f"bounds over every layout rule out faster ones of all but {count:,}, which only CP-SAT has compared"


def priced(job: Job, plan: Plan, knobs: Knobs) -> Estimate:
    """What the plan costs, with the layers on its stages as written if they can lie so, else evenly split."""
    if not all(finding.holds for finding in placement_findings(job, plan)):
        plan = replace(plan, layers_per_stage=(), recompute_layers=(), mtp_ahead=0)
    # A plan that breaks rules may be of any size: what overflows is a claim that does not hold.
    with np.errstate(over="ignore", invalid="ignore"):
        return estimate_of(job, price(job, Plans.of([plan]), knobs), 0)


def rule_findings(job: Job, plan: Plan, knobs: Knobs = Knobs()) -> tuple[Finding, ...]:
    """Every rule of the job by its own `check`, memory at these knobs, and the layers on the stages."""
    placement = placement_findings(job, plan)
    if not all(finding.holds for finding in placement):
        plan = replace(plan, layers_per_stage=(), recompute_layers=(), mtp_ahead=0)
    plans = Plans.of([plan])
    rules = (*structural(job), Memory(price=partial(price, knobs=knobs)))
    with np.errstate(over="ignore", invalid="ignore"):
        found = [
            Finding(name=rule.name, holds=bool(np.all(rule.check(job, plans))), reason=rule.explain(job))
            for rule in rules
        ]
    return (*found, *placement)


def claim_findings(saved: SavedAnswer, estimate: Estimate) -> tuple[Finding, ...]:
    """Claimed times and bytes against those of this version, and whether the claimed terms add up."""
    found = []
    if saved.step_time is not None:
        found.append(_claim("claim step time", saved.step_time, estimate.step_time, "s"))
        found += list(_terms("claim time", saved.time, estimate.time, saved.step_time, "s"))
    if saved.reserved is not None:
        found.append(_claim("claim memory", saved.reserved, estimate.reserved, "B"))
        found += list(_terms("claim memory", saved.memory, estimate.memory, saved.reserved, "B"))
    if saved.mfu is not None:
        found.append(_claim("claim MFU", saved.mfu, estimate.mfu, ""))
    return tuple(found)


def certificate_findings(saved: SavedAnswer, swept: Sweep) -> tuple[Finding, ...]:
    """The certificate's figures against each other and against a full sweep of the lattice."""
    number = {key: value for key, value in saved.certificate.items() if _is_number(value)}
    lower, best, gap = (float(number.get(key, np.nan)) for key in ("lower_bound_s", "best_s", "gap"))
    fastest = float(swept.points.seconds[swept.best]) if swept.points is not None and swept.best >= 0 else np.inf
    proven = saved.certificate.get("proven") is True
    consistent = lower <= best * (1 + TOLERANCE) and abs(gap - (1 - lower / best)) <= TOLERANCE
    found = [
        Finding(
            name="certificate figures",
            holds=bool(consistent and (not proven or gap <= TOLERANCE)),
            reason=f"gap {gap:.4g} must be 1 - {lower:.6g} s / {best:.6g} s" + (" and 0 when proven" if proven else ""),
        ),
        Finding(
            name="certificate bound",
            holds=bool(lower <= fastest * (1 + TOLERANCE)),
            reason=f"no plan that fits may be faster than {lower:.6g} s; the fastest of {swept.space:,} takes "
            f"{fastest:.6g} s",
        ),
    ]
    if proven:
        found.append(
            Finding(
                name="certificate optimum",
                holds=bool(best <= fastest * (1 + TOLERANCE)),
                reason=f"the best of {best:.6g} s is proven, so that none of {swept.space:,} plans may be faster; "
                f"the fastest takes {fastest:.6g} s",
            )
        )
    if "space" in number and swept.complete and proven:
        space = int(number["space"])
        found.append(
            Finding(
                name="certificate space",
                holds=space == swept.space,
                reason=f"{space:,} plans were claimed; this version finds {swept.space:,}",
            )
        )
    return tuple(found)


def placement_findings(job: Job, plan: Plan) -> tuple[Finding, ...]:
    """Whether the layers that a plan places are the model's, and those that it rebuilds or predicts with are there."""
    found = [_layers(job, plan)]
    if plan.recompute_layers:
        found.append(_rebuilt(job, plan))
    if plan.mtp_ahead:
        found.append(_predicting(job, plan, found[0].holds))
    return tuple(found)


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
        chunks = virtual_stages(plan.layers_per_stage, job.model.layers, plan.pp, plan.vpp)
        holds = not any(chunks[len(chunks) - plan.mtp_ahead :])
    reason = f"prediction layers must follow all others, at most {most} stages before the head"
    return Finding(name="prediction layers", holds=holds, reason=f"{reason}; {plan.mtp_ahead} are given")


def _rebuilt(job: Job, plan: Plan) -> Finding:
    rebuilt = plan.recompute_layers
    held = [0] * plan.pp
    if _layers(job, plan).holds:
        chunks = virtual_stages(plan.layers_per_stage, job.model.layers, plan.pp, plan.vpp)
        held = [sum(chunks[stage :: plan.pp]) for stage in range(plan.pp)]
    holds = (
        plan.recompute == "full"
        and len(rebuilt) == plan.pp
        and all(0 <= count <= most for count, most in zip(rebuilt, held, strict=True))
    )
    reason = f"{plan.pp} stages of up to {max(held)} layers may rebuild theirs under full recomputation"
    given = f"{len(rebuilt)} counts of up to {max(rebuilt)} layers are given under {plan.recompute} recomputation"
    return Finding(name="recomputed layers", holds=holds, reason=f"{reason}; {given}")


def _terms(
    name: str, claimed: Mapping[str, float], found: Mapping[str, float], whole: float, unit: str
) -> Iterator[Finding]:
    """Terms that add up to the claimed whole and agree with this version's; the worst few that do not."""
    if not claimed:
        return
    total = sum(claimed.values())
    yield Finding(
        name=f"{name} terms",
        holds=_equal(total, whole, whole),
        reason=f"the terms add up to {_quantity(total, unit)} of {_quantity(whole, unit)}",
    )
    off = {term: abs(claimed.get(term, 0.0) - found.get(term, 0.0)) for term in dict.fromkeys((*claimed, *found))}
    for term in sorted(off, key=lambda term: -off[term])[:WORST_TERMS]:
        if off[term] > TOLERANCE * whole:
            mine, theirs = found.get(term, 0.0), claimed.get(term, 0.0)
            reason = f"claimed {_quantity(theirs, unit)}, this version finds {_quantity(mine, unit)}"
            yield Finding(name=f"{name} {term}", holds=False, reason=reason)


def _claim(name: str, claimed: float, found: float, unit: str) -> Finding:
    reason = f"claimed {_quantity(claimed, unit)}, this version finds {_quantity(found, unit)}"
    return Finding(name=name, holds=_equal(claimed, found, found), reason=reason)


def _equal(first: float, second: float, scale: float) -> bool:
    return abs(first - second) <= TOLERANCE * abs(scale)


def _quantity(value: float, unit: str) -> str:
    return f"{value / GB:.4f} GB" if unit == "B" else f"{value:.6g} {unit}".strip()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
