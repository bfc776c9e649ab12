"""What binds the best plan: the job planned again with more of one thing, by what that buys; and how alone it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from optimizer.answer.answer import job_dict, plan_dict
from optimizer.base.units import GB
from optimizer.constraints.pin_text import pins_text
from optimizer.constraints.rules.tp_scale_up import ceiling
from optimizer.job.fields import LIMITS
from optimizer.job.job import Job
from optimizer.job.plan import FIELDS, Plan
from optimizer.job.variables import VARIABLES
from optimizer.search.lattice.oracle import NEAR_BEST, STRUCTURE, Sweep
from optimizer.search.plan.best import Best, best_plan

WITHIN = (0.01, 0.02, NEAR_BEST)  # the sweep keeps every plan of the widest
SHAPE_WITHIN = 0.02
BROAD = 3
MORE_MEMORY = 1.10
BATCH_FACTORS = (0.75, 1.25)


@dataclass(frozen=True, kw_only=True)
class Variation:
    """The job with one thing changed: `name` of the thing, the `change` in words.

    `kind` is "hardware", "batch" or "limit"; the batch may make the job worse, the others only widen the choice.
    """

    name: str
    change: str
    kind: str
    job: Job


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What one variation does to the optimum: `gain` is the relative change of the tokens trained on for a unit of what
    is minimised, such as a second.

    `changed` are the variables of the plan that move, as "pp 8 -> 16"; `best` is None when nothing fits any more.
    """

    variation: Variation
    best: Best | None
    gain: float
    changed: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The effect as plain values."""
        estimate = self.best.estimate if self.best else None
        return {
            "name": self.variation.name,
            "change": self.variation.change,
            "kind": self.variation.kind,
            "gain": self.gain,
            "step_time_s": estimate.step_time if estimate else None,
            "mfu": estimate.mfu if estimate else None,
            "plan": plan_dict(self.best.plan) if self.best else None,
            "changed": list(self.changed),
        }


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """The best plan of a job, the effects of the variations, largest first, how alone the plan is."""

    base: Best
    effects: tuple[Effect, ...]
    basin: Basin

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "job": job_dict(self.base.job),
            "plan": plan_dict(self.base.plan),
            "step_time_s": self.base.estimate.step_time,
            "mfu": self.base.estimate.mfu,
            "knobs": asdict(self.base.knobs),
            "effects": [effect.to_dict() for effect in self.effects],
            "basin": self.basin.to_dict(),
        }


def sensitivity(job: Job) -> Sensitivity | None:
    """Every variation of a job planned again, each at its own knobs; None when the job has no plan.

    Raises InputError for a pin on an unknown variable.
    """
    base = best_plan(job)
    if base is None:
        return None
    effects = [effect(base, variation) for variation in variations(job, base.plan)]
    order = sorted(effects, key=lambda item: (-abs(item.gain), item.variation.name))
    return Sensitivity(base=base, effects=tuple(order), basin=basin(base.swept))


def effect(base: Best, variation: Variation) -> Effect:
    """The optimum of one variation against that of the job; without any plan the gain is -1."""
    other = best_plan(variation.job)
    if other is None:
        return Effect(variation=variation, best=None, gain=-1.0)
    gain = other.worth / base.worth - 1
    return Effect(variation=variation, best=other, gain=gain, changed=moved(base.plan, other.plan))


def moved(before: Plan, after: Plan) -> tuple[str, ...]:
    """The variables in which two plans differ.

    >>> moved(Plan(tp=4, pp=8), Plan(tp=4, pp=16))
    ('pp 8 -> 16',)
    """
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in FIELDS]
    return tuple(f"{name} {old} -> {new}" for name, old, new in pairs if old != new)


def variations(job: Job, plan: Plan) -> tuple[Variation, ...]:
    """More memory, network and scale-up domain, another batch that `plan` divides, and each limit one notch wider."""
    return (*_hardware(job), *_batches(job, plan), *_limits(job), *_without_pins(job))


def _hardware(job: Job) -> Iterator[Variation]:
    capacity = job.limits.hbm or job.cluster.device.memory
    more = capacity * MORE_MEMORY
    change = f"{capacity / GB:.1f} -> {more / GB:.1f} GB"
    yield Variation(name="HBM +10 %", change=change, kind="hardware", job=job.with_limits(hbm=more))
    inner, *outer = job.cluster.tiers
    if outer:
        faster = [replace(tier, link=tier.link.scaled(2 * tier.link.bandwidth)) for tier in outer]
        rate = 8 * outer[0].link.bandwidth / 1e9
        yield Variation(
            name="NIC x2",
            change=f"{rate:.0f} -> {2 * rate:.0f} Gb/s per GPU",
            kind="hardware",
            job=replace(job, cluster=replace(job.cluster, tiers=(inner, *faster))),
        )
    if inner.size < job.gpus:
        wider = replace(inner, size=2 * inner.size)
        # A tier further out that is no larger than the new domain is swallowed by it.
        rest = [tier for tier in outer if tier.size > wider.size]
        yield Variation(
            name="scale-up domain x2",
            change=f"{inner.size} -> {wider.size} GPUs",
            kind="hardware",
            job=replace(job, cluster=replace(job.cluster, tiers=(wider, *rest))),
        )


def _batches(job: Job, plan: Plan) -> Iterator[Variation]:
    """The nearest batches that the plan's replicas and micro-batches divide."""
    unit = plan.dp * plan.micro_batch
    for factor in BATCH_FACTORS:
        batch = unit * max(1, round(job.global_batch * factor / unit))
        if batch != job.global_batch:
            yield Variation(
                name=f"batch {factor - 1:+.0%}".replace("%", " %"),
                change=f"{job.global_batch:,} -> {batch:,} sequences ({batch / job.global_batch - 1:+.1%})",
                kind="batch",
                job=replace(job, global_batch=batch),
            )


def _limits(job: Job) -> Iterator[Variation]:
    """Each limit one notch wider, where that is another one."""
    inforce = {**asdict(job.limits), "max_tp": ceiling(job), "max_micro_batch": job.largest_micro_batch}
    most = {"max_tp": job.gpus, "max_vpp": job.stack.features.max_vpp}
    for name, field in LIMITS.items():
        value = inforce[name]
        if not field.notch or value >= most.get(name, field.high):
            continue
        wider = field.wider(value)
        if wider != value:
            change = f"{field.written(value)} -> {field.written(wider)}"
            yield Variation(name=field.called, change=change, kind="limit", job=job.with_limits(**{name: wider}))


def _without_pins(job: Job) -> Iterator[Variation]:
    """The job without each of its pins in turn."""
    lists = {name: frozenset(values) for name, values in job.limits.choices.items()}
    pins = {**lists, **job.limits.ranges, **job.limits.fixed}
    for name, value in pins.items():
        yield Variation(
            name=f"pin on {name}",
            change=f"without {pins_text({name: value})}",
            kind="limit",
            job=job.without_pin(name),
        )


@dataclass(frozen=True, kw_only=True)
class Ring:
    """The other plans within `share` of the best value: how many, of how many other structures, and by variable
    the values they take, where not all agree with the best plan.
    """

    share: float
    plans: int
    structures: int
    values: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Basin:
    """Rings of growing width around the best plan."""

    rings: tuple[Ring, ...]

    @property
    def shape(self) -> str:
        """Judged by the other structures (tp, cp, ep, etp, pp) within 2 %: "sharp peak" for none, "broad basin" for
        three or more, else "narrow ridge".
        """
        structures = next(ring.structures for ring in self.rings if ring.share == SHAPE_WITHIN)
        if structures == 0:
            return "sharp peak"
        return "broad basin" if structures >= BROAD else "narrow ridge"

    def to_dict(self) -> dict[str, Any]:
        """The basin as plain values."""
        return {"shape": self.shape, "rings": [asdict(ring) for ring in self.rings]}


def basin(swept: Sweep) -> Basin:
    """The neighbourhood of a sweep's best plan; empty rings when it has none."""
    return Basin(rings=tuple(_ring(swept, share) for share in WITHIN))


def _ring(swept: Sweep, share: float) -> Ring:
    points, best = swept.points, swept.best
    if points is None or best < 0:
        return Ring(share=share, plans=0, structures=0, values={})
    near = points.fits & (points.values <= points.values[best] * (1 + share))
    columns = {name: getattr(points.plans, name).astype(np.int64)[near] for name in FIELDS}
    own = {name: int(getattr(points.plans, name)[best]) for name in FIELDS}
    structures = np.unique(np.column_stack([columns[name] for name in STRUCTURE]), axis=0)
    values = {
        name: tuple(VARIABLES[name].shown(int(value)) for value in np.unique(column))
        for name, column in columns.items()
        if np.any(column != own[name])
    }
    return Ring(share=share, plans=int(near.sum()) - 1, structures=len(structures) - 1, values=values)
