"""Activations kept in the host's memory: which, and what bringing them there and back costs.

Source: NVIDIA/Megatron-LM, fine-grained activation offloading,
docs.nvidia.com/megatron-core/developer-guide/0.19.0/user-guide/features/fine_grained_activation_offloading.html.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from optimizer.job import Job
from optimizer.model import Model
from optimizer.objectives.kernels.modes import rebuilds
from optimizer.objectives.kernels.operators import FloatArray, Shapes
from optimizer.objectives.layer.seconds import LayerTime
from optimizer.plan import IntArray
from optimizer.recomputation import modules_of

HOST_TRANSFER = "host_transfer"
DOUBLE = 2.0  # layers' worth of buffers on the device: one on its way out, one on its way back
# Modules of which rebuilding leaves nothing to send to the host.
REBUILT = {"core_attn": "mla_up_proj", "expert_fc1": "moe", "moe_act": "moe"}


def movable_bytes(model: Model, shapes: Shapes, moe: bool, imbalance: float) -> dict[str, FloatArray]:
    """Inputs of modules that one layer may keep on the host, per micro-batch and rank, by module [B].

    attn_norm, mlp_norm: the residual stream before a norm that is a kernel of its own, 2 t h / sp. core_attn: queries,
    keys and values. attn_proj: the attention's output. expert_fc1: the routed tokens. moe_act: what the experts' first
    products return. A dense MLP has none.

    Source: Megatron-Core developer guide, fine-grained activation offloading, --offload-modules.

    >>> from optimizer.presets import load_model
    >>> one = np.ones(1)
    >>> shapes = Shapes(tp=one, cp=one, ep=one, etp=one, micro_batch=one, sequence_parallel=one > 2, seq_len=1)
    >>> {name: float(b[0]) for name, b in movable_bytes(load_model("gpt3"), shapes, False, 1.0).items()}
    {'core_attn': 73728.0, 'attn_proj': 24576.0}
    """
    t, tp = shapes.tokens, shapes.tp
    keys = 2.0 * np.maximum(model.kv_dim / tp, model.head_dim) if model.mla is None else 2.0 * model.q_dim / tp
    stream = 2.0 * t * model.hidden / shapes.sp
    found = {"core_attn": 2.0 * t * (model.q_dim / tp + keys), "attn_proj": 2.0 * t * model.v_dim / tp}
    if model.mla:
        found["attn_norm"] = stream
    if moe and model.experts:
        rows = t / tp * model.experts.top_k * imbalance
        found["mlp_norm"] = stream
        found["expert_fc1"] = 2.0 * rows * model.hidden
        found["moe_act"] = 2.0 * (2 if model.gated_mlp else 1) * rows * model.experts.ffn_hidden
    return found


def offloaded_modules(model: Model, recompute: str) -> tuple[str, ...]:
    """Names of the modules of a model that have something to send to the host, in the order of a layer.

    >>> from optimizer.presets import load_model
    >>> offloaded_modules(load_model("deepseek-v3"), "layernorm+mla_up_proj")
    ('attn_norm', 'attn_proj', 'mlp_norm', 'expert_fc1', 'moe_act')
    """
    attention = ("attn_norm",) * (model.mla is not None) + ("core_attn", "attn_proj")
    mixture = ("mlp_norm", "expert_fc1", "moe_act") * (model.experts is not None)
    rebuilt = modules_of(recompute)
    return tuple(name for name in (*attention, *mixture) if REBUILT.get(name) not in rebuilt)


def moved_bytes(movable: Mapping[str, FloatArray], recompute: IntArray, share: FloatArray) -> FloatArray:
    """What a layer keeps on the host: the share of what may be there and is not rebuilt anyhow [B].

    >>> from optimizer.recomputation import RECOMPUTE
    >>> some = {"core_attn": np.full(2, 6.0), "attn_proj": np.full(2, 2.0)}
    >>> moved_bytes(some, np.array([0, RECOMPUTE.index("mla_up_proj")]), np.full(2, 0.5)).tolist()
    [4.0, 1.0]
    """
    total = np.zeros(len(recompute))
    for module, size in movable.items():
        kept = ~rebuilds(recompute, REBUILT[module]) if module in REBUILT else True
        total = total + np.where(kept, size, 0.0)
    return total * share


def host_seconds(job: Job, moved: FloatArray, window: FloatArray) -> FloatArray:
    """Seconds that one pass over a layer loses to its traffic with the host [s].

    max(0, moved / host bandwidth - window) + moved / HBM bandwidth: what does not fit under the pass's computation, and
    the copies' own traffic in device memory. Where communication hides under computation the host link waits: it is
    shared with the network card. That everything else hides is assumed, not measured.

    Source: assumed; Transformer Engine documentation, CPU offloading (copies run beside the computation).

    >>> from optimizer.presets import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...           gpus=8, seq_len=2048, global_batch=8)
    >>> host_seconds(job, np.array([55.1e6, 55.1e6]), np.array([0.0, 2e-3])).round(6).tolist()
    [0.001016, 1.6e-05]
    """
    device = job.cluster.device
    return np.maximum(0.0, moved / job.cluster.host_bandwidth - window) + moved / device.memory_bandwidth


def host_passes(job: Job, time: LayerTime, recompute: IntArray, moved: FloatArray) -> tuple[FloatArray, FloatArray]:
    """`host_seconds` of the forward and the backward pass of a layer [s]."""
    again = time.again(recompute)
    forward = host_seconds(job, moved, np.maximum(0.0, time.forward.compute - time.forward.hidden))
    busy = time.backward.compute + again.compute - time.backward.hidden - again.hidden
    return forward, host_seconds(job, moved, np.maximum(0.0, busy))
