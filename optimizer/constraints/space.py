"""Which values each variable of a plan may take, before any rule looks at combinations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from optimizer.constraints.pin_text import code
from optimizer.constraints.rules.layers import slack
from optimizer.constraints.rules.tp_scale_up import ceiling
from optimizer.job.job import PLACING, Job
from optimizer.job.plan import SCHEDULES, IntArray
from optimizer.job.recomputation import RECOMPUTE
from optimizer.objectives.arrays import different
from optimizer.objectives.layer.module_sets import searched_modes

WIDEST_TP = 64


def domains(job: Job, gpus: IntArray | None = None, batches: IntArray | None = None) -> dict[str, tuple[int, ...]]:
    """Values of the free variables and the options; the derived ones follow from them unless they are pinned.

    `gpus` and `batches` stand for the job's: what any of them allows is in.
    The schedule is free where the stack offers one besides 1F1B and interleaving, which follow from vpp; DualPipe
    is one where it is asked for. Groups that share states (HSDP) are all replicas or those of one node, unless a
    range or a list asks for others. Of the modules that may be recomputed few sets are in (`searched_modes`),
    unless a list asks for others.
    Domains reach a little beyond the limits, so that a relaxation can be found; a pinned value is always in.
    """
    model, limits = job.model, job.limits
    counts = np.array([job.gpus]) if gpus is None else gpus
    degrees = _degrees(job, counts)
    # Numbers of GPUs of more than a node count as one: their ranks share experts alike.
    unlike = different(np.minimum(counts, job.cluster.gpus_per_node)).tolist()
    modes = {mode for count in unlike for mode in searched_modes(replace(job, gpus=count))}
    experts = model.experts.count if model.experts else 1
    values: dict[str, set[int]] = {
        "tp": {tp for tp in degrees if tp <= max(WIDEST_TP, ceiling(job))},
        "cp": {cp for cp in degrees if cp == 1 or cp * max(256, limits.min_cp_tokens // 2) <= job.seq_len},
        "pp": {pp for pp in degrees if pp <= (1 if job.method.layers else model.layers)},
        "micro_batch": _sizes(job, batches),
        "vpp": set(_virtual_stages(job)),
        "ep": {ep for ep in divisors(experts) if ep <= counts.max()},
        "etp": {etp for etp in degrees if etp <= ceiling(job)} if model.experts else {1},
        "sequence_parallel": {0, 1},
        "zero_stage": {0, 1, 2, 3},
        "shard": _groups(job, degrees),
        "overlap_exchange": {0, 1} if model.experts and job.stack.features.offers_overlap else {0},
        "activation_offload": _on_host(job),
        "recompute": set(map(RECOMPUTE.index, modes)),
    }
    asked = "dualpipe" in limits.choices.get("schedule", ())
    usual = ("1f1b", "interleaved") + ("dualpipe",) * (not asked)
    if offered := [name for name in job.stack.features.schedules if name not in usual]:
        values["schedule"] = {SCHEDULES.index(name) for name in ("1f1b", "interleaved", *offered)}
    for name, listed in limits.choices.items():
        if name in values:
            values[name] |= {code(name, value) for value in listed}
    values |= {name: {code(name, value)} for name, value in limits.fixed.items() if name not in PLACING}
    return {name: tuple(sorted(allowed)) for name, allowed in values.items()}


def _degrees(job: Job, counts: IntArray) -> tuple[int, ...]:
    """Divisors of the numbers of GPUs; of several none beyond what the degrees and groups asked for may be."""
    if len(counts) == 1:
        return divisors(int(counts[0]))
    shards = job.limits.ranges.get("shard", ())
    most = max(WIDEST_TP, ceiling(job), job.seq_len // 256, job.model.layers, *shards)
    return tuple(_dividing(counts, most))


def _sizes(job: Job, batches: IntArray | None) -> set[int]:
    """Micro-batches of up to twice the limit that divide the batch, or one of these."""
    most = 2 * job.largest_micro_batch
    if batches is None:
        return {size for size in divisors(job.global_batch) if size <= most}
    return set(_dividing(batches, most))


def _dividing(counts: IntArray, most: int) -> Iterator[int]:
    """Numbers up to `most` that divide at least one of the counts.

    >>> list(_dividing(np.array([6, 8]), 5))
    [1, 2, 3, 4]
    """
    among = np.bincount(counts)
    return (number for number in range(1, most + 1) if among[number::number].any())


def _groups(job: Job, degrees: Iterable[int]) -> set[int]:
    """Replicas over which states may be sharded, 0 for all; smaller groups pay where weights are gathered (ZeRO-3)."""
    if "shard" in job.limits.ranges or "shard" in job.limits.choices:
        return {0, *degrees}
    return {0, *divisors(job.cluster.gpus_per_node)} if 3 in job.stack.features.zero_stages else {0}


def _on_host(job: Job) -> set[int]:
    """Shares of the activations that may lie on the host [%]: none unless a range or a list asks for some, or programs
    that fine-tune keep the inputs of all recomputed layers there.

    No run of pretraining that stacks were fitted to has its activations there.
    """
    if "activation_offload" in {*job.limits.ranges, *job.limits.choices}:
        return {0, 25, 50, 75, 100, *job.limits.ranges.get("activation_offload", ())}
    return {0, 100} if job.tunes and job.stack.features.hosted_checkpoints else {0}


def _virtual_stages(job: Job) -> list[int]:
    """Numbers of virtual stages per stage that divide the layers, embedding and head counted where possible."""
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
