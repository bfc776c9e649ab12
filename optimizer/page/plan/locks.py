"""Locks: every variable of a plan with the values to which it can be pinned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.constraints.pin_text import Pinned, written
from optimizer.job.job import Job
from optimizer.job.plan import Plan

TITLES = {
    "tp": "tensor parallel, TP",
    "cp": "context parallel, CP",
    "ep": "expert parallel, EP",
    "etp": "expert tensor, ETP",
    "pp": "pipeline stages, PP",
    "vpp": "virtual stages, VPP",
    "dp": "replicas, DP",
    "micro_batch": "micro-batch",
    "sequence_parallel": "sequence parallel",
    "zero_stage": "ZeRO stage",
    "recompute": "recomputation",
    "schedule": "schedule",
}
MIXTURES = ("ep", "etp")
MOST = 64


@dataclass(frozen=True, kw_only=True)
class Lock:
    """One variable: what it may be pinned to, what it is `pinned` to, "" if free, and what the best plan `has`."""

    name: str
    title: str
    choices: tuple[str, ...]
    pinned: str = ""
    has: str = ""


def locks(job: Job, plan: Plan | None, pins: Mapping[str, Pinned]) -> list[Lock]:
    """A lock for every variable that means something for the job; a pin that no list has is added to its list."""
    found = []
    for name, title in TITLES.items():
        if name in MIXTURES and not job.model.experts:
            continue
        pinned = written(name, pins[name]) if name in pins else ""
        has = written(name, getattr(plan, name)) if plan else ""
        choices = dict.fromkeys((*_choices(job, name), *([has] if has else []), *([pinned] if pinned else [])))
        found.append(Lock(name=name, title=title, choices=tuple(choices), pinned=pinned, has=has))
    return found


def _choices(job: Job, name: str) -> tuple[str, ...]:
    features = job.stack.features
    named: dict[str, tuple[object, ...]] = {
        "sequence_parallel": (True, False),
        "zero_stage": features.zero_stages,
        "recompute": features.recompute,
        "schedule": features.schedules,
    }
    if name in named:
        return tuple(written(name, value) for value in named[name])  # type: ignore[arg-type]
    most = {
        "tp": job.limits.max_tp or job.cluster.scale_up_size,
        "cp": max(1, job.seq_len // job.limits.min_cp_tokens),
        "ep": job.model.experts.count if job.model.experts else 1,
        "etp": job.cluster.scale_up_size,
        "pp": job.model.layers,
        "vpp": job.limits.max_vpp,
        "dp": job.gpus,
        "micro_batch": job.limits.max_micro_batch,
    }[name]
    if name in ("pp", "vpp", "dp", "tp"):
        of = {"pp": job.model.layers, "dp": job.gpus}.get(name, most)
        values = [value for value in range(1, most + 1) if of % value == 0 or value & (value - 1) == 0]
        return tuple(map(str, values if len(values) <= MOST else _powers(most)))
    return tuple(map(str, _powers(most)))


def _powers(most: int) -> list[int]:
    return [2**power for power in range(most.bit_length()) if 2**power <= most]
