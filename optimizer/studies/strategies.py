"""Plans in a few words: DP, FSDP, TP and PP side by side, each on all GPUs of a job; or a few pinned variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optimizer.base.errors import InputError
from optimizer.constraints.given_layout import counts_of
from optimizer.constraints.rules.every import structural
from optimizer.job.job import LAYERS, LAYOUT, RECOMPUTED, Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.studies.communication import CommunicationStudy, communication

STRATEGIES = ("dp", "fsdp", "tp", "pp")
# Rules without which shapes of a layer or groups of GPUs make no sense; the others (a bubble ceiling, say) are only
# remarked.
SHAPES = ("heads", "kv-heads", "mlp-width", "layers", "experts", "expert-tp", "expert-folding", "sequence")
NECESSARY = ("gpu-product", "batch", "shard", *SHAPES)


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """One strategy: its plan, and its study or the reasons why there is none. `remarks` are rules it breaks."""

    name: str
    plan: Plan
    study: CommunicationStudy | None
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether its memory fits on the GPUs."""
        return self.study is not None and self.study.memory.fits


def pure_plan(job: Job, strategy: str, micro_batch: int = 1) -> Plan:
    """The plan that puts all GPUs of a job into one strategy. Raises InputError for another one.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> where = {"cluster": load_cluster("h100"), "stack": load_stack("megatron-core")}
    >>> job = Job(model=load_model("llama3-8b"), **where, gpus=8, seq_len=2048, global_batch=64)
    >>> pure_plan(job, "pp").num_microbatches, pure_plan(job, "dp").num_microbatches
    (64, 8)
    """
    if strategy not in STRATEGIES:
        raise InputError(f"unknown strategy {strategy!r}; use one of {', '.join(STRATEGIES)}")
    replicas = job.gpus if strategy in ("dp", "fsdp") else 1
    return Plan(
        tp=job.gpus if strategy == "tp" else 1,
        pp=job.gpus if strategy == "pp" else 1,
        dp=replicas,
        zero_stage=3 if strategy == "fsdp" else 0,
        micro_batch=micro_batch,
        num_microbatches=max(1, job.global_batch // (replicas * micro_batch)),
    )


def compare(
    job: Job, names: Sequence[str] = STRATEGIES, *, micro_batch: int = 1, knobs: Knobs = Knobs()
) -> tuple[Strategy, ...]:
    """Each strategy's communication for the same job. Raises InputError for a micro-batch below one."""
    if micro_batch < 1:
        raise InputError(f"micro_batch must be at least 1, but got {micro_batch}")
    strategies = []
    for name in names:
        plan = pure_plan(job, name, micro_batch)
        broken = broken_rules(job, plan)
        reasons = tuple(broken[rule] for rule in NECESSARY if rule in broken)
        study = None if reasons else communication(job, plan, knobs)
        remarks = tuple(rule for rule in broken if rule not in NECESSARY)
        strategies.append(Strategy(name=name, plan=plan, study=study, reasons=reasons, remarks=remarks))
    return tuple(strategies)


def broken_rules(job: Job, plan: Plan) -> dict[str, str]:
    """The rules that a plan breaks, with their reasons."""
    plans = Plans.of([plan])
    return {rule.name: rule.explain(job) for rule in structural(job) if not np.all(rule.check(job, plans))}


CONTEXT = "the pins do not make a plan for this job"


def pinned_plan(job: Job, fixed: Mapping[str, int | str | bool]) -> Plan:
    """The plan with these variables; the rest are Plan's defaults, dp fills the GPUs, micro-batches fill the batch.

    Raises InputError, with every necessary rule that the pins break.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> where = {"cluster": load_cluster("h100"), "stack": load_stack("megatron-core")}
    >>> job = Job(model=load_model("llama3-8b"), **where, gpus=64, seq_len=2048, global_batch=128)
    >>> pinned_plan(job, {"tp": 8, "pp": 2}).summary()
    'TP 8, PP 2, DP 4, micro-batch 1, ZeRO-1'
    """
    values: dict[str, Any] = {name: value for name, value in fixed.items() if name != LAYOUT}
    listed = {name: counts_of(job, name) for name in (LAYERS, RECOMPUTED) if name in fixed}
    if listed:
        values.setdefault("pp", len(next(iter(listed.values()))) // values.get("vpp", 1))
    values |= listed
    if RECOMPUTED in listed:
        values.setdefault("recompute", "full")
    taken = 1
    for name in ("tp", "cp", "pp"):
        taken *= values.setdefault(name, 1)
    values.setdefault("dp", max(1, job.gpus // taken))
    values.setdefault("num_microbatches", max(1, job.global_batch // (values["dp"] * values.get("micro_batch", 1))))
    if values.get("vpp", 1) > 1:
        values.setdefault("schedule", "interleaved")
    plan = Plan(**values)
    broken = broken_rules(job, plan)
    if reasons := [reason for rule, reason in broken.items() if rule in NECESSARY or rule.startswith("fix")]:
        raise InputError(f"{CONTEXT} ({plan.summary()}): {'; '.join(reasons)}")
    return plan
