"""Groups of ranks that a dispatcher's kernels are written for."""

from __future__ import annotations

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import IntArray
from optimizer.objectives.arrays import BoolArray

DEEPEP_RANKS = (2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 144, 160)
TOGETHER = 4  # HybridEP: experts of a scale-up domain are read so many at a time


def runs_over(job: Job, dispatcher: str, ep: IntArray, etp: IntArray) -> BoolArray:
    """Whether the dispatcher runs over groups of ep x etp ranks.

    DeepEP as training software calls it has settings for DEEPEP_RANKS and no other number; its ports to AMD are taken
    to be as free as all-to-all. HybridEP asks for whole fours of experts in a scale-up domain. Both send hidden sizes
    of whole 16 bytes, which every model has.

    Source: deepseek-ai/DeepEP @dd758ca, deep_ep/buffers/legacy.py, get_dispatch_config, and branch hybrid-ep @94a9f8f,
    csrc/hybrid_ep/config.cuh, is_valid; NVIDIA/Megatron-LM core_v0.19.0, megatron/core/transformer/moe/fused_a2a.py
    (the group is that of tensor and expert ranks).

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("deepseek-v2-lite"), cluster=load_cluster("dgx-h100"),
    ...     stack=load_stack("megatron-core"), gpus=64, seq_len=4096, global_batch=512)
    >>> ep, etp = np.array([2, 8, 64, 8, 64]), np.array([1, 1, 1, 5, 4])
    >>> [runs_over(job, name, ep, etp).tolist() for name in ("deepep", "hybridep")]
    [[True, True, True, False, False], [True, True, True, True, True]]
    """
    ranks = ep * etp
    experts = job.model.experts
    if dispatcher == "deepep" and job.cluster.device.vendor == "NVIDIA":
        return np.asarray(np.isin(ranks, DEEPEP_RANKS))
    if dispatcher == "hybridep" and experts:
        near = np.minimum(ranks, job.cluster.scale_up_size)
        return np.asarray(experts.count // ep * near % TOGETHER == 0)
    return np.ones(len(ranks), dtype=np.bool_)
