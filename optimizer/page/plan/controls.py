"""What the controls at the left offer and show: choices, locks of every variable, and the stops of the sliders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from optimizer.constraints.pin_text import Pinned, pins_text, written
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.page.plan.own_files import packed
from optimizer.page.plan.question import CHOICES, PlanQuestion

RISKS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
NUMBERS = ("gpus", "global_batch", "seq_len")
SHORTEST, LONGEST = 2**9, 2**20  # sequences [tokens]
AROUND = range(-4, 5)  # batches, in doublings of the one asked for
MOST_GPUS = 2**17
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
OF_EXPERTS = ("ep", "etp")
MOST_CHOICES = 64


def form_values(
    asked: PlanQuestion, inforce: Mapping[str, int] | None, stops: Mapping[str, Sequence[int]] | None
) -> dict[str, Any]:
    """Every control: its choices and its value; `inforce` and `stops` are those of the answer, once there is one.

    Pins that a lock cannot hold, such as ranges, stay in the text of pins.
    """
    inforce = inforce or {}
    risks = sorted({*RISKS, *([asked.oom_risk] if asked.oom_risk else [])}, reverse=True)
    locked = [name for name, value in asked.fix if name in TITLES and not isinstance(value, tuple | frozenset)]
    rest = {name: value for name, value in asked.fix if name not in locked}
    return {
        **_offers(),
        **CHOICES,
        "risks": [(risk, f"{100 * risk:g}%", risk == asked.oom_risk) for risk in risks],
        "given": {name: getattr(asked, name) for name in NUMBERS},
        "inforce": {name: inforce.get(name, getattr(asked, name) or "") for name in NUMBERS},
        "stops": {name: list((stops or {}).get(name, ())) for name in NUMBERS},
        "tokens": f"{asked.tokens / 1e9:.12g}e9",
        "fix": pins_text(rest),
        "files": [(kind, packed(text)) for kind, text in asked.files.items()],
        "locked": [(name, written(name, asked.pins[name])) for name in locked],
    }


@cache
def _offers() -> dict[str, Any]:
    """Models by family, clusters, devices and stacks: (name, title)."""
    from optimizer.catalog import cluster_names, device_names, load_model, model_names, stack_names

    models = [(name, load_model(name).title or name) for name in model_names()]
    return {"models": models, "clusters": cluster_names(), "devices": device_names(), "stacks": stack_names()}


@dataclass(frozen=True, kw_only=True)
class Lock:
    """One variable that can be pinned."""

    name: str
    title: str
    choices: tuple[str, ...]  # what it may be pinned to
    pinned: str = ""  # what it is pinned to, "" if free
    has: str = ""  # what the best plan has


def locks(job: Job, plan: Plan | None, pins: Mapping[str, Pinned]) -> list[Lock]:
    """A lock for every variable that means something for the job; a pin that no list has is added to its list."""
    shown = []
    for name, title in TITLES.items():
        if name in OF_EXPERTS and not job.model.experts:
            continue
        pinned = written(name, pins[name]) if name in pins else ""
        has = written(name, getattr(plan, name)) if plan else ""
        choices = dict.fromkeys((*_choices(job, name), *([has] if has else []), *([pinned] if pinned else [])))
        shown.append(Lock(name=name, title=title, choices=tuple(choices), pinned=pinned, has=has))
    return shown


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
        return tuple(map(str, values if len(values) <= MOST_CHOICES else powers(most)))
    return tuple(map(str, powers(most)))


def powers(most: int) -> list[int]:
    """The powers of two up to `most`.

    >>> powers(6)
    [1, 2, 4]
    """
    return [2**power for power in range(most.bit_length()) if 2**power <= most]


def steps(job: Job) -> dict[str, list[int]]:
    """Stops of each slider: powers of two, and for the batch doublings and halvings of the one in force.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=64, seq_len=2048, global_batch=96)
    >>> steps(job)["global_batch"], steps(job)["gpus"][:4]
    ([6, 12, 24, 48, 96, 192, 384, 768, 1536], [1, 2, 4, 8])
    """
    batches = (job.global_batch * 2.0**power for power in AROUND)
    return {
        "gpus": sorted({*powers(min(MOST_GPUS, job.cluster.max_gpus)), job.gpus}),
        "global_batch": [int(value) for value in batches if value >= 1 and value == int(value)],
        "seq_len": sorted({*(size for size in powers(LONGEST) if size >= SHORTEST), job.seq_len}),
    }
