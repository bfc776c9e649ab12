"""A whole plan from a few pinned variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.base.errors import InputError
from optimizer.constraints.given_layout import counts_of
from optimizer.job.job import LAYERS, LAYOUT, RECOMPUTED, Job
from optimizer.job.plan import Plan
from optimizer.studies.strategies import NECESSARY, broken_rules

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
