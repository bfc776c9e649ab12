"""What the controls at the left offer and show: choices, locks of every variable, and the stops of the sliders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from optimizer.constraints.pin_text import Pinned, pins_text, written
from optimizer.job.fields import FIELDS, Field
from optimizer.job.job import Job
from optimizer.job.method import ADAPTERS, optimizers
from optimizer.job.plan import Plan
from optimizer.page.plan.own_files import FILE, RUNS, packed
from optimizer.page.plan.question import CHOICES, PAGED, READ_AS, PlanQuestion
from optimizer.studies.cells import powers

USUAL = "the usual one"  # what holds where one word does not say it
RISKS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
NUMBERS = {"gpus": "GPUs", "global_batch": "sequences", "seq_len": "tokens"}  # with sliders, and their units
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


@dataclass(frozen=True, kw_only=True)
class Control:
    """The control of an option."""

    name: str
    label: str
    value: str  # "" where the choice is left to `optimize`
    usual: str = ""  # what holds then
    groups: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)  # choices, their texts, by heading
    unit: str = ""  # of a number with a slider


def form_values(
    asked: PlanQuestion, inforce: Mapping[str, int] | None, stops: Mapping[str, Sequence[int]] | None
) -> dict[str, Any]:
    """Every control: its choices and its value; `inforce` and `stops` are those of the answer, once there is one.

    Pins that a lock cannot hold, such as ranges, stay in the text of pins.
    """
    inforce = inforce or {}
    locked = [name for name, value in asked.fix if name in TITLES and not isinstance(value, tuple | frozenset)]
    rest = {name: value for name, value in asked.fix if name not in locked}
    return {
        "controls": [control(option, asked) for option in PAGED if option.name != RUNS or asked.runs],
        "inforce": {name: inforce.get(name, getattr(asked, name) or "") for name in NUMBERS},
        "stops": {name: list((stops or {}).get(name, ())) for name in NUMBERS},
        "tokens": f"{asked.tokens / 1e9:.12g}e9",
        "fix": pins_text(rest),
        "files": [(kind, packed(text)) for kind, text in asked.files.items()],
        "locked": [(name, written(name, asked.pins[name])) for name in locked],
    }


def control(option: Field, asked: PlanQuestion) -> Control:
    """The control of an option: a slider, or the choices that there are.

    >>> shown = control(FIELDS["minimize"], PlanQuestion(minimize="energy"))
    >>> shown.usual, shown.value, shown.groups[""]
    ('time', 'energy', [('energy', 'energy'), ('cost', 'cost')])
    """
    name, value = option.name, getattr(asked, option.name)
    groups = dict(_groups(name))
    if name == "oom_risk":
        groups[""] = [
            (f"{risk}", f"at most {100 * risk:g}%") for risk in sorted({*RISKS, value or RISKS[0]}, reverse=True)
        ]
    if value == FILE:
        groups["of your own"] = [(FILE, "of my own file")]
    elif name in READ_AS and value and (value, value) not in groups[""]:
        groups["of the address"] = [(value, value)]
    usual = "" if name == "model" else option.default or option.otherwise or USUAL
    return Control(
        name=name,
        label=option.label,
        value=f"{value or ''}",
        usual=USUAL if ";" in usual else "none" if name == RUNS else usual,
        groups=groups,
        unit=NUMBERS.get(name, ""),
    )


@cache
def _groups(name: str) -> Mapping[str, Sequence[tuple[str, str]]]:
    """The choices of an option with their texts, by heading; none of a number."""
    from optimizer.catalog import cluster_names, device_names, family_names, load_model, model_names

    if name == "model":
        return {"": [(each, load_model(each).title or each) for each in model_names()]}
    if name == "cluster":
        named = {"Device, on its usual cluster": device_names(), "Cluster": cluster_names()}
        return {heading: [(each, each) for each in names] for heading, names in named.items()}
    known = {**CHOICES, "stack": family_names(), "train": ADAPTERS, "optimizer": tuple(optimizers())}.get(name, ())
    return {"": [(each, each) for each in known if each != FIELDS[name].default]}


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
    named: dict[str, Iterable[object]] = {
        "sequence_parallel": (True, False),
        "zero_stage": sorted({*features.zero_stages, *features.piped_zero_stages}),
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
        "micro_batch": job.largest_micro_batch,
    }[name]
    if name in ("pp", "vpp", "dp", "tp"):
        of = {"pp": job.model.layers, "dp": job.gpus}.get(name, most)
        values = [value for value in range(1, most + 1) if of % value == 0 or value & (value - 1) == 0]
        return tuple(map(str, values if len(values) <= MOST_CHOICES else powers(most)))
    return tuple(map(str, powers(most)))


def steps(job: Job) -> dict[str, list[int]]:
    """Stops of each slider: powers of two, and for the batch doublings and halvings of the one in force.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=64, seq_len=2048, global_batch=12)
    >>> steps(job)["global_batch"], steps(job)["gpus"][:4]
    ([3, 6, 12, 24, 48, 96, 192], [1, 2, 4, 8])
    """
    batches = (job.global_batch * 2.0**power for power in AROUND)
    return {
        "gpus": sorted({*powers(min(MOST_GPUS, job.cluster.max_gpus)), job.gpus}),
        "global_batch": [int(value) for value in batches if value.is_integer()],
        "seq_len": sorted({*(size for size in powers(LONGEST) if size >= SHORTEST), job.seq_len}),
    }
