"""What of a paged optimizer's moments lies on the host because the device is full."""

from __future__ import annotations

import numpy as np

from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.layer_costs import LayerCosts
from optimizer.objectives.pipeline.stages import even_stages
from optimizer.objectives.step.linear_stage import stage_memory
from optimizer.objectives.step.memory_terms import sharded_bytes


def paged_share(layer_costs: LayerCosts) -> FloatArray:
    """Share of the moments that is beyond what else leaves of the device, and travels for every update [1].

    1 - (memory - context - reserved) / moments, of 0 to 1; all in a pipeline, where a stage's layers are not known
    yet. Unified memory stays where it was touched, and makes room only for what is allocated.

    Source: bitsandbytes 0.50.2, bitsandbytes/functional.py (get_paged); CUDA C++ Programming Guide, unified memory
    (oversubscription); on an H200 with room a paged AdamW took 1 % longer than one that is not.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.job.job import Job
    >>> from optimizer.job.plan import Plan, Plans
    >>> from optimizer.objectives.layer.layer_costs import layer_costs_of
    >>> def share(device: str) -> float:
    ...     job = Job(model=load_model("llama3.1-8b"), cluster=load_cluster(device), stack=load_stack("hf-2026"),
    ...         gpus=1, seq_len=1024, global_batch=1, optimizer="paged-adamw-8bit")
    ...     return float(paged_share(layer_costs_of(job, Plans.of([Plan(recompute="full")])))[0])
    >>> share("h200"), share("rtx-4090")
    (0.0, 1.0)
    """
    job, plans = layer_costs.job, layer_costs.plans
    each, whole = sharded_bytes(layer_costs, job.state_bytes - job.master_bytes, 1), layer_costs.replicas.whole_of_plans
    moments = whole.trained_shared * each[0] + whole.trained_experts * each[1]
    reserved = stage_memory(layer_costs, even_stages(job.model, plans)).reserved.max(axis=0)
    free = job.cluster.device.memory - job.stack["context_memory"] - reserved
    return np.where(plans.pp == 1, 1.0 - np.clip(free / np.maximum(moments, 1.0), 0.0, 1.0), 1.0)
