"""Which values each variable of a plan may take, before any rule looks at combinations."""

from __future__ import annotations

from optimizer.constraints.layers import slack
from optimizer.constraints.pins import code
from optimizer.constraints.tp_scale_up import ceiling
from optimizer.job import PLACING, Job
from optimizer.objectives.layer.module_sets import searched_modes
from optimizer.plan import SCHEDULES
from optimizer.recomputation import RECOMPUTE

WIDEST_TP = 64


def domains(job: Job) -> dict[str, tuple[int, ...]]:
    """Values of the free variables and the options; the derived ones follow from them unless they are pinned.

    The schedule is free where the stack offers one besides 1F1B and interleaving, which follow from vpp. Groups that
    share states (HSDP) are all replicas or those of one node, unless a range or a list asks for others.
    Of the modules that may be rebuilt few sets are in (`searched_modes`), unless a list asks for others.
    Domains reach a little beyond the limits, so that a relaxation can be found; a pinned value is always in.
    """
    model, limits = job.model, job.limits
    degrees = divisors(job.gpus)
    experts = model.experts.count if model.experts else 1
    values: dict[str, set[int]] = {
        "tp": {tp for tp in degrees if tp <= max(WIDEST_TP, ceiling(job))},
        "cp": {cp for cp in degrees if cp == 1 or cp * max(256, limits.min_cp_tokens // 2) <= job.seq_len},
        "pp": {pp for pp in degrees if pp <= model.layers},
        "micro_batch": {size for size in divisors(job.global_batch) if size <= 2 * limits.max_micro_batch},
        "vpp": set(_chunks(job)),
        "ep": {ep for ep in divisors(experts) if ep <= job.gpus},
        "etp": {etp for etp in degrees if etp <= ceiling(job)} if model.experts else {1},
        "sequence_parallel": {0, 1},
        "zero_stage": {0, 1, 2, 3},
        "shard": _groups(job),
        "activation_offload": _on_host(job),
        "recompute": {RECOMPUTE.index(mode) for mode in searched_modes(job)},
    }
    if offered := [name for name in job.stack.features.schedules if name.startswith("zero-bubble")]:
        values["schedule"] = {SCHEDULES.index(name) for name in ("1f1b", "interleaved", *offered)}
    for name, listed in limits.choices.items():
        if name in values:
            values[name] |= {code(name, value) for value in listed}
    values |= {name: {code(name, value)} for name, value in limits.fixed.items() if name not in PLACING}
    return {name: tuple(sorted(allowed)) for name, allowed in values.items()}


def _groups(job: Job) -> set[int]:
    """Replicas over which states may be sharded, 0 for all; smaller groups pay where weights are gathered (ZeRO-3)."""
    if "shard" in job.limits.ranges or "shard" in job.limits.choices:
        return {0, *divisors(job.gpus)}
    return {0, *divisors(job.cluster.gpus_per_node)} if 3 in job.stack.features.zero_stages else {0}


def _on_host(job: Job) -> set[int]:
    """Shares of the activations that may lie on the host [%]: none unless a range or a list asks for some.

    No run that stacks were fitted to has its activations there.
    """
    asked = "activation_offload" in {*job.limits.ranges, *job.limits.choices}
    return {0, 25, 50, 75, 100, *job.limits.ranges.get("activation_offload", ())} if asked else {0}


def _chunks(job: Job) -> list[int]:
    """Numbers of chunks per stage that divide the layers, embedding and head counted as layers where possible."""
    layers = job.model.layers
    most = min(job.limits.max_vpp, job.stack.features.max_vpp)
    return [v for v in range(1, most + 1) if any(total % v == 0 for total in range(layers, layers + slack(job) + 1))]


def divisors(number: int) -> tuple[int, ...]:
    """Divisors in rising order.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(small + [number // d for d in reversed(small) if d * d != number])
