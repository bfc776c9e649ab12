"""What a rank does once per step: exposed gradient reduction, contention with it, optimizer, overhead, stragglers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optimizer.job import Job
from optimizer.objectives.kernels.operators import FloatArray
from optimizer.objectives.layer.distinct import tabulated
from optimizer.objectives.layer.kinds import Kind
from optimizer.objectives.layer.shapes import REPLICA_KEYS
from optimizer.objectives.pipeline.parameters import LocalParameters, replicas, stage_parameters
from optimizer.objectives.pipeline.stages import Stage, representative_stages
from optimizer.objectives.step import data_parallel
from optimizer.plan import KnobColumns, Knobs, Plans

OPTIMIZER_TRAFFIC = 30.0  # bytes per element: reads gradient, master, two moments; writes master, moments, weight
OFFLOAD_TRAFFIC = 34.0  # bytes per offloaded element: 6 over the host link, 28 in the host's memory at a like rate


def once_per_step(
    job: Job,
    plans: Plans,
    first: Stage,
    kinds: Sequence[Kind],
    knobs: Knobs | KnobColumns,
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Once per step: exposed gradient reduction, contention with it, optimizer, embedding reduction, overhead.

    `first` is the first stage of the even split, which stands for all of them however the layers lie.
    """
    dense, moe = kinds[:2]
    busiest = stage_parameters(job.model, plans, first)
    once = _once(job, plans, knobs)
    per_step = (plans.zero_stage < 3) | (data_parallel.hybrid_groups(plans, replicas(plans)[0]) > 1)
    chunk = (first.dense * dense.backward_compute + first.moe * moe.backward_compute) / plans.vpp
    ahead = (first.dense * dense.forward_compute + first.moe * moe.forward_compute) / plans.vpp
    overlap = np.where((plans.zero_stage == 0) | job.stack.features.overlap_sharded, job.stack["dp_overlap"], 0.0)
    hidden = overlap * (np.minimum(np.maximum(0.0, once.reduce - once.tail), chunk) + np.minimum(once.gather, ahead))
    exposed = once.reduce + once.gather - hidden
    terms = {
        "dp_exposed": np.where(per_step, exposed, 0.0),
        "contention": np.where(per_step, hidden * knobs.comm_sm_share, 0.0),
        "optimizer": optimizer_seconds(job, plans, busiest, knobs),
        "overhead": np.full(len(plans), job.stack["step_overhead"]),
    }
    return terms, np.where(per_step, hidden, 0.0)


def optimizer_seconds(job: Job, plans: Plans, held: LocalParameters, knobs: Knobs | KnobColumns) -> FloatArray:
    """Time of the optimizer step on the elements a rank updates [s].

    elements x (30 B x optimizer_passes / HBM bandwidth x (1 - offload) + 34 B / host bandwidth x offload): Adam reads
    gradient, master weight and two moments and writes the last three and the weight; ZeRO divides the elements.

    Source: Rajbhandari et al., arXiv 1910.02054, section 3.1 for the state; Ren et al., arXiv 2101.06840 for offload.
    """
    shards = np.where(plans.zero_stage >= 1, data_parallel.shard_ranks(plans, replicas(plans)[0]), 1)
    on_device = OPTIMIZER_TRAFFIC * job.stack["optimizer_passes"] / job.cluster.device.memory_bandwidth
    on_host = OFFLOAD_TRAFFIC / job.cluster.host_bandwidth
    return (held.shared + held.experts) / shards * (on_device * (1 - knobs.offload) + on_host * knobs.offload)


def straggler_seconds(job: Job, plans: Plans, step: FloatArray) -> FloatArray:
    """Time lost to the slowest of many nodes: step x straggler x log2(nodes) [s].

    Source: assumed form, the expected maximum of n like delays growing with log n; the rate is fitted.
    """
    nodes = np.maximum(1.0, plans.gpus / job.cluster.gpus_per_node)
    return np.asarray(step * job.stack["straggler"] * np.log2(nodes))


def _once(job: Job, plans: Plans, knobs: Knobs | KnobColumns) -> data_parallel.DataParallel:
    """Gradient and weight collectives of the first stage, which holds the embedding besides its layers."""
    if isinstance(knobs, KnobColumns):
        first = representative_stages(job.model, plans)[0]
        return data_parallel.per_step(job, plans, stage_parameters(job.model, plans, first), knobs)

    def price(few: Plans) -> data_parallel.DataParallel:
        first = representative_stages(job.model, few)[0]
        return data_parallel.per_step(job, few, stage_parameters(job.model, few, first), knobs)

    once, index = tabulated(plans, ("once", knobs), job, REPLICA_KEYS, price)
    return data_parallel.DataParallel(reduce=once.reduce[index], gather=once.gather[index], tail=once.tail[index])
